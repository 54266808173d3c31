"""`draftproof generate`: text from a prompt, speculatively, plainly, or both side by side with
their figures.

Everything the flags say is checked before a model is loaded. One run is in `single.py`, the
comparison in `side_by_side.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import options
from draftproof.cli.lines import is_many
from draftproof.cli.prompt import as_prompt, check_file, read_prompt, with_prefill
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.decoder import SpeculativeDecoder

Prompt = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPT",
        help="The prompt; without one, or with -, standard input is read.",
        show_default=False,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Read the prompt from this file; a .jsonl holds one prompt a line.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help=(
            "File for the results of a .jsonl of prompts; the same command again goes on "
            "where it ended."
        ),
        show_default=False,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="N",
        min=1,
        help=(
            "How many prompts of a .jsonl run at a time. Default: 8, or as many as fit into memory."
        ),
        show_default=False,
    ),
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", metavar="", help="Give the prompt as it is, without the model's chat template."
    ),
]
Prefill = Annotated[
    str | None,
    typer.Option(
        "--prefill",
        metavar="TEXT",
        help=(
            "Begin the answer with this text; the model goes on (the template's "
            "continue_final_message)."
        ),
        show_default=False,
    ),
]
Prediction = Annotated[
    Path | None,
    typer.Option(
        "--prediction",
        metavar="FILE",
        help=(
            "Draft from this text, which much of the answer is expected to repeat, as when a "
            "file is edited."
        ),
        show_default=False,
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        metavar="",
        help="Run plain and speculative decoding in turns, and compare their texts and speed.",
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        metavar="N",
        min=1,
        help="How often --compare runs each. Default: 3.",
        show_default=False,
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Write what was drafted and accepted in every round to this file, as JSON lines.",
        show_default=False,
    ),
]

Monitor = Annotated[
    bool,
    typer.Option(
        "--monitor",
        metavar="",
        help=(
            "Test every emitted token against the target's law while decoding; see the statistics."
        ),
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("generate")(generate)


@options.with_flags(
    options.DRAFT_FLAGS,
    options.LAW_FLAGS,
    options.END_FLAGS,
    options.TEXT_FLAGS,
    options.MACHINE_FLAGS,
)
def generate(
    context: typer.Context,
    prompt: Prompt = None,
    file: File = None,
    out: Out = None,
    batch_size: BatchSize = None,
    system: options.System = None,
    prefill: Prefill = None,
    tools: options.Tools = None,
    chat_template_kwargs: options.TemplateVariables = None,
    raw: Raw = False,
    prediction: Prediction = None,
    show: options.Show = False,
    compare: Compare = False,
    repeat: Repeat = None,
    record: Record = None,
    monitor: Monitor = False,
    as_json: options.Json = False,
    **_: Any,
) -> None:
    """Generate text from a prompt, plainly or speculatively, or both side by side."""
    execute(context.params)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, load, run, and print the document if it was asked for."""
    config = options.speculative_config(flags)
    overrides = options.sampling_overrides(flags)
    if flags["prediction"] is not None:
        overrides["prediction"] = predicted_text(flags["prediction"], config)
    check_faces(flags, config, overrides)
    chat = options.template_options(flags)
    from draftproof.report.tables import json_line

    if is_many(flags["file"]):
        from draftproof.cli.many import run_file

        totals = run_file(flags, config, overrides, chat, load, complete_params)
        if flags["as_json"]:
            print(json_line(totals))
        if totals["num_failed"]:
            raise typer.Exit(1)
        return
    text = read_prompt(flags["prompt"], flags["file"])
    decoder = load(flags, config)
    messages = as_prompt(text, decoder.tokenizer, system=flags["system"], raw=flags["raw"])
    if flags["prefill"] is not None:
        messages, chat = (
            with_prefill(messages, flags["prefill"]),
            {**chat, "continue_final_message": True},
        )
    prompt = decoder.prompt_ids(messages, **chat)
    params = complete_params(decoder, prompt, overrides)
    if flags["compare"]:
        from draftproof.cli.side_by_side import run_comparison as run
    else:
        from draftproof.cli.single import run_once as run
    document = run(decoder, prompt, params, flags)
    if flags["as_json"]:
        print(json_line(document | surroundings(decoder, params, text)))


def predicted_text(file: Path, config: Mapping[str, Any]) -> str:
    """The text of --prediction. UsageError where it cannot be read, and where no drafter asked for
    reads it."""
    from draftproof.decode.config import SpeculativeConfig

    parsed = SpeculativeConfig.from_dict(config)
    if "prediction" not in (parsed.method, *(member.method for member in parsed.members)):
        raise UsageError(
            f"--prediction is read by --method prediction, or auto with it; this is {parsed.method}"
        )
    return read_prompt(None, file)


def check_faces(
    flags: Mapping[str, Any], config: Mapping[str, Any], overrides: Mapping[str, Any]
) -> None:
    """UsageError for flags that contradict each other or would do nothing, and for a record that
    could not be written."""
    if flags["repeat"] is not None and not flags["compare"]:
        raise UsageError("--repeat counts the repetitions of --compare: add --compare")
    if flags["compare"] and (
        config["method"] == "none" or config.get("num_speculative_tokens") == 0
    ):
        raise UsageError(
            "--compare needs something to compare with plain decoding: leave out "
            "--method none and -k 0"
        )
    if flags["compare"] and overrides.get("n", 1) > 1:
        raise UsageError("--compare takes one text of each arm: leave out --n")
    for flag in ("system", "prefill", "tools", "chat_template_kwargs"):
        if flags["raw"] and flags[flag] is not None:
            raise UsageError(
                f"{options.spelled(flag)} is of the chat that --raw switches off: leave "
                "one of them out"
            )
    if is_many(flags["file"]):
        from draftproof.cli.many import check_flags

        check_flags(flags)
        return
    if flags["prompt"] is None and flags["file"] is not None:
        check_file(flags["file"])
    for flag in ("out", "batch_size"):
        if flags[flag] is not None:
            raise UsageError(
                f"{options.spelled(flag)} is for many prompts: name a .jsonl file with --file"
            )
    if flags["logprobs"] is not None and (flags["compare"] or not flags["as_json"]):
        raise UsageError(
            "--logprobs are part of the JSON document of one run: add --json, and leave "
            "out --compare"
        )
    if flags["record"] is not None:
        from draftproof.decode.record import check_path

        check_path(flags["record"])


def load(flags: Mapping[str, Any], config: Mapping[str, Any]) -> SpeculativeDecoder:
    """The decoder the flags ask for."""
    from draftproof.cli.loading import load_target
    from draftproof.decode.config import SpeculativeConfig
    from draftproof.decode.decoder import SpeculativeDecoder

    checked = SpeculativeConfig.from_dict(config)
    target, drafts = load_target(flags, [checked])
    wanted = checked.draft_model
    draft = (
        None
        if wanted is None or wanted.model is None
        else drafts(wanted.model, wanted.revision, wanted.quantization)
    )
    decoder = SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=checked)
    return decoder.monitored() if flags.get("monitor") else decoder


def complete_params(
    decoder: SpeculativeDecoder, prompt: Sequence[int], overrides: Mapping[str, Any]
) -> SamplingParams:
    """The flags over what the model's generation config says, for the ids `prompt`, with a seed.

    Where --temperature asks for sampling, transformers' silent top_k of 50 is left out: nobody has
    said it."""
    from draftproof.core.chance import fresh_seed
    from draftproof.core.params import SamplingParams

    config = decoder.target.generation_config
    if config is None:
        params = SamplingParams.from_dict(overrides)
    else:
        unsaid = (
            {"top_k": 0}
            if "temperature" in overrides and getattr(config, "top_k", None) is None
            else {}
        )
        params = SamplingParams.from_generation_config(
            config,
            num_prompt_tokens=len(prompt),
            vocab_size=decoder.target.vocab_size,
            **unsaid | dict(overrides),
        )
    options.check_effect(overrides, params)
    return params if params.seed is not None else replace(params, seed=fresh_seed())


def surroundings(decoder: SpeculativeDecoder, params: SamplingParams, text: str) -> dict[str, Any]:
    """The part of the JSON document that says what was asked, and of what."""
    from draftproof.decode.record import params_as_dict
    from draftproof.report.provenance import provenance

    return {
        "prompt": text,
        "config": decoder.config.as_dict(),
        "params": params_as_dict(params),
        "provenance": provenance(decoder.target, seed=params.seed),
    }
