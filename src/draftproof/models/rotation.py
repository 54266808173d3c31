"""Rotary frequencies that change with the length of the text.

transformers chooses two kinds of frequencies by the highest position of a pass: `longrope` has one
set up to the positions of pretraining and another beyond, dynamic NTK a set for every length
beyond. Keys read before keep the rotation they were given.

Where transformers' `generate` reads the whole text again when it crosses the switch (`READ_AGAIN`),
the law after a text is that of a fresh forward over it, and `HFModel` gives that law: rows before
the switch are read on the near side, rows beyond it on the far side, each over a cache of its own.
Everywhere else what transformers generates beyond the switch depends on more than the text: on
where the prompt ended, and for dynamic NTK on what the module has read before. No draft can be
verified against that, so such models are held to the lengths at which nothing changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from draftproof.models.protocol import Output, Step

READ_AGAIN = {"phi3", "phimoe"}
"""Model types whose `prepare_inputs_for_generation` drops the cache at the switch."""

Sides = tuple[bool, ...]
"""The sides of the switch that a step is read on, in order: False the near one, True the far
one."""

NEAR: Sides = (False,)


def length_scaled(config: Any) -> tuple[str, int] | None:
    """The first kind of frequencies in `config` that changes with the length, and up to how many
    tokens it does not; None when there is none."""
    for rope in _ropes(config):
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        if kind == "longrope":
            return kind, int(
                rope.get("original_max_position_embeddings") or config.max_position_embeddings
            )
        if "dynamic" in kind:
            return kind, int(config.max_position_embeddings)
    return None


def scaled_positions(config: Any) -> int:
    """How many positions the scaled frequencies of `config` reach, as YaRN says it: those of
    pretraining times the factor."""
    reaches = [0]
    for rope in _ropes(config):
        original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if original and factor and rope.get("rope_type") != "longrope":
            reaches.append(int(original * factor))
    return max(reaches)


def _ropes(config: Any) -> list[Mapping[str, Any]]:
    """The rotary settings, one a layer type where layers differ."""
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [part for part in given.values() if isinstance(part, Mapping)]
    return nested or [given]


@dataclass(frozen=True)
class Switch:
    """length: tokens up to which a text is rotated by the first set of frequencies. layers: the
    rotary embeddings."""

    length: int
    layers: tuple[Any, ...]

    @classmethod
    def of(cls, module: Any, limit: int | None) -> Switch | None:
        """The switch of a module that is read on both sides; None where no text of `limit` tokens
        crosses one."""
        found = length_scaled(module.config)
        if (
            found is None
            or module.config.model_type not in READ_AGAIN
            or (limit is not None and limit <= found[1])
        ):
            return None
        return cls(
            found[1],
            tuple(
                part for part in module.modules() if getattr(part, "rope_type", None) == found[0]
            ),
        )

    def sides(self, step: Step, positions: Sequence[int]) -> Sides:
        """The sides on which rows of `step` are wanted; without any, the one that its last token is
        on."""
        wanted = range(len(positions)) if step.rows is None else step.rows
        return tuple(
            sorted(
                {positions[row] >= self.length for row in wanted} or {max(positions) >= self.length}
            )
        )

    def joined(self, step: Step, positions: Sequence[int], near: Output, far: Output) -> Output:
        """Of a step that was read on both sides, every row and state from its own."""
        beyond = [position >= self.length for position in positions]
        wanted = range(len(positions)) if step.rows is None else step.rows
        logits = torch.stack(
            [(far if beyond[row] else near).logits[place] for place, row in enumerate(wanted)]
        )
        which = torch.tensor(beyond, device=logits.device)[:, None]
        hidden = {
            layer: torch.where(which, far.hidden[layer], near.hidden[layer])
            for layer in step.hidden
        }
        return Output(logits, hidden)

    @contextmanager
    def turned(self, far: bool) -> Iterator[None]:
        """Let passes of this thread be rotated as a text on this side is, whatever their own
        highest position."""
        thread = threading.get_ident()

        def before(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if threading.get_ident() != thread:
                return None
            x, positions = (
                args[0] if args else kwargs["x"],
                args[1] if len(args) > 1 else kwargs["position_ids"],
            )
            if far:
                positions = torch.cat(
                    [positions, torch.full_like(positions[:, :1], self.length)], dim=1
                )
            else:  # a draft beyond the switch is read beside rows that do not see it
                positions = positions.clamp(max=self.length - 1)
            return (x, positions), {
                name: given for name, given in kwargs.items() if name not in ("x", "position_ids")
            }

        def after(layer: Any, args: Any, output: Any) -> Any:
            if threading.get_ident() != thread or not far:
                return None
            return tuple(part[:, :-1] for part in output)

        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
                hooks.callback(layer.register_forward_hook(after).remove)
            yield
