"""What the audits of engines load: target, drafter, prompts, parameters; and the two engines there
are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftproof.cli import options
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.decoder import SpeculativeDecoder

DEFAULT_TOKENS = 64
ENGINES = ("ours", "transformers")
LONGEST = {"draft_model": 5, "ngram": 10}
"""Drafts a round of transformers' methods, unless asked."""
IGNORED_BY_TRANSFORMERS = ("rule", "tree", "speculative_config")


@dataclass(frozen=True)
class Loaded:
    """decoder: of ours, whose target the auditor reads. engine: its name here. draft: the loaded
    draft model, if any. length: drafts a round, for transformers."""

    engine: str
    decoder: SpeculativeDecoder
    draft: Any
    length: int
    prompts: list[tuple[int, ...]]
    params: SamplingParams


def load(flags: Mapping[str, Any], **sampling: Any) -> Loaded:
    """Check every flag, then load. sampling: defaults of the sampling parameters."""
    from draftproof.cli.bench import items_of
    from draftproof.cli.loading import load_target
    from draftproof.core.params import SamplingParams
    from draftproof.decode.config import SpeculativeConfig
    from draftproof.decode.decoder import SpeculativeDecoder
    from draftproof.workloads.prompt_files import encode

    flags = {**dict.fromkeys((*options.END_FLAGS, *options.LAW_FLAGS)), **flags}
    engine = flags["engine"] or "ours"
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine!r} is unknown; allowed: {' or '.join(ENGINES)}")
    flags |= {"engine": "auto" if engine == "ours" else "torch", "quantize": None, "lossless": True}
    given = options.sampling_overrides(flags, DEFAULT_TOKENS)
    params = SamplingParams.from_dict({"seed": 0, "ignore_eos": True} | sampling | given)
    mapping = (
        _for_transformers(flags) if engine == "transformers" else options.speculative_config(flags)
    )
    if mapping.get("method") == "none":
        raise UsageError(
            "--method none drafts nothing, so there is nothing to audit; name a method that drafts"
        )
    config = SpeculativeConfig.from_dict(mapping)
    items = items_of(flags)
    target, drafts = load_target(flags, [config])
    named = config.draft_model
    draft = (
        None
        if named is None or named.model is None
        else drafts(named.model, named.revision, named.quantization)
    )
    assert params.max_tokens is not None
    prompts = encode(
        items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens
    )
    decoder = SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=config)
    ids = [tuple(prompt.ids) for prompt in prompts]
    return Loaded(engine, decoder, draft, config.num_speculative_tokens, ids, params)


def _for_transformers(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The drafting that transformers is to do, as a configuration of ours."""
    for name in IGNORED_BY_TRANSFORMERS:
        if flags[name] is not None:
            raise UsageError(
                f"{options.spelled(name)} is draftproof's own, and transformers does not "
                "read it: leave it out"
            )
    method = flags["method"] or ("draft_model" if flags["draft"] else "ngram")
    if method not in LONGEST:
        raise UsageError(
            f"--method {method} is not transformers'; allowed: draft_model (assisted) or "
            "ngram (prompt lookup)"
        )
    length = flags["num_speculative_tokens"]
    mapping = {
        "method": method,
        "num_speculative_tokens": LONGEST[method] if length is None else length,
    }
    if method == "draft_model":
        if flags["draft"] is None:
            raise UsageError(
                "--method draft_model needs a draft model: add --draft with its hub id or folder"
            )
        mapping["model"] = flags["draft"]
    elif flags["draft"] is not None:
        raise UsageError(
            f"--draft means --method draft_model, but --method is {method}: leave one of them out"
        )
    if mapping["num_speculative_tokens"] == 0:
        raise UsageError("-k 0 drafts nothing, so there is nothing to audit")
    return mapping


def writers(
    loaded: Loaded,
) -> tuple[str, Callable[..., Sequence[int]], Callable[..., Sequence[int]]]:
    """The engine's name, and what writes its text plainly and with drafts."""
    if loaded.engine == "ours":
        from draftproof import __version__

        plain = loaded.decoder.plain
        drafter = loaded.decoder.drafter
        assert drafter is not None
        name = f"draftproof {__version__}, {drafter.name}"
        return (
            name,
            lambda ids, params: plain.generate(ids, params).token_ids,
            lambda ids, params: loaded.decoder.generate(ids, params).token_ids,
        )
    from transformers import __version__ as version

    from draftproof.bench.hf_arms import HFArm

    kind = "lookup" if loaded.draft is None else "assisted"
    alone = HFArm("plain", loaded.decoder.target)
    with_drafts = HFArm(kind, loaded.decoder.target, draft=loaded.draft, length=loaded.length)
    return (
        f"transformers {version}, {kind}",
        lambda ids, params: alone.run(tuple(ids), params).token_ids,
        lambda ids, params: with_drafts.run(tuple(ids), params).token_ids,
    )
