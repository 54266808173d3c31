"""The arms of the comparison: which engine, with which settings, against which plain arm."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Arm:
    """own: the name of the plain arm of the same engine and precision; its own name if plain."""

    name: str
    kind: str
    own: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str = ""


SUFFIX = {"method": "suffix"}
NGRAM = {"method": "ngram", "num_speculative_tokens": 10}
OURS = {"suffix": SUFFIX, "auto": {"method": "auto", "drafters": ["suffix", "eagle3"]}}
PRECISIONS = {"bf16": {"dtype": "bfloat16"}, "int8": {"dtype": "bfloat16", "quantization": "int8"}}


def arms_of(args: Namespace, here: str) -> list[Arm]:
    """Every arm whose interpreter and model were given. here: the interpreter of this package."""
    found = _transformers(args, here) + _ours(args, here)
    if args.genai:
        found += _genai(args)
    if args.vllm:
        found += _vllm(args)
    if args.llama:
        found += _llama(args)
    return [arm for arm in found if not args.only or arm.name in args.only]


def _arm(engine: str, way: str, kind: str, python: str, options: dict[str, Any]) -> Arm:
    return Arm(f"{engine} {way}", kind, f"{engine} plain", options, python)


def _transformers(args: Namespace, here: str) -> list[Arm]:
    ways: dict[str, dict[str, Any]] = {"plain": {}, "lookup 10": {"lookup": 10}}
    if args.assistant:
        ways["assisted"] = {"assistant": args.assistant}
        ways["assisted 4"] = {"assistant": args.assistant, "constant": 4}
    common = {"model": args.model, "threads": args.threads, "dtype": "bfloat16"}
    return [
        _arm("transformers bf16", way, "transformers", here, common | own)
        for way, own in ways.items()
    ]


def _ours(args: Namespace, here: str) -> list[Arm]:
    found = []
    common = {"model": args.name or args.model, "threads": args.threads}
    for engine, precision in (("torch", "bf16"), ("openvino", "bf16"), ("openvino", "int8")):
        settings = common | {"engine": engine} | PRECISIONS[precision]
        for way, config in ({"plain": None} | OURS | _pair(args)).items():
            name = f"draftproof {engine} {precision}"
            found.append(_arm(name, way, "draftproof", here, settings | {"speculative": config}))
    return found


def _pair(args: Namespace) -> dict[str, Any]:
    """The ways that need a draft model."""
    if not args.assistant:
        return {}
    draft = {"model": args.draft_name or args.assistant, "num_speculative_tokens": 4}
    return {
        "draft model": {"method": "draft_model"} | draft,
        "draft model int4": {"method": "draft_model", "quantization": "int4"} | draft,
    }


def _genai(args: Namespace) -> list[Arm]:
    found = []
    for weights in ("fp16", "int8"):
        common = {"model": f"{args.genai_model}-{weights}", "threads": args.threads}
        common["eos"] = args.eos
        for way, own in {
            "plain": {},
            "lookup 5": {"lookup": 5},
            "lookup 10": {"lookup": 10},
        }.items():
            name = f"OpenVINO GenAI {weights}"
            found.append(_arm(name, way, "genai", args.genai, common | own))
    return found


def _vllm(args: Namespace) -> list[Arm]:
    ways = {
        "plain": None,
        "ngram": {"method": "ngram", "num_speculative_tokens": 10, "prompt_lookup_max": 3},
        "suffix": {"method": "suffix", "num_speculative_tokens": 16},
    }
    return [
        _arm("vLLM bf16", way, "vllm", args.vllm, {"model": args.model, "speculative": config})
        for way, config in ways.items()
    ]


def _llama(args: Namespace) -> list[Arm]:
    common = {"model": args.gguf, "threads": args.threads, "eos": [args.eos]}
    return [
        _arm("llama.cpp", way, "llama", args.llama, common | own)
        for way, own in {"plain": {}, "lookup 10": {"lookup": 10}}.items()
    ]
