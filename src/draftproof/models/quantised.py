"""Weights that were quantised before: which schemes keep the rows of a pass independent of each
other, and which do not.

Verification reads the drafts beside the token they follow. A scheme that takes one scale of
activations from all rows of a pass lets a draft change its neighbours' logits: good enough to draft
with, no target for a method that promises exactness.

A scheme is known by what transformers keeps in `quantization_config`, as an object or as saved, or
by the layers and weights of a module that was quantised in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WEIGHT_ONLY = {
    *(
        "gptq",
        "awq",
        "hqq",
        "aqlm",
        "vptq",
        "higgs",
        "eetq",
        "spqr",
        "mxfp4",
        "sinq",
        "gguf",
        "metal",
    ),
    "gemma",  # activations too, by scales that the checkpoint brings
}
PER_TOKEN = {"fp8", "mxfp8", "fbgemm_fp8", "bitnet", "fp_quant"}
"""Schemes that quantise activations too, but every token's by a scale of its own."""

OUTLIERS = "LLM.int8() splits off the columns in which any row of a pass has an outlier"
MIXING = {
    "torch.ao": "dynamic int8 takes one scale of activations from all rows of a pass",
    "nvfp4": (
        "its kernel quantises activations in passes over several tokens, and not in passes over one"
    ),
}
"""Scheme -> how its rows influence each other."""

WITHIN_A_TOKEN = {"token", "group", "tensor_group", "channel"}
"""What a scale of activations may be taken over, in the words of compressed-tensors and Quark."""


def why_rows_mix(config: Any) -> str | None:
    """How rows of one pass influence each other under the `quantization_config` of `config`; None
    when they do not.

    A scheme that is not known here counts as mixing, because nothing has shown otherwise."""
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    settings = dict(given) if isinstance(given, Mapping) else dict(given.to_dict())
    method = _method(settings)
    if method in WEIGHT_ONLY | PER_TOKEN:
        return None
    if method in _BY_SETTINGS:
        return _BY_SETTINGS[method](settings)
    unknown = (
        f"whether rows influence each other under the scheme {method or 'without a name'!r} "
        "is not known here"
    )
    return MIXING.get(method, unknown)


def _method(settings: Mapping[str, Any]) -> str:
    """The scheme's name; an enum has it as its value."""
    said = settings.get("quant_method") or ("bitsandbytes" if "load_in_8bit" in settings else "")
    return str(getattr(said, "value", said)).lower()


def _bitsandbytes(settings: Mapping[str, Any]) -> str | None:
    return OUTLIERS if settings.get("load_in_8bit") or _method(settings).endswith("8bit") else None


def _compressed_tensors(settings: Mapping[str, Any]) -> str | None:
    inner = settings.get("quantization_config") or {}
    for name, group in (settings.get("config_groups") or inner.get("config_groups") or {}).items():
        activations = (group or {}).get("input_activations")
        if not activations or not activations.get("dynamic"):
            continue  # weights alone, or a scale that was fixed beforehand
        strategy = str(activations.get("strategy") or "tensor")
        if strategy not in WITHIN_A_TOKEN:
            return (
                f"{name} takes dynamic activation scales by {strategy}, so from all rows of a pass"
            )
    return None


def _quark(settings: Mapping[str, Any]) -> str | None:
    """Quark says for every kind of layer what it does to `input_tensors`."""
    for name, part in settings.items():
        part = part.to_dict() if hasattr(part, "to_dict") else part
        if not isinstance(part, Mapping):
            continue
        if name == "input_tensors" and part.get("is_dynamic"):
            scheme = str(getattr(part.get("qscheme"), "value", part.get("qscheme")))
            if scheme.removeprefix("per_") not in WITHIN_A_TOKEN:
                return (
                    "Quark takes dynamic activation scales by "
                    f"{scheme.removeprefix('per_')}, so from all rows of a pass"
                )
        elif found := _quark(part):
            return found
    return None


def _torchao(settings: Mapping[str, Any]) -> str | None:
    said = str(settings.get("quant_type")).lower().replace("_", "")
    if "staticactivation" in said or ("activation" not in said and "dynamic" not in said):
        return None
    if "pertensor" in said:
        return "torchao takes dynamic activation scales by tensor, so from all rows of a pass"
    apart = ("int8dynamicactivation", "float8dynamicactivationint4", "perrow", "pertoken")
    known = any(word in said for word in apart)
    return (
        None
        if known
        else f"whether torchao's {settings.get('quant_type')} scales rows apart is not known here"
    )


def _quanto(settings: Mapping[str, Any]) -> str | None:
    return (
        None
        if not settings.get("activations")
        else "quanto quantises activations by one scale for all rows"
    )


def _auto_round(settings: Mapping[str, Any]) -> str | None:
    fixed = int(settings.get("act_bits") or 16) >= 16 or not settings.get("act_dynamic", True)
    by_tensor = settings.get("act_group_size") == 0
    return (
        "auto-round takes dynamic activation scales by tensor" if by_tensor and not fixed else None
    )


def _four_over_six(settings: Mapping[str, Any]) -> str | None:
    """NVFP4 has a scale for the whole tensor above those of its blocks, MXFP4 has not."""
    kind = str(settings.get("activation_dtype") or settings.get("dtype") or "nvfp4").lower()
    return (
        None
        if kind.startswith("mxfp4")
        else f"fouroversix scales {kind} activations by all rows of a pass"
    )


_BY_SETTINGS = {
    "bitsandbytes": _bitsandbytes,
    "bitsandbytes_4bit": _bitsandbytes,
    "bitsandbytes_8bit": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "quark": _quark,
    "torchao": _torchao,
    "quanto": _quanto,
    "auto-round": _auto_round,
    "fouroversix": _four_over_six,
}
"""Schemes of which it depends on the settings."""


def why_modules_mix(module: Any) -> str | None:
    """The same of a live module that was quantised in place and says nothing in a config."""
    for path, part in module.named_modules():
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        if kind.startswith("torch.ao.nn.quantized.dynamic"):
            return f"{path} is {kind.rpartition('.')[2]} of torch.ao: {MIXING['torch.ao']}"
        if kind.startswith("bitsandbytes") and kind.endswith("Linear8bitLt"):
            return f"{path} is Linear8bitLt of bitsandbytes: {OUTLIERS}"
        if (
            kind.startswith("optimum.quanto")
            and getattr(part, "activation_qtype", None) is not None
        ):
            return (
                f"{path} is {kind.rpartition('.')[2]} with quantised activations: "
                f"{_quanto({'activations': True})}"
            )
    for path, activations in _scaled_activations(module):
        if found := _torchao({"quant_type": f"dynamic activation {activations}"}):
            return f"{path}: {found}"
    return None


def _scaled_activations(module: Any) -> Iterator[tuple[str, str]]:
    """How weights of torchao's tensor classes quantise what they are multiplied by, where they
    do."""
    for path, weight in module.named_parameters():
        activations = getattr(weight, "act_quant_kwargs", None)
        if activations is not None:
            yield path, f"{type(activations).__name__} {activations}"
