"""The models a verb works with: names looked up first, then loaded, with a sign of life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.cli.progress import waiting
from draftproof.errors import UsageError
from draftproof.models.drafts import DraftModels

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig


def load_target(
    flags: Mapping[str, Any], configs: Iterable[SpeculativeConfig] = ()
) -> tuple[Any, DraftModels]:
    """The target with its tokenizer, and what loads draft models. configs: those whose draft models
    must be there: names are looked up before the model library is imported, which takes seconds,
    and before the target is loaded.

    UsageError: a name at which nothing is, or a target without a tokenizer."""
    from draftproof.models.engine import check_engine
    from draftproof.models.place import check_place
    from draftproof.models.pull import DEFAULT_MODEL

    name = flags["target"] or DEFAULT_MODEL
    check_place(name)
    configs = list(configs)
    engine, quantization = flags.get("engine", "torch"), flags.get("quantize")
    check_engine(engine, quantization)
    wanted = [config.draft_model for config in configs]
    for draft, revision in dict.fromkeys(
        (one.model, one.revision) for one in wanted if one is not None
    ):
        if draft is not None:
            check_place(draft, revision)
    for member in (one for config in configs for one in config.members):
        if (
            member.spec.model == "folder"
            and member.model is not None
            and not Path(member.model).expanduser().is_dir()
        ):
            raise UsageError(
                f"there is no folder {member.model}, in which method {member.method!r} "
                "would find its head"
            )
    with waiting(f"loading {name}"):
        import torch

        if flags["threads"] is not None:
            torch.set_num_threads(flags["threads"])
        from draftproof.models.engine import load_engine

        how: dict[str, Any] = {
            key: flags[key] for key in ("dtype", "device", "trust_remote_code")
        } | {"engine": engine}
        target = load_engine(name, quantization=quantization, **how)
    if target.tokenizer is None:
        raise UsageError(
            f"{target.name} has no tokenizer, so it cannot read a prompt of text; add "
            "one to its folder"
        )
    return target, DraftModels(waiting=waiting, **how)
