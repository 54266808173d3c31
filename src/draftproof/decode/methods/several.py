"""The method that keeps several drafters and chooses between them.

`drafters` lists them: by the bare name of a method, whose keys then stand beside `drafters`, or as a mapping with keys of its
own, as in {"method": "auto", "drafters": ["suffix", {"method": "eagle3", "model": "my-head"}]}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftproof.decode.methods.method import Method, Option, Parts
from draftproof.decode.methods.models import DRAFT_SAMPLE_METHOD
from draftproof.decode.methods.texts import LOOKUP, SUFFIX
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig

OF_THE_WHOLE = ("rule", "rejection_sample_method", "adaptive", "auto_off", "costs", "num_speculative_tokens_per_batch_size")
"""Keys that say something about all drafters together."""


def _auto(config: SpeculativeConfig, parts: Parts) -> Drafter:
    from draftproof.drafters.auto import Auto

    made, limits = {}, {}
    for member, asked in zip(config.members, _listed(config), strict=True):
        if member.shape is not None and not member.shape.is_chain and not parts.target.supports_trees:
            raise UsageError(f"{parts.target.name} cannot read a tree in one pass: leave the tree of {member.method!r} out")
        own = Parts(parts.target, parts.draft if member.spec.model == "draft" else None, parts.tokenizer)
        made[member.method] = member.spec.make(member, own)
        if "num_speculative_tokens" in asked:
            limits[member.method] = member.num_speculative_tokens
    return Auto(made, limits)


def _listed(config: SpeculativeConfig) -> list[dict[str, Any]]:
    """The drafters asked for, each as a mapping with its own keys only. By default suffix matches and the draft model; without
    a model, suffix matches and prompt lookup."""
    usual = ("suffix", "ngram" if config.model is None else "draft_model")
    return [{"method": one} if isinstance(one, str) else dict(one) for one in config.option("drafters") or usual]


def _members(config: SpeculativeConfig) -> tuple[SpeculativeConfig, ...]:
    """The drafters' configurations, with what is said beside the list for those named by their bare names."""
    from draftproof.decode.methods import METHODS

    listed = _listed(config)
    names = ", ".join(one["method"] for one in listed)
    takers = [one for one in listed if METHODS[one["method"]].model is not None and "model" not in one]
    if config.model is not None and not takers:
        raise UsageError(f'"model" is read by a drafter that takes one and has none, and drafters names no such: {names}')
    if config.model is not None and len(takers) > 1:
        several = " and ".join(repr(one["method"]) for one in takers)
        raise UsageError(f'"model" could be of {several}: give each its own, as {{"method": "eagle3", "model": "..."}}')
    bare = [one for one in listed if one.keys() == {"method"}]
    for one in takers if config.model is not None else ():
        one["model"] = config.model
        if config.revision is not None:
            one["revision"] = config.revision
    for key in config.options.keys() - {DRAFTERS.name}:
        readers = [one for one in bare if any(option.name == key for option in METHODS[one["method"]].options)]
        if not readers:
            raise UsageError(f"speculative_config[{key!r}] is read by none of the drafters named without keys of their own")
        for one in readers:
            one[key] = config.options[key]
    return tuple(type(config).from_dict(one) for one in listed)


def _drafters(name: str, value: Any) -> tuple[str | dict[str, Any], ...]:
    """A check: a list of at least two different methods, each a name or a mapping with "method"."""
    from draftproof.decode.methods import METHODS

    allowed = sorted(METHODS.keys() - {"none", AUTO.name})
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise UsageError(f"{name} is {value!r}; allowed: a list of {', '.join(allowed)}, or of mappings with such a method")
    names = [one.get("method") if isinstance(one, Mapping) else one for one in value]
    for one in names:
        if one not in allowed:
            raise UsageError(f"{name} has {one!r}; allowed: {', '.join(allowed)}, or a mapping with such a method")
    if len(set(names)) < len(names):
        raise UsageError(f"{name} is {value!r}; it names a drafter twice")
    if len(names) < 2:
        raise UsageError(f"{name} is {value!r}; method {AUTO.name!r} chooses between at least two")
    for one in value:
        general = [key for key in OF_THE_WHOLE if isinstance(one, Mapping) and key in one]
        if general:
            raise UsageError(f"{name}: {general[0]!r} holds for all drafters together; give it beside {name!r}")
    return tuple(dict(one) if isinstance(one, Mapping) else one for one in value)


DRAFTERS = Option(
    "drafters", None, _drafters, "the drafters it chooses from: names, or mappings with keys of their own", vllm=False
)

AUTO = Method(
    "auto",
    "several drafters side by side, in each round the one that promises most",
    16,
    _auto,
    model="drafters",
    model_optional=True,
    options=(DRAFTERS, *LOOKUP, *SUFFIX, DRAFT_SAMPLE_METHOD),
    adapts=True,
    members=_members,
)
