"""Faults of the decode loop: the round, its laws, stopping, batches, lengths."""

from __future__ import annotations

from mutants.fault import Fault

BATCH = ("decode/test_batch.py",)
ENGINE = ("decode/test_engine.py", "decode/test_batch.py", "decode/test_chat.py")
STOPPING = ("decode/test_text_edges.py", "decode/test_stopping.py")
LENGTHS = (
    "decode/test_length_controller.py",
    "decode/test_auto_off.py",
    "decode/test_live_lengths.py",
    "exact/test_lengths.py",
)

DECODE: tuple[Fault, ...] = (
    Fault(
        "decode/target_laws.py",
        "way = (ROOT, *verdict.path)",
        "way = (ROOT, *verdict.path[:-1])",
        "the last row of the accepted path is not checked",
        ("decode/test_target_laws.py",),
    ),
    Fault(
        "decode/target_laws.py",
        "way = (ROOT, *verdict.path)",
        "way = verdict.path",
        "the first row is not checked",
        ("decode/test_target_laws.py",),
    ),
    Fault(
        "decode/batch.py",
        "            if turn.step is not None and turn.step.session.length > turn.length:\n",
        "            if turn.step is None:\n",
        "a shared pass is done again by halves without rolling back",
        ("decode/test_halves.py",),
    ),
    Fault(
        "decode/batch.py",
        "return [*_extend(model, turns[:half]), *_extend(model, turns[half:])]",
        "return [*_extend(model, turns[half:]), *_extend(model, turns[:half])]",
        "the halves of a shared pass come back in the wrong order",
        ("decode/test_halves.py",),
    ),
    Fault(
        "decode/batch.py",
        "length = min(schedule(size), sample.num_speculative_tokens)",
        "length = schedule(size)",
        "a schedule drafts more than a row asked for",
        ("decode/test_batch.py", "plan/test_schedule.py"),
    ),
    Fault(
        "decode/batch.py",
        "chosen = [turn for turn in waiting if not turn.reads_target] or waiting",
        "chosen = waiting[:1]",
        "passes of a batch are not joined",
        BATCH,
    ),
    Fault(
        "decode/engine.py",
        "if len(self._running) >= self._max_num_seqs:",
        "if len(self._running) > self._max_num_seqs:",
        "a batch holds one row too many",
        BATCH,
    ),
    Fault(
        "decode/engine.py",
        (
            "            if not self._is_being_read(job, index) and not "
            "self._shares_coins(job, index):\n"
        ),
        "            if not self._shares_coins(job, index):\n",
        "samples of one prompt do not wait for the one that reads it",
        ENGINE,
    ),
    Fault(
        "decode/engine.py",
        (
            "            if not self._is_being_read(job, index) and not "
            "self._shares_coins(job, index):\n"
        ),
        "            if not self._is_being_read(job, index):\n",
        "two texts with the same random numbers run side by side, their draft lengths by the load",
        ("serve/test_company.py",),
    ),
    Fault(
        "decode/engine.py",
        "        return self.kept is None and not scores and not states\n",
        "        return self.kept is None and not scores\n",
        "a head goes on from a prompt whose hidden states it has not seen",
        ENGINE,
    ),
    Fault(
        "decode/engine.py",
        '            self._end_unopened(job, index, "abort")\n',
        "            self._open(job, index)\n",
        "a request that was cancelled while it waited is opened",
        ENGINE,
    ),
    Fault(
        "decode/engine.py",
        "            self._prefixes.trim(self._due)\n\n    def _statistics",
        "\n    def _statistics",
        "the session of a prompt that nobody waits for stays open",
        ENGINE,
    ),
    Fault(
        "decode/engine.py",
        "                self._batch.remove(text.sample)\n",
        "                pass\n",
        "an aborted text goes on in the batch",
        ENGINE,
    ),
    Fault(
        "decode/engine.py",
        "            if not isinstance(error, Exception) or not belongs_to_one_row(error):\n",
        "            if True:\n",
        "a drafter that finds no memory fails every text",
        ENGINE,
    ),
    Fault(
        "decode/prefixes.py",
        "if wanted in self._kept and not due.get(wanted):",
        "if wanted in self._kept:",
        "the first of several texts that wait takes the kept session away from the others",
        ENGINE,
    ),
    Fault(
        "decode/sequences.py",
        "    number = request.first_index + index\n",
        "    number = index\n",
        "equal rows inside transformers draw the same text",
        ("hf/test_generate.py",),
    ),
    Fault(
        "decode/prefixes.py",
        "return None if source is None or length == 0 else forked(source, length)",
        "return None if source is None or length == 0 else forked(source, length - 1)",
        "a forked session has read one token less",
        BATCH,
    ),
    Fault(
        "decode/schedule.py",
        "if first <= batch_size <= last)",
        "if first <= batch_size < last)",
        "a schedule's last size belongs to the next entry",
        ("decode/test_text_edges.py",),
    ),
    # the round
    Fault(
        "decode/generation.py",
        "return min(self.num_speculative_tokens, self.stopper.remaining - 1)",
        "return self.num_speculative_tokens",
        "drafts go on past the end of the text",
        ("drafters/test_contract.py",),
    ),
    Fault(
        "decode/generation.py",
        "if self.stopper.push(token) or node is None:",
        "if (self.stopper.push(token) and node is None) or node is None:",
        "an end inside an accepted block does not end the text",
        STOPPING,
    ),
    Fault(
        "decode/generation.py",
        "*(len(unread) + node for node in verdict.path[:num_accepted])",
        "*(len(unread) + node for node in range(num_accepted))",
        "the session keeps the first nodes of a tree, not the accepted ones",
        ("decode/test_trees.py",),
    ),
    Fault(
        "decode/generation.py",
        "            row = node + 1\n",
        "            row += 1\n",
        "log-probabilities of a tree are read from the wrong rows",
        ("decode/test_logprobs.py", "decode/test_trees.py"),
    ),
    Fault(
        "decode/generation.py",
        "return min(self.max_nodes, limit - len(self.context))",
        "return self.max_nodes",
        "a tree outgrows the target's context",
        ("drafters/test_contract.py",),
    ),
    Fault(
        "decode/generation.py",
        "parents = (*range(-1, first), *(first + 1 + parent for parent in draft.parents), *roots)",
        "parents = (*range(-1, first), *(first + parent for parent in draft.parents), *roots)",
        "the nodes of a tree hang one token too high",
        ("decode/test_trees.py",),
    ),
    Fault(
        "decode/generation.py",
        "hidden={layer: states[kept] for layer, states in output.hidden.items()},",
        "hidden={layer: states[: len(kept)] for layer, states in output.hidden.items()},",
        "a drafter is shown the states of rejected nodes",
        ("decode/test_observation.py",),
    ),
    Fault(
        "decode/generation.py",
        "top_ids=None if top is None else top[:num_rows],",
        "top_ids=None if top is None else top[1:num_rows],",
        "a drafter is shown the best tokens of the next row",
        ("drafters/test_recycling.py", "drafters/test_lookahead.py"),
    ),
    # stopping
    Fault(
        "decode/stopping.py",
        "return self.count + ahead >= self._min_tokens and",
        "return self.count + ahead > self._min_tokens and",
        "the text cannot end at min_tokens",
        STOPPING,
    ),
    Fault(
        "decode/stopping.py",
        "max(0, text_before - len(stop) + 1)",
        "text_before",
        "a stop string that spans two tokens is not seen",
        STOPPING,
    ),
    Fault(
        "decode/stopping.py",
        "end, start, stop = min(hits)",
        "end, start, stop = max(hits)",
        "of two stop strings the later one cuts the text",
        STOPPING,
    ),
    Fault(
        "decode/stopping.py",
        "if self.finish is None and self.count >= self._limit:",
        "if self.finish is None and self.count > self._limit:",
        "the text is a token longer than max_tokens",
        STOPPING,
    ),
    Fault(
        "decode/samples.py",
        "shown = token_ids[:-1] if stopper.hides_last else token_ids",
        "shown = token_ids",
        "the text of the token that stopped it is shown",
        STOPPING,
    ),
    Fault(
        "decode/samples.py",
        "longest = max((len(stop) - 1 for stop in stop_strings), default=0)",
        "longest = max((len(stop) - 2 for stop in stop_strings), default=0)",
        "all but the last letter of a stop string is streamed",
        STOPPING,
    ),
    Fault(
        "decode/logprobs.py",
        "rank = 1 + int(xp.sum(xp.astype(logprobs > own, xp.int64)))",
        "rank = int(xp.sum(xp.astype(logprobs >= own, xp.int64)))",
        "of two equally likely tokens none has the better rank",
        ("decode/test_text_edges.py",),
    ),
    Fault(
        "decode/statistics.py",
        "verify_seconds=sum(r.seconds.verify for r in rounds if not r.reads_prompt),",
        "verify_seconds=sum(r.seconds.verify for r in rounds),",
        "reading the prompt counts as verifying",
        ("decode/test_statistics.py",),
    ),
    # lengths
    Fault(
        "decode/length.py",
        "limit = self._plan.drafts - depth",
        "limit = self._plan.drafts - depth + 1",
        "a draft is one token longer than planned",
        LENGTHS,
        "the builder is told the planned depth too, and takes the smaller of the two",
    ),
    Fault(
        "decode/length.py",
        "for drafts in range(wanted, 0, -1):",
        "for drafts in range(wanted, 1, -1):",
        "a single draft is never affordable",
        LENGTHS,
    ),
    Fault(
        "decode/length.py",
        "self.read = record.start + min(record.num_accepted_tokens, max(_levels(record) - 1, 0))",
        "self.read = record.start",
        "a draft model is thought to have read none of the accepted drafts",
        LENGTHS,
    ),
)
