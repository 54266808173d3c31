"""The steps of a round, each to be called by itself: `draft_tokens`, `verify_tokens`,
`accept_reject`, and the loop over them.

    from draftproof import walkthrough

    decoder = walkthrough.SpeculativeDecoder(draft_model, target_model, tokenizer, seed=0)
    tokens, probs = decoder.draft_tokens(input_ids, 4)
    target_probs, laws = decoder.verify_tokens(input_ids, tokens)
    emitted = decoder.accept_reject(tokens, probs, target_probs, laws, decoder.draft_distributions)
    text, stats = walkthrough.speculative_generate(decoder, "One potato,")

`draft_tokens` draws tokens from the draft model, one pass each; `verify_tokens` has the target read
all of them in one pass; `accept_reject` decides with the library's `token` rule. Both models keep
what they have read: each step reads only tokens that are new, and a rejected draft is forgotten by
rolling back. `draftproof.SpeculativeDecoder` does all this in one call; here every step can be
printed, changed and broken. docs/pitfalls.md lists the ways to break it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from draftproof.core.chance import Chance, Purpose
from draftproof.core.formulas import checked_length
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Draft
from draftproof.core.rules.token import Token
from draftproof.core.step import FunctionLaws, GeneratorChance
from draftproof.decode.build import as_language_model, check_vocabularies
from draftproof.decode.decoder import SpeculativeDecoder as WholeDecoder
from draftproof.decode.prompts import prompt_ids
from draftproof.errors import UsageError
from draftproof.models.place import check_place, is_here
from draftproof.models.protocol import Session, Step, extend
from draftproof.models.pull import DEFAULT_MODEL, pull
from draftproof.models.vocabulary import align_logits

__all__ = [
    "PAIRS",
    "SpeculativeDecoder",
    "default_pair",
    "speculative_generate",
    "standard_generate",
]

Law = np.ndarray

PAIRS = (
    ("gpt2", "gpt2-medium"),  # 124M drafts for 355M parameters
    ("Qwen/Qwen2.5-Coder-0.5B-Instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct"),
    ("qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"),
)
"""Draft model and target where none are named, the best known first; names as `--target` takes
them."""


class SpeculativeDecoder:
    """A draft model and a target with their reading so far.

    draft_model, target_model: transformers modules or LanguageModels over one vocabulary. device:
    where modules are moved; None leaves them. seed: of every draw; None takes a fresh one.
    VocabularyMismatchError: ids that mean different tokens."""

    def __init__(
        self,
        draft_model: Any,
        target_model: Any,
        tokenizer: Any,
        device: Any = None,
        *,
        seed: int | None = None,
    ):
        self.target, self.draft = (
            as_language_model(model, tokenizer, device) for model in (target_model, draft_model)
        )
        check_vocabularies(self.target, self.draft)
        self.tokenizer = tokenizer
        self.chance: Chance = GeneratorChance(np.random.default_rng(seed))
        self.draft_distributions: list[Law] = []
        self._target_session, self._draft_session = self.target.open(), self.draft.open()

    def draft_tokens(
        self, input_ids: Any, num_tokens: int, temperature: float = 1.0
    ) -> tuple[list[int], list[float]]:
        """Draw `num_tokens` after `input_ids` [1, L]: the tokens, and the probability each was
        drawn with.

        The whole laws, which the ratio and the residual need, stay in `draft_distributions`: those
        of the draw itself."""
        context, pipeline = ids_of(input_ids), self._pipeline(temperature)
        tokens: list[int] = []
        self.draft_distributions = []
        for node in range(num_tokens):
            law = self._laws(self._draft_session, pipeline, context, tokens, rows=1)[0]
            tokens.append(int(self.chance.draw(law, Purpose.DRAFT, node)))
            self.draft_distributions.append(law)
        return tokens, [
            float(law[token]) for law, token in zip(self.draft_distributions, tokens, strict=True)
        ]

    def verify_tokens(
        self, input_ids: Any, draft_tokens: Sequence[int], temperature: float = 1.0
    ) -> tuple[list[float], list[Law]]:
        """The target's probability of each drafted token, and its law at each position, all from
        one pass.

        There is one law more than there are drafts: the last one is what the bonus is drawn
        from."""
        context, pipeline = ids_of(input_ids), self._pipeline(temperature)
        rows = len(draft_tokens) + 1
        laws = list(self._laws(self._target_session, pipeline, context, list(draft_tokens), rows))
        return [float(law[token]) for law, token in zip(laws, draft_tokens, strict=False)], laws

    def accept_reject(
        self,
        draft_tokens: Sequence[int],
        draft_probs: Sequence[float],
        target_probs: Sequence[float],
        target_distributions: Sequence[Law],
        draft_distributions: Sequence[Law],
    ) -> list[int]:
        """The tokens of the round: the accepted drafts, then one more, a replacement after a
        rejection or else the bonus.

        So the number of accepted drafts is the length less one. UsageError: a probability that is
        not its law's, as when a law was computed anew, or no law for the bonus."""
        count = len(draft_tokens)
        if len(target_distributions) != count + 1 or len(draft_distributions) != count:
            raise UsageError(
                f"{count} drafts need {count} draft laws and {count + 1} target laws, "
                "the last one for the bonus; "
                f"got {len(draft_distributions)} and {len(target_distributions)}"
            )
        check_probabilities("draft", draft_tokens, draft_probs, draft_distributions)
        check_probabilities("target", draft_tokens, target_probs, target_distributions[:-1])
        laws = {node - 1: law for node, law in enumerate(draft_distributions)}
        draft = Draft(tuple(draft_tokens), tuple(range(-1, count - 1)), laws, "iid")
        target_laws = FunctionLaws(lambda path: target_distributions[len(path)], (), draft)
        verdict = Token().verify(draft, target_laws, self.chance)
        return [*draft.tokens[: len(verdict.path)], verdict.token]

    def room(self, context_length: int) -> int:
        """How many drafts the draft model has room for after so many tokens."""
        limit = self.draft.max_length
        return sys.maxsize if limit is None else max(0, limit - context_length + 1)

    def _pipeline(self, temperature: float) -> LawPipeline:
        """What turns logits into laws, for both models alike; temperature 0 is greedy."""
        params = SamplingParams(temperature=temperature)
        return LawPipeline(params, num_prompt_tokens=0, vocab_size=self.target.vocab_size)

    def _laws(
        self,
        session: Session,
        pipeline: LawPipeline,
        context: list[int],
        tokens: list[int],
        rows: int,
    ) -> Law:
        """[rows, vocab]: the laws after each of the last `rows` tokens of `context + tokens`,
        reading only what is new."""
        text = [*context, *tokens]
        known = next(
            (i for i, (a, b) in enumerate(zip(session.tokens, text, strict=False)) if a != b),
            len(text),
        )
        session.rollback(min(known, session.length, len(text) - rows))
        unread = text[session.length :]
        logits = extend(Step(session, unread, rows=range(len(unread) - rows, len(unread)))).logits
        paths = [tokens[: len(tokens) - rows + 1 + i] for i in range(rows)]
        laws = pipeline.laws(align_logits(logits, self.target.vocab_size), context, paths)
        pipeline.check()
        return laws.cpu().numpy() if isinstance(laws, torch.Tensor) else laws


def speculative_generate(
    decoder: SpeculativeDecoder,
    prompt: str,
    max_tokens: int = 50,
    num_draft: int = 4,
    temperature: float = 1.0,
) -> tuple[str, dict[str, int]]:
    """Prompt and continuation as one text, and the counts: rounds, drafts proposed, drafts
    accepted.

    Never more than `max_tokens` new tokens: a round drafts no more than it could emit, and the text
    ends at an end token even in the middle of a block. `accepted` counts drafts that are in the
    text, no replacement and no bonus."""
    for name, value in (("max_tokens", max_tokens), ("num_draft", num_draft)):
        checked_length(name, value)
    start = list(prompt_ids(prompt, decoder.tokenizer, decoder.target.vocab_size))
    most = decoder.target.max_length or sys.maxsize
    if len(start) >= most:
        raise UsageError(
            f"the prompt has {len(start)} tokens; {decoder.target.name} holds {most}, "
            "and one must be left to generate"
        )
    limit = min(max_tokens, most - len(start))
    generated: list[int] = []
    stats = {"rounds": 0, "drafted": 0, "accepted": 0}
    while len(generated) < limit and not set(generated[-1:]) & set(decoder.target.eos_token_ids):
        current_ids = torch.tensor([start + generated])
        wanted = min(num_draft, limit - len(generated) - 1, decoder.room(current_ids.shape[1]))
        drafts, draft_probs = decoder.draft_tokens(current_ids, wanted, temperature)
        target_probs, target_laws = decoder.verify_tokens(current_ids, drafts, temperature)
        tokens = decoder.accept_reject(
            drafts, draft_probs, target_probs, target_laws, decoder.draft_distributions
        )
        kept = up_to_end(tokens, decoder.target.eos_token_ids)
        generated += kept
        stats["rounds"] += 1
        stats["drafted"] += len(drafts)
        stats["accepted"] += min(len(kept), len(tokens) - 1)
    return decoder.tokenizer.decode(start + generated, skip_special_tokens=True), stats


def standard_generate(
    model: Any,
    tokenizer: Any,
    prompt: str,
    max_tokens: int = 50,
    temperature: float = 1.0,
    device: Any = None,
    *,
    seed: int | None = None,
) -> str:
    """The same text law from the target alone, one token a pass, for comparison."""
    decoder = WholeDecoder(None, model, tokenizer, device)
    return whole_text(decoder.plain, prompt, max_tokens, temperature, seed)[0]


def whole_text(
    decoder: Any, prompt: str, max_tokens: int, temperature: float, seed: int | None
) -> tuple[str, dict[str, int]]:
    """The library's own loop, plain or speculative, with results in the shape of
    `speculative_generate`."""
    result = decoder.generate(
        prompt, SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    )
    stats = result.stats
    text = decoder.tokenizer.decode(
        [*result.prompt_token_ids, *result.token_ids], skip_special_tokens=True
    )
    counts = {
        "rounds": stats.num_rounds,
        "drafted": stats.num_draft_tokens,
        "accepted": stats.num_accepted_tokens,
    }
    return text, counts


def ids_of(input_ids: Any) -> list[int]:
    """Token ids from a tensor on any device, or a list: [L] or [1, L]; UsageError for several
    texts."""
    ids = np.asarray(input_ids.tolist() if hasattr(input_ids, "tolist") else input_ids)
    if ids.ndim == 0 or ids.ndim > 2 or (ids.ndim == 2 and len(ids) != 1):
        raise UsageError(
            f"input_ids has shape {list(ids.shape)}; allowed: [L] or [1, L], one text at a time"
        )
    return [int(token) for token in ids.reshape(-1)]


def up_to_end(tokens: Sequence[int], end_tokens: Sequence[int]) -> list[int]:
    """The tokens up to and with the first end token."""
    end = next((i for i, token in enumerate(tokens) if token in end_tokens), len(tokens) - 1)
    return list(tokens[: end + 1])


def check_probabilities(
    whose: str, tokens: Sequence[int], probs: Sequence[float], laws: Sequence[Law]
) -> None:
    """UsageError unless every probability is what its law gives the token."""
    for place, (token, prob, law) in enumerate(zip(tokens, probs, laws, strict=True)):
        if abs(prob - float(law[token])) > 1e-6:
            raise UsageError(
                f"{whose} probability {place} is {prob:.6g}, but its law gives token "
                f"{token} {float(law[token]):.6g}; "
                "both must come from one and the same pass"
            )


def default_pair() -> tuple[str | None, str]:
    """Names of a draft model and a target: the first of `PAIRS` that this machine has, as folders,
    as GGUF files in the folder of models or downloaded from a hub; else the first that the hub has;
    else no draft model and the default target, pulled."""
    for pair in PAIRS:
        if all(map(is_here, pair)):
            return pair
    try:
        for name in PAIRS[0]:
            check_place(name)
        return PAIRS[0]
    except UsageError:
        pull()
        return None, DEFAULT_MODEL
