"""Faults of the builder, the drafters and the methods they are made by."""

from __future__ import annotations

from mutants.fault import Fault

CONTRACT = ("drafters/test_contract.py",)
BUILDER = (
    "drafters/test_builder.py",
    "drafters/test_recorded_laws.py",
    "core/test_near_laws.py",
    "core/test_tree_rules.py",
)
MEMORIES = ("drafters/test_taking_in.py",)
HEADS = ("drafters/test_heads.py", "exact/test_heads.py")
FORKS = ("drafters/test_contract.py::test_a_fork_goes_its_own_way", "drafters/test_forks.py")

DRAFTERS: tuple[Fault, ...] = (
    Fault(
        "drafters/builder.py",
        "        if parent in self._laws:\n",
        "        if False:\n",
        "siblings are drawn after a look, and their law is recorded again",
        BUILDER,
    ),
    Fault(
        "drafters/builder.py",
        "law = law / float(total)",
        "return law if abs(float(total) - 1) < 1e-3 else law / float(total)",
        "a law that nearly sums to 1 is recorded as it is",
        BUILDER,
    ),
    Fault(
        "drafters/builder.py",
        "law = law / float(total)",
        "law /= float(total)\n        return law",
        "the recorded law is the drafter's own buffer",
        BUILDER,
    ),
    Fault(
        "drafters/builder.py",
        'left = without(law, taken) if selection != "iid" else law',
        'left = without(law, taken[-1:]) if selection != "iid" else law',
        "only the sibling drawn last leaves the law drawn from",
        ("exact/test_wide_siblings.py", *BUILDER),
    ),
    Fault(
        "drafters/builder.py",
        'taken = _likeliest(law, fits - 1) if selection == "top_k_plus_one" else []',
        'taken = _likeliest(law, fits) if selection == "top_k_plus_one" else []',
        "all siblings of top_k_plus_one are constants",
        ("exact/test_wide_siblings.py", *BUILDER),
    ),
    Fault(
        "drafters/builder.py",
        "if self._selection not in (None, selection):",
        "if False:",
        "a draft may be drawn and guessed at once",
        BUILDER,
    ),
    Fault(
        "drafters/builder.py",
        "self._policy is None or self._policy(law, self._depth_of(parent))",
        "True",
        "the length policy is not asked",
        ("exact/test_lengths.py",),
    ),
    Fault(
        "drafters/builder.py",
        "token = int(self._chance.draw_draft(law, len(self._tokens), self._depth_of(parent)))",
        "token = int(self._chance.draw_draft(law, self._depth_of(parent), self._depth_of(parent)))",
        "siblings are drawn with one key",
        ("core/test_near_laws.py", "exact/test_wide_siblings.py"),
    ),
    # draft models
    Fault(
        "drafters/draft_model.py",
        "self._session.rollback(min(self._session.length, seen.start + len(seen.tokens)))",
        "self._session.rollback(min(self._session.length, seen.start + len(seen.tokens) + 1))",
        "a draft model keeps the first rejected token",
        (*CONTRACT, "decode/test_distribution.py", "decode/test_greedy_identity.py"),
    ),
    Fault(
        "drafters/draft_model.py",
        "wanted = (token, indices[-1] if indices else ROOT)",
        "wanted = (token, ROOT)",
        "of an accepted path in a tree only the first token is kept",
        ("decode/test_trees.py",),
    ),
    Fault(
        "drafters/draft_model.py",
        "above = sorted({node for last in wanted for node in draft.nodes_to(last)})",
        "above = sorted({*wanted})",
        "a level of a tree is read without the levels above it",
        (*CONTRACT, "decode/test_trees.py"),
    ),
    Fault(
        "drafters/draft_model.py",
        "law = None if self._laws.greedy else self._laws.law(logits, context, path)",
        "law = None if self._laws.greedy else self._laws.law(logits, context, ())",
        "drafts are drawn with penalties that do not see the draft",
        ("exact/test_proof_table.py",),
    ),
    Fault(
        "drafters/draft_model.py",
        "if max(unread) >= self._num_input_ids:",
        "if max(unread) > self._num_input_ids:",
        "a token the draft model cannot read is read",
        MEMORIES,
    ),
    # drafts from texts
    Fault(
        "drafters/ngram.py",
        "for end in range(self._indexed + 1, len(context)):",
        "for end in range(self._indexed + 2, len(context)):",
        "an n-gram is left out of the index every round",
        ("drafters/test_ngram.py",),
    ),
    Fault(
        "drafters/ngram.py",
        "while n < most and context[after - n - 1] == context[-n - 1]:",
        "while n < most and context[after - n] == context[-n]:",
        "matches are taken to be longer than they are",
        ("drafters/test_ngram.py",),
    ),
    Fault(
        "drafters/suffix.py",
        "if len(known) > len(context) or list(context[: len(known)]) != known:",
        "if len(known) > len(context):",
        "an edited context is not read anew",
        MEMORIES,
    ),
    Fault(
        "drafters/suffix.py",
        "            if expected > score:\n",
        "            if expected >= score:\n",
        "of equal sums the shorter match wins",
        ("drafters/test_suffix.py",),
    ),
    Fault(
        "drafters/suffix.py",
        "self._drafter.shared.add(self._committed[self._num_prompt_tokens :])",
        "self._drafter.shared.add(self._committed)",
        "prompts go into the store of outputs",
        MEMORIES,
    ),
    Fault(
        "drafters/ngram_cache.py",
        "if total < least:",
        "if total <= least:",
        "an n-gram seen just often enough does not pass",
        ("drafters/test_ngram_cache.py", "exact/test_proof_table.py"),
    ),
    Fault(
        "drafters/ngram_cache.py",
        "recent = (*recent, token)[-LONGEST:]",
        "recent = (*recent, token)[-LONGEST + 1 :]",
        "the lookup goes on from a token less",
        MEMORIES,
    ),
    Fault(
        "drafters/recycling.py",
        "for token, best in zip(seen.row_tokens, seen.top_ids.tolist(), strict=True):",
        "for token, best in zip(seen.row_tokens[:1], seen.top_ids.tolist()[:1], strict=True):",
        "rejected rows teach nothing",
        MEMORIES,
    ),
    Fault(
        "drafters/recycling.py",
        "listed = self._table.get(path[-1] if path else context[-1], ())",
        "listed = self._table.get(context[-1], ())",
        "every level hangs the pending token's list",
        ("drafters/test_recycling.py",),
    ),
    Fault(
        "drafters/retrieval.py",
        "found = drafter.corpus.tokens(sample + length, min(room, drafter.max_nodes))",
        "found = drafter.corpus.tokens(sample, min(room, drafter.max_nodes))",
        "what was matched is drafted, not what followed it",
        ("drafters/test_retrieval.py", "exact/test_proof_table.py"),
    ),
    Fault(
        "drafters/lookahead.py",
        "shift -= 1",
        "shift -= 0",
        "the window moves one token too far",
        ("drafters/test_lookahead.py",),
    ),
    Fault(
        "drafters/lookahead.py",
        "kept = [other for other in self._pool.get(first, []) if other != guess]",
        "kept = list(self._pool.get(first, []))",
        "an n-gram seen twice takes two places",
        MEMORIES,
    ),
    Fault(
        "drafters/other_tokenizer.py",
        'return "shared" if shared_hits * text >= text_hits * shared else "text"',
        'return "shared" if shared_hits >= text_hits else "text"',
        "the routes are compared without their numbers of drafts",
        MEMORIES,
    ),
    Fault(
        "drafters/other_tokenizer.py",
        "self._session.rollback(min(common, len(ids) - 1))",
        "self._session.rollback(common)",
        "a draft model that has read all of the text is given nothing to read",
        ("drafters/test_other_tokenizer.py", *CONTRACT),
    ),
    Fault(
        "drafters/auto.py",
        "for session in self._sessions.values():\n            session.observe(seen)",
        "self._sessions[self._chosen].observe(seen)",
        "drafters that did not draft are not told of the round",
        MEMORIES,
    ),
    # heads
    Fault(
        "drafters/eagle.py",
        "self._rows.rollback(self._true_rows)\n        return self._step(",
        "return self._step(",
        "a head keeps the rows of guessed features",
        HEADS,
    ),
    Fault(
        "drafters/eagle.py",
        "position = len(context) - 1\n",
        "position = len(context)\n",
        "drafted rows stand one position too far on",
        HEADS,
    ),
    Fault(
        "drafters/medusa.py",
        "if self._state is not None and self._known == len(context) - 1\n",
        "if self._state is not None\n",
        "a state of another place of the text is drafted from",
        MEMORIES,
    ),
    Fault(
        "drafters/medusa.py",
        "depth = min(draft.room_under(ROOT), num_heads)",
        "depth = draft.room_under(ROOT)",
        "a draft is longer than there are heads",
        MEMORIES,
    ),
    Fault(
        "drafters/draft_model.py",
        (
            "return DraftModel(model, how, tree=config.shape, selection=siblings(config), "
            "name=config.method)"
        ),
        'return DraftModel(model, how, tree=config.shape, selection="iid", name=config.method)',
        "the siblings asked for are not those drawn",
        MEMORIES,
    ),
    Fault(
        "drafters/draft_model.py",
        "other._session = self._session.fork()",
        "other._session = self._session",
        "a fork reads with the session it was forked from",
        FORKS,
    ),
    Fault(
        "drafters/ngram.py",
        "{ngram: list(places) for ngram, places in self._after.items()}",
        "dict(self._after)",
        "a fork enters its text into the other's index",
        FORKS,
    ),
    Fault(
        "drafters/other_tokenizer.py",
        "self._session.fork(), dict(self._accepted)",
        "self._session.fork(), self._accepted",
        "forks count their routes together",
        FORKS,
    ),
    Fault(
        "drafters/stores/automaton.py",
        "list(self.count), list(self.latest)",
        "list(self.count), self.latest",
        "forks of an automaton share where a stretch last ended",
        FORKS,
    ),
    Fault(
        "drafters/auto.py",
        "{name: session.fork() for name, session in self._sessions.items()}",
        "dict(self._sessions)",
        "a fork of several drafters' session shares the members' states",
        FORKS,
    ),
)
