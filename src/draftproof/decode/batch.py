"""Many sequences at once: one round of each, with the passes they ask for joined.

A round is a generator that yields the passes it needs, so nothing about drafters, rules or stopping
changes here. All rounds begin together; passes of draft models go first, those of one model as one
`extend_many`, until every sequence waits for its target; then the target reads them all in one.
Sequences share nothing but these passes: lengths, parameters, seeds and acceptance are each one's
own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from draftproof.decode.failures import belongs_to_one_row
from draftproof.decode.samples import Sample
from draftproof.decode.schedule import KEY, BatchSchedule
from draftproof.models.protocol import LanguageModel, Output, Step


@dataclass
class _Turn:
    """One sample's round under way. `step` is the pass it waits for; `length` what its session had
    read before."""

    sample: Sample
    steps: Generator[Step, Output, None]
    step: Step | None = None
    length: int = 0

    def advance(self, output: Output | None) -> bool:
        """Go on to the next pass; False when the round is over or has failed."""
        try:
            self.step = self.steps.send(output)  # type: ignore[arg-type]
        except StopIteration:
            self.step = None
            return False
        except Exception as error:
            self.fail(error)
            return False
        self.length = self.step.session.length
        return True

    def fail(self, error: Exception) -> None:
        """End this sample if the error is its own; else raise it."""
        if not belongs_to_one_row(error):
            raise error
        self.steps.close()
        self.sample.fail(error)

    @property
    def reads_target(self) -> bool:
        return self.step is not None and self.step.session is self.sample.generation.session


@dataclass
class Batch:
    """Samples that run beside one another. draft_length: by batch size, or None for every sample's
    own. piece: most tokens of prompts that one round reads for all samples together before their
    first rounds; None reads every prompt at once."""

    draft_length: BatchSchedule | None = None
    samples: list[Sample] = field(default_factory=list)
    piece: int | None = None

    def round(self) -> list[Sample]:
        """One round of every sample, or a piece of its prompt. Those that have ended leave, their
        drafters closed, and are returned; their target sessions
        stay open. Whatever this raises is no sample's own error, and all of them are closed."""
        begun: list[_Turn] = []
        try:
            begun.extend(self._turns())
            self._run(begun)
        except BaseException:
            for turn in begun:
                turn.steps.close()
            self.close()
            raise
        return self._leave()

    def remove(self, sample: Sample) -> None:
        """Let a sample leave between two rounds, its drafter closed."""
        self.samples = [other for other in self.samples if other is not sample]
        sample.generation.close()

    def close(self) -> None:
        """Free every sample's drafter and forget the samples."""
        for sample in self.samples:
            sample.generation.close()
        self.samples = []

    def _turns(self) -> Iterator[_Turn]:
        """What each sample does in this round. Where the pieces of the prompts before it have used
        the round up, it waits."""
        size, left = len(self.samples), self.piece
        for sample in self.samples:
            if sample.ended():
                continue
            if self.piece is None or left is None or sample.unread <= self.piece:
                set_draft_length(sample, self.draft_length, size)
                yield _Turn(sample, sample.round())
            elif left > 0:
                yield _Turn(sample, sample.read(left))
                left -= min(left, sample.unread - 1)

    def _run(self, turns: Sequence[_Turn]) -> None:
        waiting = [turn for turn in turns if turn.advance(None)]
        while waiting:
            chosen = [turn for turn in waiting if not turn.reads_target] or waiting
            outputs = {id(turn): output for turn, output in zip(chosen, _pass(chosen), strict=True)}
            waiting = [
                turn
                for turn in waiting
                if id(turn) not in outputs or _answer(turn, outputs[id(turn)])
            ]

    def _leave(self) -> list[Sample]:
        left = [sample for sample in self.samples if sample.ended()]
        for sample in left:
            self.remove(sample)
        return left


def set_draft_length(sample: Sample, schedule: BatchSchedule | None, size: int) -> None:
    """Let the next round of `sample` draft what `schedule` says for a batch of `size`, and no more
    than its own length."""
    if schedule is None or sample.num_speculative_tokens == 0:
        return
    length = min(schedule(size), sample.num_speculative_tokens)
    sample.generation.num_speculative_tokens = length
    if length == 0:
        sample.notes[f"no drafts at batch size {size}, as {KEY} says"] = None


def _answer(turn: _Turn, output: Output | Exception) -> bool:
    if isinstance(output, Exception):
        turn.fail(output)
        return False
    return turn.advance(output)


def _pass(turns: Sequence[_Turn]) -> list[Output | Exception]:
    """The outputs of the passes that `turns` wait for, those of one model together, in the order of
    `turns`."""
    models = {
        id(turn.step.session.model): turn.step.session.model
        for turn in turns
        if turn.step is not None
    }
    outputs: dict[int, Output | Exception] = {}
    for key, model in models.items():
        group = [
            turn for turn in turns if turn.step is not None and id(turn.step.session.model) == key
        ]
        outputs.update(
            (id(turn), output) for turn, output in zip(group, _extend(model, group), strict=True)
        )
    return [outputs[id(turn)] for turn in turns]


def _extend(model: LanguageModel, turns: Sequence[_Turn]) -> list[Output | Exception]:
    """One pass over all; when it fails for want of memory or for a fault of one of them, each half
    by itself, down to the one that cannot be done."""
    try:
        return list(model.extend_many([turn.step for turn in turns if turn.step is not None]))
    except Exception as error:
        if not belongs_to_one_row(error):
            raise
        for turn in turns:
            if turn.step is not None and turn.step.session.length > turn.length:
                turn.step.session.rollback(turn.length)
        if len(turns) == 1:
            return [error]
    half = len(turns) // 2
    return [*_extend(model, turns[:half]), *_extend(model, turns[half:])]
