"""Compares the decoder with the target's own law in random settings, found by number.

    PYTHONPATH=src:tests python -m search.search FIRST LAST

prints every setting that parts from plain decoding, and at the end how many were met. Where the
target allows no token, plain decoding fails; so must the decoder, there and nowhere else, with the
same text before. What the decoder refuses by a sentence is counted, and so are settings with too
many outcomes to walk.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Hashable
from typing import Any

from draftproof import SamplingParams
from draftproof.errors import InvalidLogitsError, UsageError
from search.own import FAILED, Law, Tokens, TooMany, text_law, total_variation, walk
from search.settings import Setting, setting

TOLERANCE = 1e-11
MOST = 12_000
"""Outcomes that are walked of one setting."""


def verdict(one: Setting, most: int = MOST) -> str:
    """ "ok", "refused", "too many", or what is wrong."""
    try:
        law, repeats = walk(_run(one), most)
    except UsageError as error:
        return f"refused: {error}"
    except TooMany:
        return "too many outcomes"
    distance = total_variation(law, _wanted(one))
    return (
        "ok"
        if distance <= TOLERANCE and not repeats
        else f"TV {distance:.3g}, {repeats} keys repeated"
    )


def _prompts(one: Setting) -> tuple[Tokens, Tokens]:
    return one.prompt, (*one.prompt[::-1], 0)


def _next_turn(one: Setting, text: Tokens) -> Tokens:
    """The prompt of a second turn: goes on from the first, or alters its last token."""
    if one.seed % 2:
        return (*one.prompt, *text, 0)
    return (*one.prompt[:-1], int(one.prompt[-1] == 0), *text)


def _run(one: Setting) -> Any:
    """A call of the decoder, of the setting's kind, that says what came out."""
    made = one.decoder()

    def params(prompt: Tokens, seed: int = 1, **more: Any) -> SamplingParams:
        processors = one.processors(prompt)
        return SamplingParams(
            seed=seed, max_tokens=one.longest, logits_processors=processors, **{**one.asked, **more}
        )

    def single() -> Hashable:
        return _said(made.generate([one.prompt], params(one.prompt))[0].outputs[0])

    def samples() -> Hashable:
        return tuple(
            _said(output)
            for output in made.generate([one.prompt], params(one.prompt, n=2))[0].outputs
        )

    def batch() -> Hashable:
        asked = [params(prompt, seed) for seed, prompt in enumerate(_prompts(one))]
        results = made.generate(list(_prompts(one)), asked, batch_size=1 + one.seed % 2)
        return tuple(_said(result.outputs[0]) for result in results)

    def turns() -> Hashable:
        texts: list[Any] = []
        with made.session() as session:
            try:
                for seed in (1, 2):
                    prompt = _next_turn(one, texts[0]) if texts else one.prompt
                    texts.append(session.generate(prompt, params(prompt, seed)).token_ids)
            except InvalidLogitsError:
                texts.append(FAILED)
        return tuple(texts)

    def closed() -> Hashable:
        stream = made.stream(one.prompt, params(one.prompt, seed=3))
        try:
            next(stream)
        except InvalidLogitsError:
            return FAILED
        stream.close()
        return single()

    return {"single": single, "samples": samples, "batch": batch, "turns": turns, "closed": closed}[
        one.mode
    ]


def _said(output: Any) -> Hashable:
    return (output.token_ids, FAILED) if output.finish_reason == "error" else output.token_ids


def _wanted(one: Setting) -> Law:
    """The law of the same by the target alone."""

    def law(prompt: Tokens) -> Law:
        return text_law(one.model, prompt, one.asked, one.longest, one.ends, one.edits(prompt))

    first = law(one.prompt)
    if one.mode == "single":
        return first
    if one.mode == "samples":
        return {(a, b): p * q for a, p in first.items() for b, q in first.items()}
    if one.mode == "batch":
        return {(a, b): p * q for a, p in first.items() for b, q in law(_prompts(one)[1]).items()}
    if one.mode == "closed":
        lawless = sum(p for a, p in first.items() if a[-1:] == (FAILED,) and not a[0])
        return {FAILED: 1.0} if lawless else first
    found: Law = {}
    for a, p in first.items():
        if a[-1:] == (FAILED,):
            found[FAILED,] = found.get((FAILED,), 0.0) + p
            continue
        for b, q in law(_next_turn(one, a)).items():
            key = (a, FAILED) if b[-1:] == (FAILED,) else (a, b)
            found[key] = found.get(key, 0.0) + p * q
    return found


def main(first: int, last: int) -> None:
    warnings.filterwarnings("ignore")
    met: Counter[str] = Counter()
    for seed in range(first, last):
        said = verdict(setting(seed))
        met[said.partition(":")[0] if said.startswith(("ok", "too", "refused")) else "parts"] += 1
        if not said.startswith(("ok", "too")):
            print(setting(seed), "->", said, flush=True)
    print(f"settings {first} to {last - 1}: {dict(met)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
