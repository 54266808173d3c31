"""What is wrong with a step, in one sentence, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.errors import UsageError
from draftproof.models.layout import check_parents, is_chain
from draftproof.models.protocol import Step
from draftproof.models.session import HFSession


def check_steps(model: Any, steps: Sequence[Step]) -> None:
    """UsageError when one of the steps of a pass of `model` is wrong, or when two are of one
    session."""
    for step in steps:
        check_step(model, step)
    if len({id(step.session) for step in steps}) < len(steps):
        raise UsageError("a session may take part only once in a pass")


def check_step(model: Any, step: Step) -> None:
    own = isinstance(step.session, HFSession) and step.session.model is model
    if not own:
        raise UsageError(f"the session was not opened by this model ({model.name})")
    step.session.require_ready()  # type: ignore[attr-defined]
    count, length = len(step.tokens), step.session.length
    if count == 0:
        raise UsageError("a pass needs at least one token")
    low, high = min(step.tokens), max(step.tokens)
    if low < 0 or high >= model.num_input_ids:
        raise UsageError(
            f"token ids {low}..{high} do not fit {model.name}, which reads "
            f"0..{model.num_input_ids - 1}"
        )
    if model.max_length is not None and length + count > model.max_length:
        raise UsageError(
            f"the context of {model.name} holds {model.max_length} tokens: {count} more "
            f"than {length} do not fit"
        )
    if step.parents is not None:
        check_parents(step.parents, count)
        if not model.supports_trees and not is_chain(step.parents):
            recurrent = any(kind.num_states for kind in model.layer_kinds)
            why = (
                "has recurrent layers, which read"
                if recurrent
                else "takes the place of a token for its position: it reads"
            )
            raise UsageError(f"{model.name} {why} chains only: parents must follow each other")
    if step.rows is not None and any(not 0 <= row < count for row in step.rows):
        raise UsageError(f"rows {list(step.rows)} must lie in 0..{count - 1}")
    if any(not 0 <= layer <= model.num_layers for layer in step.hidden):
        raise UsageError(
            f"hidden layers {list(step.hidden)} must lie in 0..{model.num_layers} (0: "
            "the embeddings)"
        )
