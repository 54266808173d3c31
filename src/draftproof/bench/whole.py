"""A whole comparison in one call: arms built, prompts completed by their later turns, everything
measured, one document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from draftproof.bench.arms import OurArm
from draftproof.bench.run import measure
from draftproof.bench.specs import Spec, build_arms, check_specs, parse_spec, told_apart
from draftproof.bench.summary import document
from draftproof.core.params import SamplingParams
from draftproof.models.drafts import DraftModels
from draftproof.models.protocol import LanguageModel
from draftproof.report.provenance import model_hashes, provenance
from draftproof.workloads.conversations import check_turns, with_later_turns
from draftproof.workloads.prompt_files import Encoded


class Benchmark(NamedTuple):
    """document: everything for JSON, see docs/json.md. ended_by: what ended the measurement early,
    Ctrl-C for one, or None; the document then holds what had been measured."""

    document: dict[str, Any]
    ended_by: BaseException | None


def specs_of(arms: Sequence[str], draft: str | None = None) -> list[Spec]:
    """The arms of words as the command line takes them ("ngram:8", a JSON object, a URL).
    UsageError for what is no arm."""
    return told_apart([parse_spec(arm, draft) for arm in arms])


def benchmark(
    target: LanguageModel,
    arms: Sequence[str | Spec],
    prompts: Sequence[Encoded],
    params: SamplingParams,
    *,
    draft: str | None = None,
    drafts: DraftModels | None = None,
    synthetic_alpha: Sequence[float] | None = None,
    repeat: int = 2,
    turns: str = "all",
    progress: Any = lambda what, done, total: None,
) -> Benchmark:
    """Measure `arms` beside plain decoding of `target` on the same prompts, interleaved.

    draft: the name of the draft model of arms that do not name one. drafts: what loads draft models
    by name. synthetic_alpha: acceptance by chance, by position. repeat: how often every prompt runs
    through every arm. turns: "all" lets plain decoding answer the earlier turns of conversations,
    "first" asks their first ones only. UsageError before any measurement."""
    check_turns(turns)
    specs = [
        *specs_of([arm for arm in arms if isinstance(arm, str)], draft),
        *(arm for arm in arms if isinstance(arm, Spec)),
    ]
    check_specs(specs, params, synthetic_alpha)
    drafts = DraftModels() if drafts is None else drafts
    built, reference = build_arms(
        specs, target, drafts, draft, synthetic_alpha, params.temperature == 0
    )
    if turns == "all":
        prompts = with_later_turns(prompts, target, params, progress)
    measurement = measure(built, prompts, params, repeat, progress=progress)
    loaded = {
        "draft" if name == draft else name: model for (name, *_), model in drafts.loaded.items()
    }
    drafting = {
        arm.name: arm.decoder.drafter
        for arm in built
        if isinstance(arm, OurArm) and arm.decoder.drafter
    }
    hashes = {"model_hashes": model_hashes(target, loaded, drafting), "draft": draft}
    where = provenance(target, seed=params.seed) | hashes
    return Benchmark(document(measurement, reference, where), measurement.ended_by)
