"""Which methods are possible with a target, and why the others are not; asked of the methods' own
list."""

from __future__ import annotations

from typing import Any

from draftproof.drafters.registry import METHODS, Method
from draftproof.errors import DraftproofError
from draftproof.models.protocol import LanguageModel


def methods_possible(
    target: LanguageModel, draft: Any = None, folder: str | None = None
) -> list[dict[str, Any]]:
    """One row for every method: name, summary, `possible` (None when that needs a folder nobody has
    named), `trees` and `why`.

    draft: a loaded draft model, an error met in loading it, or None. folder: where a drafter may
    lie that is no model."""
    return [_row(method, target, draft, folder) for method in METHODS.values()]


def _row(method: Method, target: LanguageModel, draft: Any, folder: str | None) -> dict[str, Any]:
    possible, why = _verdict(method, target, draft, folder)
    models = [target, draft] if method.model == "draft" else [target]
    can_branch = method.trees and all(
        isinstance(model, LanguageModel) and model.supports_trees for model in models
    )
    return {
        "method": method.name,
        "summary": method.summary,
        "possible": possible,
        "trees": bool(possible) and can_branch,
        "why": why
        or (_chains_only(models) if method.trees and possible and not can_branch else None),
    }


def _verdict(
    method: Method, target: LanguageModel, draft: Any, folder: str | None
) -> tuple[bool | None, str | None]:
    if method.name == "none":
        return True, None
    if target.rows_mix is not None:
        return False, f"the target's rows influence each other: {target.rows_mix}"
    if method.model == "folder":
        return _with_folder(method, target, folder)
    if method.model == "drafters":
        return True, None
    if method.model == "draft":
        return _with_draft(target, draft)
    if method.requires:
        return None, f"needs {' and '.join(map(repr, method.requires))} in speculative_config"
    return True, None


def _with_draft(target: LanguageModel, draft: Any) -> tuple[bool, str | None]:
    from draftproof.decode.build import check_vocabularies

    if draft is None:
        return False, "needs a draft model: name one with --draft"
    try:
        if isinstance(draft, DraftproofError):
            raise draft
        check_vocabularies(target, draft)
    except DraftproofError as error:
        return False, str(error)
    return True, None


def _with_folder(
    method: Method, target: LanguageModel, folder: str | None
) -> tuple[bool | None, str | None]:
    from draftproof.decode.build import make_drafter

    if folder is None and not method.model_optional:
        return None, _needs_folder(method)
    config = {"method": method.name} | ({} if folder is None else {"model": folder})
    try:
        make_drafter(None, config, target, target.tokenizer, None)
    except DraftproofError as error:
        return (None, _needs_folder(method)) if folder is None else (False, str(error))
    return (
        True,
        "with the head that comes with the package for this target" if folder is None else None,
    )


def _needs_folder(method: Method) -> str:
    return (
        f"needs the folder of its weights: name it with --draft, and --method {method.name} "
        "to use it"
    )


def _chains_only(models: list[Any]) -> str:
    unable = next(model.name for model in models if not model.supports_trees)
    return f"chains only: {unable} has layers that cannot read a tree in one pass"
