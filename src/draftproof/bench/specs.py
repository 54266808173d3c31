"""Arms from the words of the command line.

plain                      the target alone (always an arm; everything is compared with it)
ngram:8                    a method of draftproof with its draft length
draft_model:4:block        ... and a rule
draft_model:2,2,1          ... with a tree in place of a length, children per level
{"method": "ngram", ...}   a whole speculative_config
hf-plain, hf-assisted:4, hf-lookup:10      transformers' own generation
http://HOST:PORT           an OpenAI-compatible server
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.bench.arms import PLAIN, Arm, OurArm
from draftproof.bench.run import check_arm_names
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES
from draftproof.core.tree import tree_text
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.drafters.registry import METHODS, drafting_methods
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

HF_KINDS = {"hf-plain": "plain", "hf-assisted": "assisted", "hf-lookup": "lookup"}


@dataclass(frozen=True)
class Spec:
    """One arm as asked for. kind: "plain", "ours", "server" or one of HF_KINDS."""

    kind: str
    name: str
    config: Mapping[str, Any] | None = None
    length: int = 0
    url: str = ""

    def takes_draft(self, draft: str) -> bool:
        """Whether it drafts with the model that --draft names."""
        return self.kind == "hf-assisted" or (self.config or {}).get("model") == draft

    @property
    def needs_draft(self) -> bool:
        return self.kind == "hf-assisted" or _needs_model(str((self.config or {}).get("method")))


def parse_spec(text: str, draft: str | None) -> Spec:
    """One word of the command line. UsageError, before any model loads, for what is no arm."""
    if text == PLAIN:
        return Spec("plain", PLAIN)
    if text.startswith(("http://", "https://")):
        from draftproof.bench.server import address

        address(text)
        return Spec("server", text, url=text)
    if text.startswith("{"):
        return _from_json(text)
    word, *rest = text.split(":")
    tree = rest[0] if rest and "," in rest[0] else None
    length = _length(text, rest[0]) if rest and tree is None else None
    rule = rest[1] if len(rest) > 1 else None
    if len(rest) > 2 or (word not in HF_KINDS and word not in METHODS) or word == "none":
        allowed = ", ".join((PLAIN, *drafting_methods(), *HF_KINDS))
        raise UsageError(
            f"there is no arm {text!r}; an arm is one of {allowed} (with :LENGTH or "
            ":TREE), a JSON object or a URL"
        )
    if word in HF_KINDS:
        if rule or tree or (word == "hf-plain" and length is not None):
            raise UsageError(
                f"the arm {text!r} says too much; transformers' arms take a draft length "
                "at most, hf-plain nothing"
            )
        kept = (
            0
            if word == "hf-plain"
            else METHODS["draft_model" if word == "hf-assisted" else "ngram"].length
        )
        spec = Spec(word, text, length=kept if length is None else length)
    else:
        given = {
            "method": word,
            "num_speculative_tokens": length,
            "rule": rule,
            "tree": tree,
            "model": draft if METHODS[word].model is not None else None,
        }
        spec = _ours(
            {key: value for key, value in given.items() if value is not None}
            | _placeholder(word, draft)
        )
    if spec.needs_draft and draft is None:
        raise UsageError(
            f"the arm {text!r} needs a draft model: add --draft with its hub id or folder"
        )
    return spec


def _placeholder(word: str, draft: str | None) -> dict[str, str]:
    """A name that lets the rest of the config be checked before the missing draft model is
    complained about."""
    return {"model": "missing"} if _needs_model(word) and draft is None else {}


def _needs_model(method: str) -> bool:
    return (
        method in METHODS
        and METHODS[method].model is not None
        and not METHODS[method].model_optional
    )


def _length(text: str, word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise UsageError(
            f"the arm {text!r} has {word!r} for a draft length; allowed: a whole number from 1"
        )
    return int(word)


def _from_json(text: str) -> Spec:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the arm {text} is not JSON: {error}") from error
    return _ours(config)


def _ours(config: Mapping[str, Any]) -> Spec:
    checked = SpeculativeConfig.from_dict(config)
    if checked.method == "none":
        raise UsageError("an arm without a method is the arm plain: say plain")
    shape = "" if config.get("tree") is None else f" tree {tree_text(checked.tree)}"
    name = f"{checked.method}{shape or f' k={checked.num_speculative_tokens}'}"
    name += f" {RULES[checked.rule_name].name}" if checked.rule_name else ""
    name += "".join(f" {key}={value}" for key, value in checked.options.items())
    return Spec("ours", name, config=dict(config))


def told_apart(specs: Sequence[Spec]) -> list[Spec]:
    """The arms, those of one name with the keys in which their configurations differ: two draft
    models, or two length rules."""
    configs = [
        {} if spec.config is None else SpeculativeConfig.from_dict(spec.config).as_dict()
        for spec in specs
    ]
    found = []
    for spec, own in zip(specs, configs, strict=True):
        rivals = [
            config for other, config in zip(specs, configs, strict=True) if other.name == spec.name
        ]
        differing = [key for key in own if len({repr(config.get(key)) for config in rivals}) > 1]
        found.append(
            replace(
                spec,
                name=spec.name + "".join(f" {key}={_last_part(own[key])}" for key in differing),
            )
        )
    return found


def _last_part(value: Any) -> Any:
    """Of a path its last part."""
    return value.rsplit("/", 1)[-1] if isinstance(value, str) and value.count("/") > 1 else value


def check_specs(
    specs: Sequence[Spec], params: SamplingParams, rates: Sequence[float] | None
) -> None:
    """UsageError, before any model loads, for arms that could not run beside each other or under
    these parameters."""
    check_arm_names([spec.name for spec in specs if spec.kind != "plain"])
    _check_rates(specs, rates)
    for kind in {spec.kind for spec in specs}:
        if kind in HF_KINDS:
            from draftproof.bench.hf_arms import check_params

            check_params(params)
        elif kind == "server":
            from draftproof.bench.server import request_body

            request_body("", "", params)


def _check_rates(specs: Sequence[Spec], rates: Sequence[float] | None) -> None:
    if rates and any(spec.kind not in ("plain", "ours") for spec in specs):
        raise UsageError(
            "--synthetic-alpha replaces acceptance in draftproof's own arms only; leave "
            "the other arms out"
        )


def build_arms(
    specs: Sequence[Spec],
    target: LanguageModel,
    drafts: Callable[..., Any],
    draft: str | None,
    rates: Sequence[float] | None,
    greedy: bool,
) -> tuple[list[Arm], SpeculativeDecoder]:
    """The arms, plain first, and the decoder of the plain one. drafts: (name, revision,
    quantization) -> loaded draft model.

    rates: acceptance by chance for draftproof's own arms (UsageError when others are among
    them)."""
    _check_rates(specs, rates)
    tokenizer = target.tokenizer
    reference = SpeculativeDecoder(None, target, tokenizer)
    arms: list[Arm] = [OurArm(PLAIN, reference.plain)]
    for spec in specs:
        if spec.kind == "ours":
            arms.append(_our_arm(spec, target, tokenizer, drafts, rates, greedy))
        elif spec.kind == "server":
            from draftproof.bench.server import ServerArm

            arms.append(ServerArm(spec.url, tokenizer=tokenizer))
        elif spec.kind != "plain":
            from draftproof.bench.hf_arms import HFArm

            loaded = drafts(draft) if spec.kind == "hf-assisted" and draft is not None else None
            arms.append(HFArm(HF_KINDS[spec.kind], target, draft=loaded, length=spec.length))
    return arms, reference


def _our_arm(
    spec: Spec,
    target: Any,
    tokenizer: Any,
    drafts: Callable[..., Any],
    rates: Sequence[float] | None,
    greedy: bool,
) -> OurArm:
    config = SpeculativeConfig.from_dict(spec.config)
    wanted = config.draft_model
    draft = (
        None
        if wanted is None or wanted.model is None
        else drafts(wanted.model, wanted.revision, wanted.quantization)
    )
    decoder = SpeculativeDecoder(draft, target, tokenizer, speculative_config=config)
    if not rates:
        return OurArm(spec.name, decoder)
    from draftproof.bench.synthetic import make_synthetic

    shown = ",".join(f"{rate:g}" for rate in rates)
    return OurArm(
        f"{spec.name} (synthetic acceptance {shown}, lossy)", make_synthetic(decoder, rates, greedy)
    )
