"""The auditor's own copy of the target, which gives the law of every token of a text that came
back.

A text is read once, in pieces; its laws are made under the request's parameters, each with its own
history, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from draftproof.audit.black_box.marks import Mark, mark
from draftproof.audit.black_box.samples import Sample
from draftproof.core.chance import KeyedChance, Purpose, stream_key
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel, Session, Step, extend
from draftproof.models.vocabulary import align_logits

Vector = NDArray[np.float64]
PIECE = 32
"""Rows of logits that exist at once."""


class LocalCopy:
    """target: the model that the engine claims to sample from. draft: what it drafts with, known or
    guessed; None without a guess. seed: of the coins of randomised transforms."""

    def __init__(
        self,
        target: LanguageModel,
        params: SamplingParams,
        draft: LanguageModel | None = None,
        *,
        seed: int = 0,
    ) -> None:
        if params.temperature == 0:
            raise UsageError(
                "at temperature 0 every law is one token: a black box has nothing to "
                "test; use --greedy"
            )
        self._target, self._draft, self._params, self._seed = target, draft, params, seed

    @property
    def name(self) -> str:
        return self._target.name

    @property
    def vocab_size(self) -> int:
        return self._target.vocab_size

    def check(self, sample: Sample) -> None:
        """UsageError for a text that the target cannot have written, and for an empty one."""
        size = self._target.vocab_size
        outside = [token for token in (*sample.prompt, *sample.output) if not 0 <= token < size]
        if outside:
            raise UsageError(
                f"text {sample.number} holds token {outside[0]}, and {self._target.name} "
                f"has ids from 0 to {size - 1}: "
                "the engine runs another model, or has another tokenizer"
            )
        if not sample.output:
            raise UsageError(f"text {sample.number} is empty; ask for at least one token a text")
        limit = self._target.max_length
        if limit is not None and len(sample.prompt) + len(sample.output) > limit:
            raise UsageError(
                f"text {sample.number} is longer than the {limit} tokens that "
                f"{self._target.name} holds"
            )

    def marks(self, sample: Sample) -> Iterator[Mark]:
        """One a token of the text, in order."""
        self.check(sample)
        drafts = self._laws(self._draft, sample) if self._draft is not None else None
        coins = KeyedChance(stream_key(self._seed, sample.number, prompt=sample.prompt), 0)
        before: Vector | None = None
        for place, law in enumerate(self._laws(self._target, sample)):
            token = sample.output[place]
            yield mark(
                law,
                token,
                coins.uniform(Purpose.TARGET, place),
                context=hash((sample.prompt, sample.output[:place])),
                draft=None if drafts is None else next(drafts),
                before=law if before is None else before,
            )
            before = law

    def _laws(self, model: LanguageModel, sample: Sample) -> Iterator[Vector]:
        """The model's law of every token of the output [vocab of the target], float64."""
        pipeline = LawPipeline(
            self._params,
            num_prompt_tokens=len(sample.prompt),
            vocab_size=self._target.vocab_size,
            eos_token_ids=self._target.eos_token_ids,
        )
        session = model.open()
        try:
            for begin in range(0, len(sample.output), PIECE):
                end = min(begin + PIECE, len(sample.output))
                for place, row in zip(
                    range(begin, end), self._rows(session, sample, begin, end), strict=True
                ):
                    law = np.asarray(
                        pipeline.law(row, (*sample.prompt, *sample.output[:place])),
                        dtype=np.float64,
                    )
                    yield law / law.sum()
        finally:
            session.close()

    def _rows(self, session: Session, sample: Sample, begin: int, end: int) -> Array:
        """Logits [end - begin, vocab of the target], float64."""
        whole = (*sample.prompt, *sample.output)
        unread = whole[session.length : len(sample.prompt) + end - 1]
        rows = range(len(unread) - (end - begin), len(unread))
        logits = align_logits(
            extend(Step(session, unread, rows=rows)).logits, self._target.vocab_size
        )
        return np.asarray(
            logits.double().cpu().numpy() if is_torch_array(logits) else logits, dtype=np.float64
        )
