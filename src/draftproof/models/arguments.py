"""What a module's forward is given beside the tokens, by what its signature takes and by the kinds
of its layers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from draftproof.models.cache import Pass
from draftproof.models.caches.kinds import LayerKind
from draftproof.models.layout import blank_mask


class ForwardArguments:
    """Made once for a module. takes_rows: whether its forward can leave out logits that nobody
    wants. takes_positions: whether it is told where tokens stand, or counts them by what the cache
    holds."""

    def __init__(self, module: Any, kinds: Sequence[LayerKind]) -> None:
        parameters = inspect.signature(module.forward).parameters
        self.takes_rows = "logits_to_keep" in parameters
        self._cache = "cache" if "cache" in parameters else "past_key_values"
        self.takes_positions = "position_ids" in parameters
        self._dtype: torch.dtype = module.dtype
        self._kinds = kinds
        self._attends = any(kind.attention != "none" for kind in kinds)

    def of(
        self, current: Pass, positions: torch.Tensor, rows: int | list[int], hidden: bool
    ) -> dict[str, Any]:
        """The keyword arguments of a forward over `current`."""
        mask = self._mask(current, positions)
        current.given = [
            one for one in (mask.values() if isinstance(mask, dict) else [mask]) if one is not None
        ]
        arguments: dict[str, Any] = {
            self._cache: current,
            "use_cache": True,
            "attention_mask": mask,
        }
        if self.takes_positions:
            arguments["position_ids"] = positions[None]
        if self.takes_rows:
            arguments["logits_to_keep"] = rows
        if hidden:
            arguments["output_hidden_states"] = True
        return arguments

    def _mask(
        self, current: Pass, positions: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """One 4-D mask; a dict by layer type where layers differ; None without attention, or where
        the model makes its own.

        Our own attention takes masks from the pass, and what the model is given only keeps it from
        making others; `eager` attention reads these."""
        if not self._attends:
            return None
        if len(current.segments) > 1:
            return torch.zeros(1, 1, 1, 1, device=positions.device)
        segment = current.segments[0]
        groups = {
            segment.cache.part_of[i]
            for i, kind in enumerate(self._kinds)
            if kind.attention != "none"
        }
        if len(groups) == 1:
            mask = segment.masks[groups.pop()]
            return None if mask is None else mask[None, None]
        masks: dict[str, torch.Tensor | None] = {}
        for index, kind in enumerate(self._kinds):
            mask = segment.mask(index) if kind.attention != "none" else None
            if mask is None and kind.attention != "none" and segment.layout.count > 1:
                mask = self._causal(segment.layout.count, positions.device)
            masks[kind.layer_type] = None if mask is None else mask[None, None]
        return masks

    def _causal(self, count: int, device: torch.device) -> torch.Tensor:
        """A first chain's mask, said in full."""
        return blank_mask(count, count, torch.finfo(self._dtype).min, self._dtype, device).triu_(1)
