"""One short check, when a model is wrapped, that a chain, a tree and a rollback through our cache equal its own forward."""

from __future__ import annotations

from typing import Any

import torch

from draftproof.errors import UnsupportedModelError
from draftproof.models.protocol import Step, extend

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-2}
"""Allowed root-mean-square difference of logits in units of their spread; rounding stays far below, a wrong mask far above."""
HALF_TOLERANCE = 0.2


def check_forward(model: Any) -> None:
    """Raise UnsupportedModelError when `model` (an HFModel) computes something else through its cache than without one.

    Reads two short sequences that share their start, once whole and without a cache, once as a chain that is partly rolled
    back, a tree of both ways on, and a token after the path kept. About three short passes."""
    if model.max_length is not None and model.max_length < 6:
        return
    ids = [(7919 * i + 11) % model.num_input_ids for i in range(8)]
    common, first, second = ids[:3], ids[3:6], [ids[6], ids[7], ids[7]]
    kind = type(model.module).__name__
    try:
        with torch.inference_mode():
            both = torch.tensor([common + first, common + second], device=model.device)
            whole = model.module(input_ids=both, use_cache=False).logits[..., : model.vocab_size]
        ours = _through_the_cache(model, common, first, second)
    except (UnsupportedModelError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise UnsupportedModelError(f"{kind} does not run with a cache of ours: {type(error).__name__}: {error}") from error
    expected = torch.stack([whole[0, 3], whole[1, 3], whole[0, 4], whole[1, 4], whole[0, 5]]).float()
    spread = expected.std(dim=-1)
    difference = (ours.float() - expected).square().mean(dim=-1).sqrt()
    if bool((difference > TOLERANCE.get(model.dtype, HALF_TOLERANCE) * spread).any()):
        share = float((difference / spread).max())
        raise UnsupportedModelError(
            f"{kind} gives other logits through our cache than by itself (a difference of {share:.2g} of their spread),"
            " so drafts could not be verified exactly"
        )


def _through_the_cache(model: Any, common: list[int], first: list[int], second: list[int]) -> torch.Tensor:
    """Logits [5, vocab] after first[0], second[0], first[1], second[1] (read as a tree) and first[2]."""
    session = model.open()
    try:
        extend(Step(session, [*common, second[2]], rows=[0]))
        session.rollback(len(common))
        tree = extend(Step(session, [first[0], second[0], first[1], second[1]], parents=[-1, -1, 0, 1])).logits
        session.keep([0, 2])
        return torch.cat([tree, extend(Step(session, [first[2]])).logits])
    finally:
        session.close()
