"""The flags of sampling, with the names of `SamplingParams`; one that is not given stays None and is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

PANEL = "Sampling"
DEFAULT_MAX_TOKENS = 256


def _sampling(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL, show_default=False, **more)


Temperature = Annotated[
    float | None,
    _sampling(
        "--temperature",
        metavar="X",
        help="How random the text is: 0 takes the likeliest token. Default: the model's own; 0 for plan and bench.",
    ),
]
TopK = Annotated[int | None, _sampling("--top-k", metavar="N", help="Draw from the N likeliest tokens only.")]
TopP = Annotated[
    float | None, _sampling("--top-p", metavar="X", help="Draw from the likeliest tokens that together have probability X.")
]
MinP = Annotated[
    float | None, _sampling("--min-p", metavar="X", help="Draw from tokens at least X times as likely as the likeliest.")
]
RepetitionPenalty = Annotated[
    float | None,
    _sampling("--repetition-penalty", metavar="X", help="Make tokens of prompt and text less likely to come again; 1 is off."),
]
PresencePenalty = Annotated[
    float | None,
    _sampling(
        "--presence-penalty", metavar="X", help="Taken off the logit of every token that was generated before; 0 is off."
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    _sampling(
        "--frequency-penalty", metavar="X", help="Taken off a token's logit for every time it was generated before; 0 is off."
    ),
]
LogitBias = Annotated[
    str | None, _sampling("--logit-bias", metavar="JSON", help="Numbers added to the logits of token ids: '{\"42\": -5}'.")
]
BadWords = Annotated[
    list[str] | None, _sampling("--bad-words", metavar="TEXT", help="A string that must not be generated; repeatable.")
]
MinTokens = Annotated[
    int | None, _sampling("--min-tokens", metavar="N", help="Let nothing end the text before it has N tokens.")
]
MaxTokens = Annotated[
    int | None,
    _sampling(
        "--max-tokens",
        metavar="N",
        help=f"End the text at N tokens. Default: {DEFAULT_MAX_TOKENS}; 64 for plan, 128 for bench.",
    ),
]
Stop = Annotated[
    list[str] | None, _sampling("--stop", metavar="TEXT", help="End the text where this string appears; repeatable.")
]
StopTokenIds = Annotated[
    list[int] | None, _sampling("--stop-token-ids", metavar="ID", help="End the text at this token id; repeatable.")
]
IncludeStop = Annotated[
    bool, _sampling("--include-stop-str-in-output", metavar="", help="Keep the --stop string at the end of the text.")
]
IgnoreEos = Annotated[
    bool, _sampling("--ignore-eos", metavar="", help="Go on after the model's end token, up to --max-tokens.")
]
KeepSpecial = Annotated[
    bool,
    _sampling("--no-skip-special-tokens", metavar="", help="Show the model's special tokens, as its end token, in the text."),
]
Seed = Annotated[
    int | None,
    _sampling(
        "--seed",
        metavar="N",
        help="Seed of all randomness; the same one gives the same text. Default: a fresh one, reported; 0 for plan and bench.",
    ),
]
Samples = Annotated[int | None, _sampling("--n", metavar="N", help="Write N texts for the prompt. Default: 1.")]
Logprobs = Annotated[
    int | None,
    _sampling(
        "--logprobs",
        metavar="N",
        help="Put the log-probabilities of the N likeliest tokens at every place into the --json document.",
    ),
]

Structured = Annotated[
    str | None,
    _sampling(
        "--structured-outputs",
        metavar="JSON",
        help='Keep the text to a grammar: one of {"json": SCHEMA}, {"regex": "..."}, {"choice": [...]}, {"grammar": "..."} or '
        '{"json_object": true}; or the name of a file that holds one.',
    ),
]

Flags = Mapping[str, tuple[Any, Any]]
"""Name of a parameter -> its annotation and its default."""

LAW_FLAGS: Flags = {
    "temperature": (Temperature, None),
    "top_k": (TopK, None),
    "top_p": (TopP, None),
    "min_p": (MinP, None),
    "repetition_penalty": (RepetitionPenalty, None),
    "presence_penalty": (PresencePenalty, None),
    "frequency_penalty": (FrequencyPenalty, None),
    "logit_bias": (LogitBias, None),
    "bad_words": (BadWords, None),
}
"""What a token's law depends on."""
END_FLAGS: Flags = {
    "min_tokens": (MinTokens, None),
    "max_tokens": (MaxTokens, None),
    "stop": (Stop, None),
    "stop_token_ids": (StopTokenIds, None),
    "seed": (Seed, None),
}
"""What ends a text, and the seed."""
TEXT_FLAGS: Flags = {
    "include_stop_str_in_output": (IncludeStop, False),
    "ignore_eos": (IgnoreEos, False),
    "no_skip_special_tokens": (KeepSpecial, False),
    "structured_outputs": (Structured, None),
    "n": (Samples, None),
    "logprobs": (Logprobs, None),
}
"""What is of use where a text is shown."""
