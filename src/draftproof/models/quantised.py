"""Weights that were quantised before: which schemes keep the rows of a pass independent of each other, and which do not.

Verification reads the drafts beside the token they follow. A scheme that takes one scale of activations from all rows of a pass
lets a draft change its neighbours' logits: good enough to draft with, no target for a method that promises exactness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WEIGHT_ONLY = {"gptq", "awq", "hqq", "aqlm", "vptq", "higgs", "eetq", "spqr", "mxfp4", "auto-round", "sinq", "gguf"}
PER_TOKEN = {"fp8", "fbgemm_fp8", "bitnet", "fp_quant"}
"""Schemes that quantise activations too, but every token's by a scale of its own."""

MIXING = {
    "bitsandbytes_8bit": "LLM.int8() splits off the columns in which any row of a pass has an outlier",
    "torch.ao": "dynamic int8 takes one scale of activations from all rows of a pass",
}
"""Scheme -> how its rows influence each other."""


def why_rows_mix(config: Any) -> str | None:
    """How rows of one pass influence each other under the `quantization_config` of `config`; None when they do not.

    A scheme that is not known here counts as mixing, because nothing has shown otherwise."""
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    settings = dict(given) if isinstance(given, Mapping) else dict(given.to_dict())
    method = str(settings.get("quant_method") or ("bitsandbytes" if "load_in_8bit" in settings else "")).lower()
    if "bitsandbytes" in method:
        return MIXING["bitsandbytes_8bit"] if settings.get("load_in_8bit") or method.endswith("8bit") else None
    if method in WEIGHT_ONLY | PER_TOKEN:
        return None
    if method == "compressed-tensors":
        return _compressed_tensors(settings)
    if method == "torchao":
        return _torchao(settings)
    if method == "quanto":
        return None if not settings.get("activations") else "quanto quantises activations by one scale for all rows"
    return f"whether rows influence each other under the scheme {method or 'without a name'!r} is not known here"


def _compressed_tensors(settings: Mapping[str, Any]) -> str | None:
    for name, group in (settings.get("config_groups") or {}).items():
        activations = (group or {}).get("input_activations")
        if not activations or not activations.get("dynamic"):
            continue  # weights alone, or a scale that was fixed beforehand
        strategy = str(activations.get("strategy") or "tensor")
        if strategy not in ("token", "group", "channel"):
            return f"{name} takes dynamic activation scales by {strategy}, so from all rows of a pass"
    return None


def _torchao(settings: Mapping[str, Any]) -> str | None:
    said = str(settings.get("quant_type")).lower()
    if "activation" not in said and "dynamic" not in said:
        return None
    if "pertensor" in said.replace("_", ""):
        return "torchao takes dynamic activation scales by tensor, so from all rows of a pass"
    per_token = "int8dynamicactivation" in said.replace("_", "") or "perrow" in said.replace("_", "")
    return None if per_token else f"whether torchao's {settings.get('quant_type')} scales rows apart is not known here"


def why_modules_mix(module: Any) -> str | None:
    """The same of a live module: torch's own dynamic quantisation replaces layers and says nothing in a config."""
    for path, kind in _kinds(module):
        if kind.startswith("torch.ao.nn.quantized.dynamic"):
            return f"{path} is {kind.rpartition('.')[2]} of torch.ao: {MIXING['torch.ao']}"
    return None


def _kinds(module: Any) -> Iterator[tuple[str, str]]:
    for path, part in module.named_modules():
        yield path, f"{type(part).__module__}.{type(part).__qualname__}"
