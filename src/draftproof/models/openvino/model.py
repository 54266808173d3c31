"""A transformers model as OpenVINO runs it, behind the `LanguageModel` protocol: chains, trees and
sequences side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from draftproof.core.tree import node_depths
from draftproof.models.caches.kinds import LayerKind
from draftproof.models.layout import Layout, is_chain
from draftproof.models.openvino.graph import Attention
from draftproof.models.openvino.paged import PAGE
from draftproof.models.openvino.pages import PagedCache, Pages
from draftproof.models.openvino.passes import Line, Passes
from draftproof.models.openvino.ways import ReadSequence, sequences_of
from draftproof.models.pieces import Continuing, pieces, step_of
from draftproof.models.protocol import Output, Step
from draftproof.models.session import CachingModel, HFSession
from draftproof.models.step_check import check_steps
from draftproof.models.support import context_limit


class OpenVINOModel(CachingModel):
    """graph: the file of a conversion, or an `openvino.Model`. layers: every layer's attention, by
    `graph.trace`. kinds: of the layers' pasts. load_module: gives the transformers module that was
    converted, for what reads weights: heads take its embedding and output layer, `bench` its
    `generate`. dtype: "float32", "bfloat16" or "float16", what is computed in.

    `quantization`: None, "int8" or "int4": what the weights were rounded to; the model is then that
    model and no other. `rows`: whether a row's logits are the same bits whatever is read beside it,
    as `rows.check_rows` found; None before. Other members as in `HFModel`. Passes of one model take
    turns, so `extend_many` may be called from several threads."""

    engine = "openvino"
    continuing = Continuing.FREELY
    supports_trees = True
    shares_passes = True

    def __init__(
        self,
        graph: Path | Any,
        layers: Sequence[Attention],
        kinds: Sequence[LayerKind],
        config: Any,
        load_module: Callable[[], Any],
        *,
        num_rows: int,
        num_input_ids: int,
        dtype: str = "float32",
        tokenizer: Any = None,
        generation_config: Any = None,
        eos_token_ids: tuple[int, ...] = (),
        name: str = "model",
        max_length: int | None = None,
        quantization: str | None = None,
    ) -> None:
        self.name, self.tokenizer, self.config = name, tokenizer, config
        self.layer_kinds = list(kinds)
        self.vocab_size = min(num_rows, len(tokenizer)) if tokenizer is not None else num_rows
        self.num_input_ids = num_input_ids
        self.max_length = max_length if max_length is not None else context_limit(config)
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.device = self.output_device = torch.device("cpu")
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.generation_config = generation_config
        self.eos_token_ids = eos_token_ids
        self.quantization = quantization
        self._load_module = load_module
        self._passes = Passes(graph, layers, dtype)
        self._pages = Pages(layers, dtype, self._passes.move_to)
        self._turn = threading.RLock()

    @property
    def least_tokens(self) -> int:
        """How many tokens a pass reads at least, those that are thrown away included."""
        return self._passes.least

    @least_tokens.setter
    def least_tokens(self, count: int) -> None:
        self._passes.least = count

    @cached_property
    def module(self) -> Any:
        """The transformers module, loaded when it is first asked for."""
        return self._load_module()

    def deliver_to(self, device: torch.device | str) -> None:
        """Hand out logits and hidden states on `device` from now on."""
        self.output_device = torch.device(device)

    def session_bytes(self, num_tokens: int) -> int:
        """What a session of `num_tokens` tokens takes at most: its pages, doubled as storage grows
        by doubling."""
        return 2 * self._pages.page_bytes * (-(-num_tokens // PAGE) + 1)

    def open(self) -> HFSession:
        return HFSession(self)

    def new_cache(self) -> PagedCache:
        return PagedCache(self._pages)

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens, all sessions in one pass but those whose step is long; see
        `LanguageModel.extend_many`.

        UsageError, before anything is read, when a step is wrong; when a pass fails, no session of
        the call has moved."""
        check_steps(self, steps)
        with self._turn:
            try:
                outputs = self._read(steps)
            except BaseException:
                for step in steps:
                    _session(step).recover()
                raise
            for step in steps:
                _session(step).note_read(step.tokens, step.parents)
        return outputs

    def _read(self, steps: Sequence[Step]) -> list[Output]:
        """The outputs of all steps: long ones piece by piece, the others together."""
        parts = [pieces(_layout(step), self.continuing) for step in steps]
        together = iter(
            self._pass([step for step, own in zip(steps, parts, strict=True) if len(own) == 1])
        )
        return [
            next(together) if len(own) == 1 else self._piecewise(step, own)
            for step, own in zip(steps, parts, strict=True)
        ]

    def _piecewise(self, step: Step, parts: Sequence[Any]) -> Output:
        """Read one step in several passes; the cache counts every piece as read until the next, and
        forgets them at the end."""
        cache = _session(step).cache
        logits: dict[int, torch.Tensor] = {}
        hidden: dict[int, list[torch.Tensor]] = {layer: [] for layer in step.hidden}
        for piece in parts:
            part = step_of(step, piece)
            output = self._pass([part])[0]
            logits.update(
                (piece.first + row, found)
                for row, found in zip(part.rows or (), output.logits, strict=True)
            )
            for layer, states in output.hidden.items():
                hidden[layer].append(states)
            if piece is not parts[-1]:
                cache.finish(cache.length + len(part.tokens))
        wanted = range(len(step.tokens)) if step.rows is None else step.rows
        rows = (
            torch.stack([logits[row] for row in wanted])
            if len(wanted)
            else torch.zeros(0, self.vocab_size)
        )
        return Output(rows, {layer: torch.cat(states) for layer, states in hidden.items()})

    def _pass(self, steps: Sequence[Step]) -> list[Output]:
        if not steps:
            return []
        lines: list[Line] = []
        places: list[dict[int, int]] = []
        total = 0
        for step in steps:
            place: dict[int, int] = {}
            for read in sequences_of(step, _session(step).cache, self._passes.least):
                for offset, node in enumerate(read.nodes):
                    place.setdefault(node, total + offset)
                lines.append(_line(step, read))
                total += len(lines[-1].tokens)
            places.append(place)
        rows = [
            place[row]
            for step, place in zip(steps, places, strict=True)
            for row in (range(len(step.tokens)) if step.rows is None else step.rows)
        ]
        wanted = sorted({layer for step in steps for layer in step.hidden})
        logits, hidden = self._passes.read(_filled(lines, self._passes.least), rows, wanted)
        return self._take_apart(steps, places, logits[:, : self.vocab_size], hidden)

    def _take_apart(
        self,
        steps: Sequence[Step],
        places: Sequence[dict[int, int]],
        logits: torch.Tensor,
        hidden: dict[int, torch.Tensor],
    ) -> list[Output]:
        outputs, first = [], 0
        for step, place in zip(steps, places, strict=True):
            last = first + len(step.tokens if step.rows is None else step.rows)
            nodes = [place[node] for node in range(len(step.tokens))]
            states = {layer: hidden[layer][nodes].to(self.output_device) for layer in step.hidden}
            outputs.append(Output(logits[first:last].to(self.output_device), states))
            first = last
        return outputs


def _session(step: Step) -> HFSession:
    assert isinstance(step.session, HFSession)
    return step.session


def _layout(step: Step) -> Layout:
    return Layout.of(_session(step).cache.length, len(step.tokens), step.parents, step.rows)


def _line(step: Step, read: ReadSequence) -> Line:
    """A sequence's part of the pass; one of a single token gets a second, which stands where
    nothing is kept."""
    start = _session(step).cache.length
    depths = range(len(step.tokens)) if is_chain(step.parents) else node_depths(step.parents or ())
    tokens = [int(step.tokens[node]) for node in read.nodes]
    positions = [start + depths[node] for node in read.nodes]
    if len(tokens) == 1:
        tokens, positions = tokens * 2, positions * 2
    return Line(tokens, positions, read.past, read.pages)


def _filled(lines: list[Line], least: int) -> list[Line]:
    """`lines` with at least `least` tokens together: the last one's last token again and again,
    where nothing is kept."""
    missing = least - sum(len(line.tokens) for line in lines)
    if missing <= 0:
        return lines
    last = lines[-1]
    tokens = [*last.tokens, *[last.tokens[-1]] * missing]
    positions = [*last.positions, *[last.positions[-1]] * missing]
    return [*lines[:-1], Line(tokens, positions, last.past, last.pages)]
