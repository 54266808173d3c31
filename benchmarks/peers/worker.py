"""One engine in a process of its own: texts are asked for on standard input, a JSON line each.

    PYTHON benchmarks/peers/worker.py KIND '{"model": FOLDER, "threads": 2, ...}'

PYTHON is one that has the engine; nothing of this package is needed for others' engines. KIND, and
what a line's "way" may hold ({}: plain decoding):

- transformers: "dtype"; way: "lookup" (drafts a round), or "assistant" (folder of a draft model)
  and "constant" (drafts a round)
- genai: OpenVINO GenAI over a folder of `convert.py`, "eos"; way: "lookup", "ngram" (longest match)
- vllm: "speculative", its config, for all lines
- llama: llama.cpp by llama-cpp-python over a .gguf file, "eos"; way: "lookup"
- draftproof: "engine", "dtype", "quantization"; way: "speculative", its config

The first line answered is {"ready": seconds, "version": ...}; then every line {"ids",
"max_tokens", "temperature", "seed", "way"} is answered by {"token_ids", "seconds"}, the prompt's
pass included, or by {"error"}. Texts end where the model ends them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any

Asked = dict[str, Any]
Written = Callable[[Asked], "list[int]"]


def main() -> None:
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an engine prints goes to standard error
    begin = perf_counter()
    write, about = KINDS[kind](options)
    print(json.dumps({"ready": round(perf_counter() - begin, 1), "version": about}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        begin = perf_counter()
        try:
            found = {"token_ids": write(asked), "seconds": perf_counter() - begin}
        except Exception as error:  # an engine may raise anything; the other ways go on
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), file=answers)


def transformers(options: dict[str, Any]) -> tuple[Written, str]:
    """`generate`, plain, by prompt lookup or assisted."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options["threads"])
    kind = getattr(torch, options.get("dtype", "bfloat16"))
    model = AutoModelForCausalLM.from_pretrained(options["model"], dtype=kind).eval()
    drafts: dict[str, Any] = {}

    def settings(way: dict[str, Any]) -> dict[str, Any]:
        if way.get("lookup"):
            return {"prompt_lookup_num_tokens": way["lookup"]}
        if not way.get("assistant"):
            return {}
        name = json.dumps(way)
        if name not in drafts:
            drafts[name] = AutoModelForCausalLM.from_pretrained(way["assistant"], dtype=kind).eval()
            if way.get("constant"):
                config = drafts[name].generation_config
                config.num_assistant_tokens = way["constant"]
                config.num_assistant_tokens_schedule = "constant"
                config.assistant_confidence_threshold = 0
        return {"assistant_model": drafts[name]}

    def write(asked: Asked) -> list[int]:
        torch.manual_seed(asked["seed"])
        sampled = asked["temperature"] > 0
        # top_k is 50 unless switched off
        law = {"temperature": asked["temperature"], "top_k": 0, "top_p": 1.0} if sampled else {}
        ids = torch.tensor([asked["ids"]])
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=asked["max_tokens"],
                do_sample=sampled,
                pad_token_id=0,
                **law,
                **settings(asked["way"]),
            )
        return found[0, ids.shape[1] :].tolist()

    return write, f"transformers {version('transformers')}, torch {version('torch')}"


def genai(options: dict[str, Any]) -> tuple[Written, str]:
    import numpy as np
    import openvino
    import openvino_genai

    properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": options["threads"]}
    pipelines: dict[bool, Any] = {}

    def pipeline(looks_up: bool) -> Any:
        if looks_up not in pipelines:
            own = properties | ({"prompt_lookup": True} if looks_up else {})
            pipelines[looks_up] = openvino_genai.LLMPipeline(options["model"], "CPU", **own)
        return pipelines[looks_up]

    def write(asked: Asked) -> list[int]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = asked["max_tokens"]
        config.set_eos_token_id(options["eos"])
        if asked["temperature"] > 0:
            config.do_sample, config.temperature = True, asked["temperature"]
            config.top_k, config.top_p, config.rng_seed = 0, 1.0, asked["seed"]
        lookup = asked["way"].get("lookup")
        if lookup:
            config.num_assistant_tokens = lookup
            config.max_ngram_size = asked["way"].get("ngram", 3)
        ids = openvino.Tensor(np.array([asked["ids"]], np.int64))
        mask = openvino.Tensor(np.ones((1, len(asked["ids"])), np.int64))
        found = pipeline(bool(lookup)).generate(openvino_genai.TokenizedInputs(ids, mask), config)
        return [int(token) for token in found.tokens[0]]

    return write, f"openvino-genai {version('openvino-genai')}"


def vllm(options: dict[str, Any]) -> tuple[Written, str]:
    import vllm as engine

    model = engine.LLM(
        model=options["model"],
        dtype=options.get("dtype", "bfloat16"),
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=1,
        enable_prefix_caching=False,
        speculative_config=options.get("speculative"),
    )

    def write(asked: Asked) -> list[int]:
        wanted = {name: asked[name] for name in ("max_tokens", "temperature", "seed")}
        prompt = {"prompt_token_ids": asked["ids"]}
        found = model.generate([prompt], engine.SamplingParams(**wanted), use_tqdm=False)
        return list(found[0].outputs[0].token_ids)

    return write, f"vllm {engine.__version__}"


def llama(options: dict[str, Any]) -> tuple[Written, str]:
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    model = llama_cpp.Llama(
        options["model"],
        n_ctx=1024,
        n_threads=options["threads"],
        n_threads_batch=options["threads"],
        verbose=False,
    )

    def write(asked: Asked) -> list[int]:
        model.reset()
        lookup = asked["way"].get("lookup")
        drafts = LlamaPromptLookupDecoding(num_pred_tokens=lookup) if lookup else None
        model.draft_model = drafts
        law = {"temp": asked["temperature"], "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        found: list[int] = []
        for token in model.generate(asked["ids"], **law, repeat_penalty=1.0):
            found.append(int(token))
            if token in options["eos"] or len(found) == asked["max_tokens"]:
                return found
        return found

    return write, f"llama-cpp-python {llama_cpp.__version__}"


def draftproof(options: dict[str, Any]) -> tuple[Written, str]:
    import torch

    torch.set_num_threads(options["threads"])
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.models import load_engine

    loaded = {name: options.get(name) for name in ("engine", "dtype", "quantization")}
    decoders: dict[str, Any] = {}
    first = SpeculativeDecoder.from_pretrained(options["model"], **loaded)
    loaded.pop("quantization")  # of the target

    def decoder(config: dict[str, Any] | None) -> Any:
        if not config:
            return first.plain
        name = json.dumps(config)
        if name not in decoders:
            spare = {key: config[key] for key in ("model", "quantization") if key in config}
            draft = load_engine(spare.pop("model"), **loaded, **spare) if spare else None
            rest = {key: value for key, value in config.items() if key != "quantization"}
            if draft is not None:
                rest = {key: rest[key] for key in rest if key not in ("method", "model")}
            decoders[name] = SpeculativeDecoder(
                draft, first.target, first.tokenizer, speculative_config=rest
            )
        return decoders[name]

    def write(asked: Asked) -> list[int]:
        wanted = {name: asked[name] for name in ("max_tokens", "temperature", "seed")}
        law = {"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
        way = decoder(asked["way"].get("speculative"))
        return list(way.generate(asked["ids"], SamplingParams(**wanted, **law)).token_ids)

    return (
        write,
        f"draftproof {version('draftproof')}, {first.target.engine}, rows {first.target.rows}",
    )


KINDS: dict[str, Callable[[dict[str, Any]], tuple[Written, str]]] = {
    made.__name__: made for made in (transformers, genai, vllm, llama, draftproof)
}

if __name__ == "__main__":
    main()
