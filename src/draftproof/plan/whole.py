"""A whole plan in one call: candidates with their draft models, prompts with their later turns, one
document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.models.drafts import DraftModels
from draftproof.models.protocol import LanguageModel
from draftproof.plan.candidate import Candidate
from draftproof.plan.document import plan_document
from draftproof.plan.plan import LENGTHS, check_request, make_plan
from draftproof.report.provenance import model_hashes, provenance
from draftproof.workloads.conversations import check_turns, with_later_turns
from draftproof.workloads.prompt_files import Encoded, Item


def plan_speculation(
    target: LanguageModel,
    configs: Sequence[SpeculativeConfig],
    prompts: Sequence[Encoded],
    params: SamplingParams,
    *,
    lengths: Sequence[int] = LENGTHS,
    trees: Sequence[str] = (),
    batch: Sequence[int] = (1,),
    answers: int | None = None,
    turns: str = "all",
    drafts: DraftModels | None = None,
    progress: Any = lambda what, done, total: None,
) -> dict[str, Any]:
    """Predict what the drafters of `configs` would bring to `target` on these prompts: the document
    that `plan --out` writes.

    lengths: of the drafts to predict. trees: shapes for the drafters that take one. batch: how many
    texts are decoded together. answers: texts the target writes for each prompt. turns: as in
    `draftproof.bench.benchmark`. drafts: what loads draft models by name. UsageError before
    anything is read."""
    check_asked(configs, [prompt.item for prompt in prompts], lengths, batch, answers, turns)
    candidates = candidates_of(configs, trees, DraftModels() if drafts is None else drafts)
    if turns == "all":
        prompts = with_later_turns(prompts, target, params, progress)
    made = make_plan(
        target,
        candidates,
        prompts,
        params,
        lengths,
        progress=progress,
        batch=batch,
        answers=answers,
    )
    loaded = {c.name: c.draft for c in candidates if c.draft is not None}
    hashes = model_hashes(target, loaded, {c.name: c.drafter(target) for c in candidates})
    return plan_document(made, provenance(target, seed=params.seed) | {"model_hashes": hashes})


def check_asked(
    configs: Sequence[SpeculativeConfig],
    items: Sequence[Item],
    lengths: Sequence[int],
    batch: Sequence[int],
    answers: int | None,
    turns: str,
) -> None:
    """UsageError for what can be told to be wrong before any model is there."""
    check_turns(turns)
    check_request(lengths, batch, all(config.shape is not None for config in configs))
    if answers is not None and all(item.answer for item in items):
        raise UsageError(
            "--answers counts texts that the target writes, and the file gives an answer "
            "to every prompt"
        )


def candidates_of(
    configs: Sequence[SpeculativeConfig], trees: Sequence[str], drafts: DraftModels
) -> list[Candidate]:
    """Candidates with their draft models loaded; trees go to those that take them."""
    found = []
    for config in configs:
        draft = None
        if config.spec.model == "draft" and config.model is not None:
            draft = drafts(config.model, config.revision, config.quantization)
        found.append(Candidate(config, draft, tuple(trees) if takes_tree(config) else ()))
    return found


def takes_tree(config: SpeculativeConfig) -> bool:
    """Whether its drafter takes a shape and has none yet."""
    return config.spec.trees and config.shape is None
