"""Flags that several verbs share: how to speculate, how to sample, where to run; and the checks of
what they say together.

Sampling flags carry the names of `SamplingParams` and its defaults: a flag that is not given stays
None and is left out."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli.machine_flags import MACHINE_FLAGS as MACHINE_FLAGS
from draftproof.cli.machine_flags import Device as Device
from draftproof.cli.machine_flags import Dtype as Dtype
from draftproof.cli.machine_flags import Engine as Engine
from draftproof.cli.machine_flags import Quantize as Quantize
from draftproof.cli.machine_flags import RemoteCode as RemoteCode
from draftproof.cli.machine_flags import Target as Target
from draftproof.cli.machine_flags import Threads as Threads
from draftproof.cli.machine_flags import flag_of
from draftproof.cli.sampling_flags import DEFAULT_MAX_TOKENS, Flags
from draftproof.cli.sampling_flags import END_FLAGS as END_FLAGS
from draftproof.cli.sampling_flags import LAW_FLAGS as LAW_FLAGS
from draftproof.cli.sampling_flags import TEXT_FLAGS as TEXT_FLAGS
from draftproof.core.parameters import PARAMETERS, Flag
from draftproof.drafters.registry import drafting_methods
from draftproof.errors import UsageError

SPECULATION = "Speculation"
DEFAULT_METHOD = "ngram"


Draft = Annotated[
    str | None,
    flag_of(
        SPECULATION,
        "--draft",
        metavar="D",
        help=(
            "A smaller model that drafts: hub id, folder or .gguf file; means --method draft_model."
        ),
    ),
]
Method = Annotated[
    str | None,
    flag_of(
        SPECULATION,
        "--method",
        metavar="NAME",
        help=f"How to draft: {', '.join(drafting_methods())} or none. "
        f"Default: {DEFAULT_METHOD}; for the default model its head and suffix matches.",
    ),
]
Length = Annotated[
    int | None,
    flag_of(
        SPECULATION,
        "-k",
        metavar="N",
        min=0,
        help="Most tokens drafted at a time; 0 decodes plainly. Default: the method's own.",
    ),
]
Config = Annotated[
    str | None,
    flag_of(
        SPECULATION,
        "--speculative-config",
        metavar="JSON",
        help="All about drafting in one JSON object with vLLM's keys, in place of the flags here.",
    ),
]
RuleName = Annotated[
    str | None,
    flag_of(
        SPECULATION,
        "--rule",
        metavar="NAME",
        help=(
            "How drafts are accepted or rejected, as token, match or block (docs/rules.md). "
            "Default: as fits the method."
        ),
    ),
]
Tree = Annotated[
    str | None,
    flag_of(
        SPECULATION,
        "--tree",
        metavar="SHAPE",
        help=(
            "Draft several continuations at once: how many follow each token, level by "
            'level, as "2,2,1".'
        ),
    ),
]
Lossless = Annotated[
    bool,
    flag_of(
        SPECULATION,
        "--lossless",
        metavar="",
        help="Refuse a rule with which texts would differ in law from the target's own.",
    ),
]

DRAFT_FLAGS: Flags = {
    "target": (Target, None),
    "draft": (Draft, None),
    "method": (Method, None),
    "num_speculative_tokens": (Length, None),
    "speculative_config": (Config, None),
    "rule": (RuleName, None),
    "tree": (Tree, None),
    "lossless": (Lossless, False),
}
"""Which target, and how drafts for it are made and verified."""


def with_flags(*groups: Flags) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, which takes **kwargs and reads `context.params`, the flags of these groups
    after its own."""

    def extend(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for group in groups
            for name, (annotation, default) in group.items()
        ]
        named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        whole = own.replace(parameters=[*named, *added])
        vars(command)["__signature__"] = whole
        command.__annotations__ = {p.name: p.annotation for p in whole.parameters.values()} | {
            "return": None
        }
        return command

    return extend


_ONLY_WHEN_SAMPLING = ("top_k", "top_p", "min_p")


def sampling_overrides(
    flags: Mapping[str, Any], tokens: int = DEFAULT_MAX_TOKENS
) -> dict[str, Any]:
    """The fields of `SamplingParams` that the flags set; `tokens` is max_tokens where none is
    given. UsageError for a value that is impossible, before any model loads."""
    from draftproof.core.params import SamplingParams

    given: dict[str, Any] = {}
    for name, stated in PARAMETERS.items():
        value = flags.get(stated.flag.name or name) if isinstance(stated.flag, Flag) else None
        if not _unset(value):
            given[name] = _READ[name](value) if name in _READ else value
    given.setdefault("max_tokens", max(tokens, given.get("min_tokens", 0)))
    SamplingParams.from_dict(given)
    return given


def _unset(value: Any) -> bool:
    """Whether a flag was left out: 0 is a value, an absent switch or an empty list is none."""
    return value is None or value is False or value in ([], ())


def check_effect(overrides: Mapping[str, Any], params: Any) -> None:
    """UsageError when a flag would do nothing under the completed parameters."""
    if params.temperature != 0:
        return
    idle = [name for name in _ONLY_WHEN_SAMPLING if name in overrides]
    if idle:
        raise UsageError(
            f"{spelled(idle[0])} does nothing at temperature 0: add --temperature, for "
            "example --temperature 0.7"
        )


def speculative_config(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping for `SpeculativeConfig.from_dict`; checked. UsageError when two flags say
    different things."""
    from draftproof.core.rules import RULES
    from draftproof.decode.config import SpeculativeConfig

    mapping = _config_of(flags)
    rule = SpeculativeConfig.from_dict(mapping).rule_name  # one that nobody names is lossless
    if flags["lossless"] and rule is not None and not RULES[rule].lossless:
        raise UsageError(
            f"rule {RULES[rule].name!r} changes the target's law, which --lossless "
            "forbids: leave one of them out"
        )
    return mapping


def _config_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    from draftproof.decode.config import SpeculativeConfig

    given = {
        "method": flags["method"],
        "model": flags["draft"],
        "num_speculative_tokens": flags["num_speculative_tokens"],
        "rule": flags["rule"],
        "tree": flags["tree"],
    }
    given = {key: value for key, value in given.items() if value is not None}
    if flags["speculative_config"] is not None:
        whole = parse_json("--speculative-config", flags["speculative_config"])
        config = SpeculativeConfig.from_dict(whole)
        if config.method == "none" and "method" not in whole:
            raise UsageError(
                '--speculative-config names no method; begin it with {"method": '
                '"ngram"}, for example'
            )
        _check_agreement(given, config)
        return whole
    if "model" in given and not takes_model(given.setdefault("method", "draft_model")):
        raise UsageError(
            f"--draft means --method draft_model, but --method is {given['method']}: "
            "leave one of them out"
        )
    if given.get("method") == "none" and len(given) > 1:
        other = next(_SPELLED[key] for key in given if key != "method")
        raise UsageError(f"{other} does nothing with --method none: leave one of them out")
    if not given.keys() - {"num_speculative_tokens"}:
        given |= usual_method(flags["target"], flags.get("prediction") is not None)
    given.setdefault("method", DEFAULT_METHOD)
    if takes_model(given["method"], always=True) and "model" not in given:
        raise UsageError(
            f"--method {given['method']} needs a draft model: add --draft with its hub id or folder"
        )
    return given


def usual_method(target: str | None, predicted: bool = False) -> dict[str, Any]:
    """What drafts when nothing says how: for a target whose head comes with the package, that head
    and suffix matches side by side, in each round the one that promises most; else prompt lookup.
    predicted: beside a text that the answer may repeat."""
    from draftproof.heads.shipped import has_head
    from draftproof.models.pull import DEFAULT_MODEL

    headed = has_head(DEFAULT_MODEL if target is None else target)
    if predicted or headed:
        drafters = [
            *(["prediction"] if predicted else []),
            "suffix",
            *(["eagle3"] if headed else []),
        ]
        return {"method": "auto", "drafters": drafters}
    return {"method": DEFAULT_METHOD}


def takes_model(method: str, always: bool = False) -> bool:
    """Whether `method` takes --draft, or cannot do without; False for a name that is no method,
    which the config refuses."""
    from draftproof.drafters.registry import METHODS

    return (
        method in METHODS
        and METHODS[method].model is not None
        and not (always and METHODS[method].model_optional)
    )


_SPELLED = {
    "method": "--method",
    "model": "--draft",
    "num_speculative_tokens": "-k",
    "rule": "--rule",
    "tree": "--tree",
}


def _check_agreement(given: Mapping[str, Any], config: Any) -> None:
    """The JSON is the whole configuration, its defaults included: a flag beside it may only repeat
    what it says."""
    from draftproof.core.tree import TreeShape

    said = {
        "method": config.method,
        "model": config.model,
        "num_speculative_tokens": config.num_speculative_tokens,
        "rule": config.rule_name,
    }
    for key, value in given.items():
        if key == "tree":
            value, said[key] = TreeShape.parse(value).parents, config.tree
        if value != said[key]:
            raise UsageError(
                f"{_SPELLED[key]} {value} contradicts --speculative-config, "
                f"in which {key} is {said[key]}: leave one of them out"
            )


def parse_json(flag: str, text: str) -> dict[str, Any]:
    """The JSON object a flag holds."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise UsageError(
            f"{flag} is nested too deeply; it looks like '{{\"key\": value}}'"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{flag} is not JSON ({error}); it looks like '{{\"key\": value}}', in "
            "single quotes for the shell"
        ) from error
    if not isinstance(value, dict):
        raise UsageError(f"{flag} is {text}; it must be a JSON object, like '{{\"key\": value}}'")
    return value


def template_options(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `TemplateOptions` that the flags set, checked."""
    from draftproof.decode.template import TemplateOptions

    given: dict[str, Any] = {}
    if flags["tools"] is not None:
        given["tools"] = _read_tools(flags["tools"])
    if flags["chat_template_kwargs"] is not None:
        given["chat_template_kwargs"] = parse_json(
            "--chat-template-kwargs", flags["chat_template_kwargs"]
        )
    TemplateOptions.of(given)
    return given


def _read_tools(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--tools {file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--tools {file} is not JSON: {error}") from error


def _json_or_file(flag: str, given: str) -> Any:
    """JSON, or the file that holds it."""
    path = Path(given)
    if given.lstrip().startswith(("{", "[", '"')):
        return parse_json(flag, given)
    try:
        return parse_json(flag, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag} {path} cannot be read: {error}") from error


def _biases(values: Mapping[str, Any]) -> dict[int, Any]:
    try:
        biases = {int(token): bias for token, bias in values.items()}
    except ValueError as error:
        raise UsageError(f"--logit-bias has a key that is no token id: {error}") from error
    if len(biases) < len(values):
        raise UsageError(f"--logit-bias names a token twice: {', '.join(values)}")
    return biases


_READ: Mapping[str, Callable[[Any], Any]] = {
    "logit_bias": lambda text: _biases(parse_json("--logit-bias", text)),
    "structured_outputs": lambda text: _json_or_file("--structured-outputs", text),
    "skip_special_tokens": lambda shown: not shown,
}
"""Parameter -> how its flag's word is read, where that is not its value."""


def spelled(name: str) -> str:
    """A field's name as the flag it is on the command line."""
    return "--" + name.replace("_", "-")


Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        "--file",
        metavar="FILE",
        help=(
            "Prompts: text with --- between them, JSON lines, or Spec-Bench's questions. "
            "Default: a built-in set."
        ),
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Only prompts of this kind, as chat, by the 'category' of their line; repeatable.",
    ),
]
PerWorkload = Annotated[
    int | None,
    typer.Option(
        "--per-workload", metavar="N", min=1, help="Only the first N prompts of each kind."
    ),
]

Tools = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="FILE",
        help=(
            "Tools the model may call: a file with a JSON list of their schemas, for the "
            "chat template."
        ),
        show_default=False,
    ),
]
TemplateVariables = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Variables of the chat template, as '{\"enable_thinking\": false}'.",
        show_default=False,
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="TEXT",
        help="System message that goes before what is asked.",
        show_default=False,
    ),
]
Show = Annotated[
    bool,
    typer.Option(
        "--show",
        metavar="",
        help=(
            "Colour each token by how it came: accepted draft, replacement of a rejected "
            "one, bonus or plain."
        ),
    ),
]
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="End with one JSON document on the last line.")
]
ResultFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the result, raw data included, to this file."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with tables and plots to this file."),
]


def check_files(flags: Mapping[str, Any]) -> None:
    """UsageError when what `ResultFile` and `Page` name could not be written, or is one file."""
    from draftproof.report.page import check_writable

    named = [flags[name] for name in ("out", "html") if flags[name] is not None]
    for path in named:
        check_writable(path)
    if len(named) > len({path.resolve() for path in named}):
        raise UsageError(
            f"--out and --html both name {named[0]}: the page would replace the result"
        )
