"""What a head can be trained for, row by row: draft logits [n, D] against the target's law on the
draft vocabulary.

The target's law is given as its logarithm [n, D], normalised over the target's whole vocabulary;
where the draft vocabulary is smaller its mass is below 1. Cross-entropy is the published loss of
Medusa and EAGLE; verification accepts a draft with probability sum_x min(target_law, draft_law),
which the other two are about (2211.17192; as a loss: DistillSpec, 2310.08461)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def soft_cross_entropy(draft_logits: Tensor, target_log_law: Tensor) -> Tensor:
    """- sum_x target_law log draft_law [n], the target's law renormalised on the draft
    vocabulary."""
    weights = torch.softmax(target_log_law, dim=-1)
    return -(weights * torch.log_softmax(draft_logits, dim=-1)).sum(-1)


def acceptance(draft_logits: Tensor, target_log_law: Tensor) -> Tensor:
    """sum_x min(target_law, draft_law) [n]: the chance that verification keeps one draft."""
    return torch.minimum(target_log_law.exp(), torch.softmax(draft_logits, dim=-1)).sum(-1)


def total_variation(draft_logits: Tensor, target_log_law: Tensor) -> Tensor:
    """1 - acceptance [n]."""
    return 1.0 - acceptance(draft_logits, target_log_law)


def negative_log_acceptance(draft_logits: Tensor, target_log_law: Tensor) -> Tensor:
    """- log acceptance [n]: like total variation, with a gradient that does not fade where nothing
    is accepted yet."""
    return -acceptance(draft_logits, target_log_law).clamp_min(1e-6).log()


def feature_distance(predicted: Tensor, true: Tensor) -> Tensor:
    """EAGLE's loss on features: smooth L1 [n], the mean over their width."""
    return functional.smooth_l1_loss(predicted, true, reduction="none").mean(-1)


LOSSES: dict[str, Loss] = {
    "cross_entropy": soft_cross_entropy,
    "total_variation": total_variation,
    "log_acceptance": negative_log_acceptance,
}
"""By the name of `--loss`."""
