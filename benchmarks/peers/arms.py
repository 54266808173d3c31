"""The arms of the comparison: which engine, with which settings, against which plain arm."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arm:
    """own: the name of the plain arm of the same engine and precision; its own name if plain.
    options: of the process, which arms with the same share; way: of its texts."""

    name: str
    kind: str
    own: str
    python: str
    options: dict[str, Any]
    way: dict[str, Any]

    @property
    def process(self) -> str:
        return json.dumps([self.python, self.kind, self.options])


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


def _arm(
    engine: str, name: str, kind: str, python: str, options: dict[str, Any], way: dict[str, Any]
) -> Arm:
    return Arm(f"{engine} {name}", kind, f"{engine} plain", python, options, way)


def _transformers(args: Namespace, here: str) -> list[Arm]:
    ways: dict[str, dict[str, Any]] = {"plain": {}, "lookup 10": {"lookup": 10}}
    if args.assistant:
        ways["assisted"] = {"assistant": args.assistant}
        ways["assisted 4"] = {"assistant": args.assistant, "constant": 4}
    options = {"model": args.model, "threads": args.threads, "dtype": "bfloat16"}
    return [
        _arm("transformers bf16", name, "transformers", here, options, way)
        for name, way in ways.items()
    ]


def _ours(args: Namespace, here: str) -> list[Arm]:
    found = []
    common = {"model": args.name or args.model, "threads": args.threads}
    for engine, precision in (("torch", "bf16"), ("openvino", "bf16"), ("openvino", "int8")):
        options = common | {"engine": engine} | PRECISIONS[precision]
        for name, config in ({"plain": None} | OURS | _pair(args)).items():
            label = f"draftproof {engine} {precision}"
            way = {"speculative": config} if config else {}
            if engine == "openvino" or "int4" not in name:
                found.append(_arm(label, name, "draftproof", here, options, way))
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
    ways: dict[str, dict[str, Any]] = {"plain": {}, "lookup 5": {"lookup": 5}}
    ways["lookup 10"] = {"lookup": 10}
    found = []
    for weights in ("fp16", "int8"):
        options = {"model": f"{args.genai_model}-{weights}", "threads": args.threads}
        options["eos"] = args.eos
        for name, way in ways.items():
            found.append(_arm(f"OpenVINO GenAI {weights}", name, "genai", args.genai, options, way))
    return found


def _vllm(args: Namespace) -> list[Arm]:
    ways = {
        "plain": None,
        "ngram": {"method": "ngram", "num_speculative_tokens": 10, "prompt_lookup_max": 3},
        "suffix": {"method": "suffix", "num_speculative_tokens": 16},
    }
    return [
        _arm("vLLM bf16", name, "vllm", args.vllm, {"model": args.model, "speculative": way}, {})
        for name, way in ways.items()
    ]


def _llama(args: Namespace) -> list[Arm]:
    options = {"model": args.gguf, "threads": args.threads, "eos": [args.eos]}
    ways: dict[str, dict[str, Any]] = {"plain": {}, "lookup 10": {"lookup": 10}}
    return [
        _arm("llama.cpp", name, "llama", args.llama, options, way) for name, way in ways.items()
    ]
