"""From what the caller has (modules, models, drafters, a config) to a target and a drafter that fit
each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from draftproof.core.tree import TreeShape
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.lengths import MOST
from draftproof.drafters.protocol import Drafter
from draftproof.drafters.registry import METHODS, Parts, drafting_methods
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel


def as_language_model(model: Any, tokenizer: Any = None, device: Any = None) -> LanguageModel:
    """A LanguageModel as it is; a transformers module wrapped, moved to `device` if one is
    given."""
    if isinstance(model, LanguageModel):
        return model
    module = model
    if not is_module(module):
        raise UsageError(
            f"a model is a transformers module or a LanguageModel, not {type(module).__name__}"
        )
    from draftproof.models.hf import HFModel

    return HFModel(module if device is None else module.to(device), tokenizer)


def is_module(module: Any) -> bool:
    """Whether a caller's object may be a transformers module."""
    return hasattr(module, "forward")


def make_drafter(
    draft: Any,
    config: Mapping[str, Any] | SpeculativeConfig | None,
    target: LanguageModel,
    tokenizer: Any,
    device: Any,
) -> tuple[SpeculativeConfig, Drafter | None]:
    """The completed config and its drafter; None for method "none". A class of drafter is made
    without arguments.

    UnsupportedModelError for a target that cannot verify drafts."""
    config, drafter = _made(draft, config, target, tokenizer, device)
    if drafter is None:
        return config, None
    if target.rows_mix is not None:
        from draftproof.models.support import check_target

        check_target(target)
    note = target.pass_note
    return (config if note is None else replace(config, notes=(*config.notes, note))), drafter


def _made(
    draft: Any,
    config: Mapping[str, Any] | SpeculativeConfig | None,
    target: LanguageModel,
    tokenizer: Any,
    device: Any,
) -> tuple[SpeculativeConfig, Drafter | None]:
    if isinstance(draft, type):
        draft = draft()
    if isinstance(draft, Drafter):
        return _own_drafter(draft, config, target)
    _check_can_draft(draft)
    if draft is not None and not isinstance(config, SpeculativeConfig):
        name = draft.name if isinstance(draft, LanguageModel) else "draft model"
        config = {"method": "draft_model", "model": name} | dict(config or {})
    if not isinstance(config, SpeculativeConfig):
        config = SpeculativeConfig.from_dict(config)
    wanted = config.draft_model
    if draft is not None and wanted is None:
        raise UsageError(
            f"a draft model was given, but method {config.method!r} takes none: leave "
            "one of them out"
        )
    if config.method == "none":
        _refuse_idle_keys(config)
        return config, None
    model = None
    if wanted is not None and draft is None:
        raise UsageError(
            f'method "{config.method}" needs a draft model: pass one, or use '
            "SpeculativeDecoder.from_pretrained"
        )
    if wanted is not None:
        across = bool(wanted.options.get("use_heterogeneous_vocab"))
        if across and not isinstance(draft, LanguageModel):
            raise UsageError(
                "use_heterogeneous_vocab needs the draft model with its own tokenizer: "
                "HFModel(module, tokenizer)"
            )
        model = as_language_model(draft, tokenizer, device)
        if not across:
            check_vocabularies(target, model)
        if target.device is not None:
            # the one place where drafts' logits change their device
            model.deliver_to(target.device)
    config = _chain_where_needed(config, target, *([] if model is None else [model]))
    return config, config.spec.make(config, Parts(target, model, tokenizer))


def _check_can_draft(draft: Any) -> None:
    """UsageError for what is no model, where a drafter was not given either."""
    if draft is not None and not isinstance(draft, LanguageModel) and not is_module(draft):
        raise UsageError(
            f"{type(draft).__name__} cannot draft; allowed: a transformers module, a "
            "LanguageModel, or a Drafter, "
            "which is a subclass of draftproof.drafters.protocol.Drafter (docs/add_a_drafter.md)"
        )


def _chain_where_needed(config: SpeculativeConfig, *models: LanguageModel) -> SpeculativeConfig:
    """The config with a chain of the same depth where one of the models cannot read a tree, and a
    note that says so."""
    unable = [model.name for model in models if not model.supports_trees]
    if config.shape is None or config.shape.is_chain or not unable:
        return config
    note = (
        f"{unable[0]} cannot read a tree in one pass: chains of {config.shape.depth} are "
        "drafted instead"
    )
    return replace(
        config, tree=TreeShape.chain(config.shape.depth).parents, notes=(*config.notes, note)
    )


def _refuse_idle_keys(config: SpeculativeConfig) -> None:
    """Without a method nothing would be drafted, and a length or a rule would be silently without
    effect."""
    idle = [
        key
        for key, given in (
            ("tree", config.tree is not None),
            ("num_speculative_tokens", config.num_speculative_tokens > 0),
            ("rule", bool(config.rule_name)),
            ("adaptive", config.adaptive is not None),
            ("auto_off", config.auto_off is not None),
            ("costs", config.costs is not None),
        )
        if given
    ]
    if idle:
        raise UsageError(
            f"speculative_config has {idle[0]!r} but no method, so nothing would be drafted; "
            f"methods: {', '.join(drafting_methods())}"
        )


def _own_drafter(
    draft: Drafter, config: Mapping[str, Any] | SpeculativeConfig | None, target: LanguageModel
) -> tuple[SpeculativeConfig, Drafter | None]:
    """A drafter of the caller's: the config may only say length and rule."""
    missing = [member for member in ("name", "selections", "memories") if member not in dir(draft)]
    if missing:
        raise UsageError(
            f"{type(draft).__name__} does not say its {', '.join(missing)} (see "
            "docs/add_a_drafter.md)"
        )
    settings = (
        config if isinstance(config, SpeculativeConfig) else SpeculativeConfig.from_dict(config)
    )
    if settings.method != "none":
        raise UsageError(contradiction(settings.method, draft))
    if settings.tree is not None:
        raise UsageError(
            f"tree: the drafter given ({draft.name!r}) decides its own shape; leave the tree out"
        )
    if draft.trees and not target.supports_trees:
        raise UsageError(
            f"{target.name} cannot read a tree in one pass, and the drafter given "
            f"({draft.name!r}) makes trees"
        )
    if isinstance(config, Mapping) and "num_speculative_tokens" in config:
        return settings, draft
    shape = draft.tree
    usual = METHODS["draft_model"].length if settings.length_rule == "fixed" else MOST
    length = settings.num_speculative_tokens or (usual if shape is None else shape.depth)
    return replace(settings, num_speculative_tokens=length), draft


def contradiction(method: str, drafter: Drafter) -> str:
    """What is wrong with a method beside a drafter of the caller's."""
    return (
        f"method {method!r} contradicts the drafter given ({drafter.name!r}); leave the method out"
    )


def check_vocabularies(target: LanguageModel, draft: LanguageModel) -> None:
    """Refuse a draft model whose ids mean other tokens than the target's."""
    from draftproof.models.vocabulary import check_same_tokens

    check_same_tokens(target.tokenizer, draft.tokenizer, target.vocab_size, draft.vocab_size)
