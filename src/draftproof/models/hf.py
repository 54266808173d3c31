"""A live decoder-only `transformers` model as a LanguageModel: a pass reads chains or trees, and
forgetting is an integer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from draftproof.core.generation_config import ids_of
from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.arguments import ForwardArguments
from draftproof.models.attention import attending
from draftproof.models.cache import KeyValueCache, Pass, Segment
from draftproof.models.caches.protocol import LayerCache
from draftproof.models.caches.window import Slack
from draftproof.models.layout import Layout
from draftproof.models.pieces import Continuing, Piece, pieces, step_of
from draftproof.models.protocol import Output, Step
from draftproof.models.quantised import why_modules_mix, why_rows_mix
from draftproof.models.rotation import NEAR, Sides, Switch
from draftproof.models.selfcheck import (
    check_forward,
    check_lengths,
    find_continuing,
    rows_seen_to_mix,
)
from draftproof.models.session import CachingModel, HFSession
from draftproof.models.step_check import check_steps
from draftproof.models.support import (
    check_config,
    check_module,
    context_limit,
    counts_places,
    limit_note,
    num_rows,
    unwrapped,
)


class HFModel(CachingModel):
    """A `transformers` causal language model behind the `LanguageModel` protocol.

    module: a decoder-only causal LM, or what torch.compile or PEFT made of one (the module inside
    is read, uncompiled and with its adapters); it is put into eval mode, its config stays as it is.
    tokenizer: its tokenizer, or None
    for ids in and ids out. max_length: hold sessions to fewer tokens than the config allows. check:
    compare a chain, a tree and a rollback on a few tokens with the model's own forward, and refuse
    the model when they differ (a few short passes). notes: what its checkpoint holds and is not
    used. UnsupportedModelError names what is in the way.

    `rows_mix` says how rows of one pass influence each other, None when they do not: such a model
    can draft and is refused as a target. `output_device`: where logits and hidden states are handed
    out, its own device until `deliver_to` says otherwise.

    Token ids that no tokenizer entry stands for (padding of the output layer) are never emitted:
    logits are cut to `vocab_size`. Passes of one model take turns: `extend_many` may be called from
    several threads.
    """

    def __init__(
        self,
        module: Any,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        max_length: int | None = None,
        check: bool = True,
        notes: Sequence[str] = (),
    ) -> None:
        module = unwrapped(module)
        config = module.config
        limit = context_limit(config)
        if max_length is not None and not 1 <= max_length <= (limit or max_length):
            reason = limit_note(config)
            allowed = f"this model allows 1 to {limit} tokens" + (f": {reason}" if reason else "")
            raise UsageError(
                f"max_length is {max_length}; "
                f"{allowed if limit else 'it is a number of tokens from 1'}"
            )
        self.layer_kinds = check_config(config, max_length)
        check_module(module)
        self.module = module.eval()
        self.tokenizer = tokenizer
        self.name: str = name or getattr(config, "_name_or_path", "") or type(module).__name__
        rows = num_rows(module.get_output_embeddings())
        self.vocab_size: int = min(rows, len(tokenizer)) if tokenizer is not None else rows
        self.num_input_ids: int = module.get_input_embeddings().weight.shape[0]
        self.max_length: int | None = max_length if max_length is not None else limit
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.device: torch.device = module.get_input_embeddings().weight.device
        self.dtype: torch.dtype = module.dtype
        self.generation_config = getattr(module, "generation_config", None)
        self.eos_token_ids: tuple[int, ...] = eos_token_ids(
            self.generation_config, config, tokenizer, self.vocab_size
        )
        self.limit_note: str | None = limit_note(config)
        self.notes: tuple[str, ...] = (*notes, *([self.limit_note] if self.limit_note else []))
        self.rows_mix: str | None = why_rows_mix(config) or why_modules_mix(module)
        self.output_device: torch.device = self.device
        self.slack = Slack()
        self._arguments = ForwardArguments(module, self.layer_kinds)
        has_states = any(kind.num_states for kind in self.layer_kinds)
        self.switch = Switch.of(module, self.max_length)
        self.has_positions = self._arguments.takes_positions and not counts_places(
            config, self.max_length
        )
        self.supports_trees: bool = not has_states and self.has_positions
        self.continuing = Continuing.FREELY
        self._configs = list(
            {
                id(part.config): part.config for part in module.modules() if hasattr(part, "config")
            }.values()
        )
        self._shares_passes = False
        self._entry_bytes: list[tuple[int, LayerCache]] | None = None
        self._turn = threading.RLock()
        if has_states:
            self.continuing = find_continuing(self)
        if check:
            self._check()

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> HFModel:
        """A model by hub id, folder, .gguf file or short name; options and errors as in
        `draftproof.models.load.load_model`."""
        from draftproof.models.load import load_model

        return load_model(name_or_path, **options)

    def _check(self) -> None:
        """Compare with the model's own forward; once more where a pass has shown that layers attend
        by code of their own."""
        configs = self._configs
        self.rows_mix = self.rows_mix or rows_seen_to_mix(self)
        try:
            check_forward(self)
        except UnsupportedModelError:
            if self._configs is configs:
                raise
            check_forward(self)
        check_lengths(self)

    def session_bytes(self, num_tokens: int) -> int:
        """What a session of `num_tokens` tokens takes at most, by what one that has read a token
        was found to take."""
        if self._entry_bytes is None:
            session = self.open()
            try:
                self.extend_many([Step(session, [0], rows=())])
                self._entry_bytes = session.cache.entry_bytes()
            finally:
                session.close()
        lengths = [num_tokens]
        if self.switch is not None and num_tokens > self.switch.length:
            lengths.append(self.switch.length)  # at the switch both sides have a cache
        return sum(
            size * part.entries_for(length)
            for size, part in self._entry_bytes
            for length in lengths
        )

    @property
    def pass_note(self) -> str | None:
        """What keeps drafts from making this model faster as a target, if anything does."""
        if self.continuing is not Continuing.TOKEN_BY_TOKEN:
            return None
        return (
            f"{self.name} reads one token a pass (its layers ignore their state in longer "
            "ones): drafts cannot make it faster"
        )

    @property
    def shares_passes(self) -> bool:
        """Whether several sessions are read in one pass, as the last pass of one session showed;
        see `extend_many`."""
        return self._shares_passes

    def deliver_to(self, device: torch.device | str) -> None:
        """Hand out logits and hidden states on `device` from now on: a draft model on its target's,
        wherever it runs."""
        self.output_device = torch.device(device)

    def take_turns_with(self, other: HFModel) -> None:
        """For a model made of another's layers: a pass of one changes how these attend while it
        runs, so the other waits."""
        self._turn = other._turn

    def open(self) -> HFSession:
        return HFSession(self)

    def new_cache(self) -> KeyValueCache:
        """What a session of this model keeps of its text."""
        return KeyValueCache(self.layer_kinds, self.max_length, self.slack)

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens; see `LanguageModel.extend_many`.

        Full attention, sliding windows and chunks share one pass between sessions, under
        transformers' `sdpa`; with `eager` attention, recurrent states, or layers that read another
        layer's keys, sessions are read one after another. What a rollback could not restore is read
        again first. UsageError, before anything is read, when a step is wrong; when a pass fails,
        no session of the call has moved."""
        check_steps(self, steps)
        sessions = [_session(step) for step in steps]
        places = [
            Layout.of(step.session.length, len(step.tokens), step.parents, step.rows).positions()
            for step in steps
        ]
        sides = [
            NEAR if self.switch is None else self.switch.sides(*each)
            for each in zip(steps, places, strict=True)
        ]
        with self._turn, torch.inference_mode():
            try:
                outputs = self._read_on(sides, steps, places)
            except BaseException:
                for session in sessions:
                    session.recover()
                raise
        for session, step, read_on in zip(sessions, steps, sides, strict=True):
            session.note_read(step.tokens, step.parents, read_on)
        return [_delivered(output, self.output_device) for output in outputs]

    def _read_on(
        self, sides: Sequence[Sides], steps: Sequence[Step], places: Sequence[Sequence[int]]
    ) -> list[Output]:
        """The outputs of all steps, read on one side of the switch after the other, each where rows
        of it are wanted."""
        outputs: dict[int, Output] = {}
        for far in sorted({far for where in sides for far in where}):
            members = [number for number, where in enumerate(sides) if far in where]
            with nullcontext() if self.switch is None else self.switch.turned(far):
                for number in members:
                    _session(steps[number]).turn(far)
                    self._read_again(_session(steps[number]))
                found = self._extend([steps[number] for number in members])
            for number, output in zip(members, found, strict=True):
                if number in outputs:
                    assert self.switch is not None
                    output = self.switch.joined(
                        steps[number], places[number], outputs[number], output
                    )
                outputs[number] = output
        return [outputs[number] for number in range(len(steps))]

    def _read_again(self, session: HFSession) -> None:
        """Bring the cache up to the tokens that count as read."""
        unread = session.unread
        if unread:
            self._extend_alone(Step(session, unread, rows=()))
            session.cache.finish(session.length)

    def _extend(self, steps: Sequence[Step]) -> list[Output]:
        """The outputs of all steps: those that fit one pass together, the others one after
        another."""
        alone = [not self._shares_passes or len(self._pieces(step)) > 1 for step in steps]
        together = [step for step, by_itself in zip(steps, alone, strict=True) if not by_itself]
        shared = iter(self._pass(together) if together else ())
        return [
            self._extend_alone(step) if by_itself else next(shared)
            for step, by_itself in zip(steps, alone, strict=True)
        ]

    def _layout(self, step: Step) -> Layout:
        return Layout.of(_session(step).cache.length, len(step.tokens), step.parents, step.rows)

    def _pieces(self, step: Step) -> list[Piece]:
        return pieces(self._layout(step), self.continuing)

    def _extend_alone(self, step: Step) -> Output:
        """Read one session's step in as many passes as it takes; the cache counts every piece but
        the last as read."""
        parts = self._pieces(step)
        if len(parts) == 1:
            return self._pass([step])[0]
        cache = _session(step).cache
        wanted = range(len(step.tokens)) if step.rows is None else step.rows
        logits: dict[int, torch.Tensor] = {}
        hidden: dict[int, list[torch.Tensor]] = {layer: [] for layer in step.hidden}
        for piece in parts:
            part = step_of(step, piece)
            output = self._pass([part])[0]
            cache.finish(cache.length + len(part.tokens))
            logits.update(
                (piece.first + row, found)
                for row, found in zip(part.rows or (), output.logits, strict=True)
            )
            for layer, states in output.hidden.items():
                hidden[layer].append(states)
        all_rows = torch.stack([logits[row] for row in wanted]) if len(wanted) else output.logits
        return Output(all_rows, {layer: torch.cat(states) for layer, states in hidden.items()})

    def _pass(self, steps: Sequence[Step]) -> list[Output]:
        """One forward over the tokens of `steps`, one after another in a single row; nothing counts
        as read yet."""
        current, positions = self._lay_out(steps)
        rows = self._rows(steps, current)
        tokens = torch.tensor(
            [[token for step in steps for token in step.tokens]], device=self.device
        )
        hidden = any(step.hidden for step in steps)
        with attending(current, self._configs):
            result = self.module(
                input_ids=tokens, **self._arguments.of(current, positions, rows, hidden)
            )
        if current.num_attended < current.num_updates:
            # layers that attend by code of their own know `sdpa` by its name only
            self._configs = []
        if len(steps) == 1:
            self._shares_passes = current.can_be_shared and self.has_positions
        logits = result.logits[0, :, : self.vocab_size]
        if not self._arguments.takes_rows and isinstance(rows, list):
            logits = logits[rows]
        return self._take_apart(steps, current, logits, result)

    def _lay_out(self, steps: Sequence[Step]) -> tuple[Pass, torch.Tensor]:
        """The pass over `steps` with every part's masks, and the absolute positions [n] of all
        tokens."""
        segments: list[Segment] = []
        positions: list[int] = []
        for step in steps:
            cache, layout, first = _session(step).cache, self._layout(step), len(positions)
            cache.prepare(layout)
            masks = cache.masks(self.dtype, self.device)
            segments.append(Segment(cache, layout, first, first + layout.count, masks))
            positions.extend(layout.positions())
        return Pass(segments), torch.tensor(positions, device=self.device)

    def _rows(self, steps: Sequence[Step], current: Pass) -> int | list[int]:
        """Which rows of the pass want logits, as `logits_to_keep` has it: 0 for all, or their
        indices. A list: a tensor would lie on the first layer's device, and in a model that is
        spread the states to be picked from lie on the last's."""
        if all(step.rows is None for step in steps):
            return 0
        rows: list[int] = []
        for step, segment in zip(steps, current.segments, strict=True):
            rows.extend(
                segment.first + row
                for row in (range(len(step.tokens)) if step.rows is None else step.rows)
            )
        return rows

    def _take_apart(
        self, steps: Sequence[Step], current: Pass, logits: torch.Tensor, result: Any
    ) -> list[Output]:
        outputs, first = [], 0
        for step, segment in zip(steps, current.segments, strict=True):
            last = first + len(step.tokens if step.rows is None else step.rows)
            hidden = {
                layer: result.hidden_states[layer][0, segment.first : segment.last]
                for layer in step.hidden
            }
            outputs.append(Output(logits[first:last], hidden))
            first = last
        return outputs


def _session(step: Step) -> HFSession:
    assert isinstance(step.session, HFSession)
    return step.session


def _delivered(output: Output, device: torch.device) -> Output:
    """The same numbers on `device`, in tensors that may be written to and trained on, which those
    of inference mode may not.

    The only place where what a model gives changes its device. The copy is of a few rows; leaving
    inference mode out instead would slow every pass by 3-4% (SmolLM2 on a CPU)."""

    def copied(given: torch.Tensor) -> torch.Tensor:
        return given.clone() if given.device == device else given.to(device)

    return Output(
        copied(output.logits), {layer: copied(states) for layer, states in output.hidden.items()}
    )


def eos_token_ids(
    generation_config: Any, config: Any, tokenizer: Any, vocab_size: int
) -> tuple[int, ...]:
    """The ids that end a text, () when there are none: the generation config's, which alone counts
    where there is one, as in transformers; else the config's, else the tokenizer's."""
    if generation_config is not None:
        return ids_of(generation_config.eos_token_id, vocab_size)
    given = (getattr(source, "eos_token_id", None) for source in (config, tokenizer))
    return ids_of(next((ids for ids in given if ids is not None), None), vocab_size)
