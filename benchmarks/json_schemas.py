"""JSON schemas of a public suite: is every text valid, what do masks cost, and which library makes
them.

    python benchmarks/json_schemas.py masks RAW --suite FOLDER [--schemas 200]
    python benchmarks/json_schemas.py texts RAW --suite FOLDER [--schemas 200]
    python benchmarks/json_schemas.py speed RAW --suite FOLDER [--schemas 12]
    python benchmarks/json_schemas.py report RAW

FOLDER is `maskbench/data` of github.com/guidance-ai/jsonschemabench, whose files have a `schema`
and `tests` (instances, valid or not); every n-th file by name is taken. `masks` walks the valid
instances token by token in llguidance and in xgrammar, each alone. `texts` writes one text a schema
with this package, plainly and drafted, from a table whose law is how often a token stands in the
suite's instances, those that may close something made likelier, so that texts end; the validator is
the package jsonschema. `speed` writes with a real model. Needs xgrammar and jsonschema beside this
package."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from raw_lines import append, read

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
LONGEST_SCHEMA = 20_000
CLOSING = 5
"""How much likelier the table makes tokens that may close something."""
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"method": "none"},
    "ngram": {"method": "ngram", "num_speculative_tokens": 8},
    "suffix": {"method": "suffix", "num_speculative_tokens": 8},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("verb", choices=("masks", "texts", "speed", "report"))
    arguments.add_argument("raw", type=Path)
    arguments.add_argument("--suite", type=Path)
    arguments.add_argument("--schemas", type=int, default=200)
    arguments.add_argument("--model", default=MODEL)
    arguments.add_argument("--tokens", type=int, default=400)
    args = arguments.parse_args()
    if args.verb == "report":
        report(read(args.raw))
    else:
        {"masks": masks, "texts": texts, "speed": speed}[args.verb](args)


def cases(suite: Path, count: int) -> list[dict[str, Any]]:
    """Every n-th file of the suite that has a valid instance."""
    paths = sorted(suite.rglob("*.json"))
    found: list[dict[str, Any]] = []
    for path in paths[:: max(len(paths) // (2 * count), 1)]:
        case = json.loads(path.read_text(encoding="utf-8"))
        valid = [test["data"] for test in case["tests"] if test["valid"]]
        if valid and len(json.dumps(case["schema"])) < LONGEST_SCHEMA and len(found) < count:
            wrong = [test["data"] for test in case["tests"] if not test["valid"]]
            schema = case["schema"]
            found.append({"name": path.stem, "schema": schema, "valid": valid, "wrong": wrong})
    return found


def masks(args: argparse.Namespace) -> None:
    """A line a schema and library."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    makers = {"llguidance": Guidance(tokenizer), "xgrammar": XGrammar(tokenizer)}
    for number, case in enumerate(cases(args.suite, args.schemas)):
        names = list(makers) if number % 2 else list(makers)[::-1]
        append(args.raw, *(walked(name, makers[name], case, tokenizer) for name in names))


def walked(name: str, maker: Any, case: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """What one library makes of a schema and of the suite's instances."""
    line = {"kind": "masks", "library": name, "schema": case["name"]}
    begin = time.perf_counter()
    try:
        compiled = maker.compile(json.dumps(case["schema"]))
    except Exception as error:
        return line | {"error": str(error).strip().splitlines()[0][:200]}
    line["compile_seconds"] = time.perf_counter() - begin
    times: list[float] = []
    taken = [maker.walk(compiled, ids(tokenizer, each), times) for each in case["valid"][:4]]
    refused = [not maker.walk(compiled, ids(tokenizer, each), []) for each in case["wrong"][:4]]
    return line | {
        "valid_taken": sum(taken),
        "valid": len(taken),
        "wrong_refused": sum(refused),
        "wrong": len(refused),
        "mask_seconds": times,
    }


def ids(tokenizer: Any, instance: Any) -> list[int]:
    """In Python's own layout, which both libraries are told to allow."""
    found: list[int] = tokenizer.encode(json.dumps(instance, ensure_ascii=False))
    return found


class Guidance:
    """llguidance by itself."""

    def __init__(self, tokenizer: Any) -> None:
        from llguidance.hf import from_tokenizer

        self._table = from_tokenizer(tokenizer)

    def compile(self, schema: str) -> Any:
        import llguidance

        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(self._table, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def walk(self, compiled: Any, tokens: list[int], times: list[float]) -> bool:
        """Whether all are allowed and the text may end there. times: of a mask and a step."""
        matcher = compiled.deep_copy()
        for token in tokens:
            begin = time.perf_counter()
            matcher.compute_bitmask()
            taken = matcher.try_consume_tokens([token]) == 1
            times.append(time.perf_counter() - begin)
            if not taken:
                return False
        return bool(matcher.is_accepting())


class XGrammar:
    """xgrammar by itself."""

    def __init__(self, tokenizer: Any) -> None:
        import xgrammar

        self._library = xgrammar
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._mask = xgrammar.allocate_token_bitmask(1, len(tokenizer))

    def compile(self, schema: str) -> Any:
        return self._compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def walk(self, compiled: Any, tokens: list[int], times: list[float]) -> bool:
        matcher = self._library.GrammarMatcher(compiled, terminate_without_stop_token=False)
        for token in tokens:
            begin = time.perf_counter()
            matcher.fill_next_token_bitmask(self._mask)
            taken = matcher.accept_token(token)
            times.append(time.perf_counter() - begin)
            if not taken:
                return False
        stop = matcher.stop_token_ids[0]
        return bool(matcher.accept_token(stop))


def texts(args: argparse.Namespace) -> None:
    """A line a schema and arm: was the text whole, and valid."""
    from transformers import AutoTokenizer

    from draftproof import TableModel

    tokenizer, found = AutoTokenizer.from_pretrained(args.model), cases(args.suite, args.schemas)
    size, end = len(tokenizer), tokenizer.eos_token_id
    counts = Counter(
        token for case in found for data in case["valid"] for token in ids(tokenizer, data)
    )
    law = np.full(size, 1e-9)
    for token, count in counts.items():
        closes = any(mark in tokenizer.decode([token]) for mark in '"}]')
        law[token] = CLOSING * count if closes else count
    law[end] = law.sum()  # a text ends as soon as it may
    law /= law.sum()
    target = TableModel(lambda prefix: law, vocab_size=size, max_length=2048, eos_token_ids=(end,))
    write(args, found, target, tokenizer, temperature=1.0, kind="texts")


def speed(args: argparse.Namespace) -> None:
    """The same by a real model, greedily."""
    from draftproof import SpeculativeDecoder

    loaded = SpeculativeDecoder.from_pretrained(
        args.model, dtype="float32", speculative_config={"method": "ngram"}
    )
    found = cases(args.suite, args.schemas)
    write(args, found, loaded.target, loaded.tokenizer, temperature=0.0, kind="speed")


def write(
    args: argparse.Namespace,
    found: list[dict[str, Any]],
    target: Any,
    tokenizer: Any,
    *,
    temperature: float,
    kind: str,
) -> None:
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.errors import UsageError

    arms = {
        name: SpeculativeDecoder(None, target, tokenizer, speculative_config=config)
        for name, config in ARMS.items()
        if name != "plain"
    }
    first = next(iter(arms.values()))
    decoders = {"plain": first.plain, **arms}
    for number, case in enumerate(found):
        params = SamplingParams(
            temperature=temperature,
            max_tokens=args.tokens,
            seed=number,
            structured_outputs={"json": case["schema"]},
        )
        asked = f"{json.dumps(case['valid'][0])[:200]}\nWrite another, as JSON.\n"
        prompt = tokenizer.encode(asked)[:96]
        names = list(decoders)[number % 3 :] + list(decoders)[: number % 3]
        for name in names:
            line = {"kind": kind, "arm": name, "schema": case["name"]}
            begin = time.perf_counter()
            try:
                result = decoders[name].generate(prompt, params)
            except UsageError as error:
                append(args.raw, line | {"error": str(error)[:200]})
                continue
            done = result.outputs[0]
            ended = done.finish_reason == "stop"
            line |= {"seconds": time.perf_counter() - begin, "rounds": len(done.rounds)}
            line |= {"first_token_seconds": done.first_token_seconds, "ended": ended}
            line |= {"tokens": len(done.token_ids), "token_ids": list(done.token_ids)}
            append(args.raw, line | {"fault": fault(done.text, case["schema"]) if ended else None})


def fault(text: str, schema: Any) -> str | None:
    """What is wrong with a whole text; None where nothing is."""
    import jsonschema

    try:
        made = json.loads(text)
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        kind(schema).validate(made)
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0][:200]
    except Exception as error:  # the validator's own trouble with a schema, as a reference it lacks
        return f"not validated: {type(error).__name__}"
    return None


def report(lines: list[dict[str, Any]]) -> None:
    for library in ("llguidance", "xgrammar"):
        mine = [x for x in lines if x["kind"] == "masks" and x["library"] == library]
        if mine:
            print(masks_row(library, mine))
    for kind in ("texts", "speed"):
        plain = {x["schema"]: x for x in lines if x["kind"] == kind and x["arm"] == "plain"}
        for arm in ARMS:
            mine = [x for x in lines if x["kind"] == kind and x["arm"] == arm]
            if mine:
                print(texts_row(kind, arm, mine, plain))


def masks_row(library: str, mine: list[dict[str, Any]]) -> str:
    good = [line for line in mine if "error" not in line]
    times = sorted(each for line in good for each in line["mask_seconds"])
    compiled = [line["compile_seconds"] for line in good]
    total = {
        key: sum(line[key] for line in good)
        for key in ("valid_taken", "valid", "wrong_refused", "wrong")
    }
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    return (
        f"{library}: {len(good)} of {len(mine)} schemas compiled, median "
        f"{1e3 * statistics.median(compiled):.2f} ms, slowest {1e3 * max(compiled):.0f} ms; "
        f"{total['valid_taken']} of {total['valid']} valid instances taken, "
        f"{total['wrong_refused']} of {total['wrong']} invalid ones refused; a mask and a step of "
        f"{len(times)}: mean {1e6 * statistics.mean(times):.0f} us, p50 {1e6 * p50:.0f}, "
        f"p99 {1e6 * p99:.0f}, slowest {1e6 * times[-1]:.0f}"
    )


def texts_row(
    kind: str, arm: str, mine: list[dict[str, Any]], plain: dict[str, dict[str, Any]]
) -> str:
    good = [line for line in mine if "error" not in line]
    ended = [line for line in good if line["ended"]]
    unjudged = [x for x in ended if (x["fault"] or "").startswith("not validated")]
    wrong = [line for line in ended if line["fault"] and line not in unjudged]
    tokens, rounds = sum(x["tokens"] for x in good), sum(x["rounds"] for x in good)
    seconds = sum(x["seconds"] - x["first_token_seconds"] for x in good)
    before = [plain[x["schema"]] for x in good]
    others = sum(x["seconds"] - x["first_token_seconds"] for x in before)
    same = sum(a["token_ids"] == b["token_ids"] for a, b in zip(good, before, strict=True))
    rate = (tokens - len(good)) / seconds
    to_plain = others / sum(x["tokens"] for x in before) / (seconds / tokens)
    return (
        f"{kind}, {arm}: {len(good)} of {len(mine)} schemas, {len(ended)} texts ended, "
        f"{len(wrong)} of them invalid, {len(unjudged)} not judged; {tokens / rounds:.2f} tokens a "
        f"pass, {rate:.1f} tokens a second, {to_plain:.2f} to plain by token; {same} of "
        f"{len(good)} texts are plain decoding's"
    )


if __name__ == "__main__":
    main()
