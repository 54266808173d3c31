"""`draftproof audit --black-box`: the texts of a server, or of a function, against the law of a
local copy of its target."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.cli import options
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.audit.black_box.copies import LocalCopy
    from draftproof.audit.black_box.run import BlackBox, Plan
    from draftproof.audit.black_box.samples import Ids, TextEngine

DEFAULT_TOKENS = 64
DEFAULT_TEXTS = 64
DEFAULT_SIZE = 0.05


def run(flags: Mapping[str, Any]) -> int:
    """Sample, score, show; 1 when the engine is not exact."""
    from draftproof.audit.black_box import check_distributions

    check_distributions()
    from draftproof.audit import report
    from draftproof.audit.black_box.run import audit_black_box
    from draftproof.audit.engines.endpoint import EndpointEngine
    from draftproof.cli.key import without_key
    from draftproof.cli.progress import telling
    from draftproof.core.params import SamplingParams
    from draftproof.report.page import check_writable, write_page
    from draftproof.report.tables import json_line, print_result

    _check(flags)
    if flags["html"] is not None:
        check_writable(flags["html"])
    whole = {**dict.fromkeys((*options.END_FLAGS, *options.LAW_FLAGS)), **flags}
    given = options.sampling_overrides(whole, DEFAULT_TOKENS)
    params = SamplingParams.from_dict({"seed": 0, "ignore_eos": True, "temperature": 1.0} | given)
    if params.temperature == 0:
        raise UsageError(
            "at temperature 0 every law is one token: a black box has nothing to test; use --greedy"
        )
    plan = _plan(flags, params)
    engine = _engine(flags["url"] or flags["subject"], flags)
    control = None if flags["control"] is None else _engine(flags["control"], flags)
    prompts, copy, tokenizer = _texts(flags, params)
    for one in (engine, control):
        if isinstance(one, EndpointEngine):
            one.tokenizer = tokenizer
    try:
        with telling() as tell:
            found = audit_black_box(
                engine, prompts, params, copy=copy, control=control, plan=plan, tell=tell
            )
    except KeyboardInterrupt:
        print(_kept(flags["out"]), file=sys.stderr)
        raise
    print_result(report.result_of(found))
    command = report.as_arguments(["draftproof", *without_key(sys.argv[1:])])
    _keep(found, command, flags["out"])
    if flags["html"] is not None:
        write_page(flags["html"], report.page_of(found, command))
    if flags["as_json"]:
        print(json_line(report.json_document(found)))
    return found.verdict.exit_code


def _check(flags: Mapping[str, Any]) -> None:
    """UsageError for what contradicts itself, before anything is loaded."""
    if (flags["url"] is None) == (flags["subject"] is None):
        raise UsageError(
            "--black-box audits one engine: --url with a server's address, or "
            "module:function of yours"
        )
    if flags["without_copy"]:
        if flags["control"] is None:
            raise UsageError(
                "--without-copy compares texts with those of --control: name the engine "
                "without speculation"
            )
        if flags["url"] is None:
            raise UsageError("--without-copy compares the texts of servers as strings: give --url")
        for name in ("target", "draft"):
            if flags[name] is not None:
                raise UsageError(
                    f"--{name} would be a local copy, and --without-copy asks for none: "
                    "leave one of them out"
                )
    if flags["until_sure"] and flags["num_texts"] is not None:
        raise UsageError(
            "--until-sure goes on until it is sure, and --num-texts says when to stop: "
            "leave one of them out"
        )


def _plan(flags: Mapping[str, Any], params: Any) -> Plan:
    from draftproof.audit.black_box.run import Plan
    from draftproof.audit.black_box.samples import Folder

    texts, wanted = flags["num_texts"] or DEFAULT_TEXTS, flags["size"] or DEFAULT_SIZE
    asked = {
        name: flags[name]
        for name in (
            "url",
            "subject",
            "control",
            "target",
            "served_model",
            "workload",
            "per_workload",
        )
    }
    asked["prompts"] = None if flags["prompts"] is None else str(flags["prompts"])
    asked |= {
        "params": repr(params),
        "texts_of_control": texts if flags["control"] is not None else None,
    }
    folder = None if flags["out"] is None else Folder(flags["out"], asked)
    return Plan(texts, flags["level"], wanted, flags["until_sure"], folder)


def _texts(flags: Mapping[str, Any], params: Any) -> tuple[list[Ids], LocalCopy | None, Any]:
    """Prompts as ids, the local copy, and the tokenizer that made the ids."""
    from draftproof.audit.black_box.copies import LocalCopy
    from draftproof.audit.engines.endpoint import Characters
    from draftproof.cli.bench import items_of
    from draftproof.cli.loading import load_target
    from draftproof.workloads.prompt_files import encode

    items = items_of(flags)
    if flags["without_copy"]:
        return [tuple(Characters().encode(_plain_text(item))) for item in items], None, Characters()
    target, drafts = load_target({**flags, "engine": "torch", "quantize": None})
    draft = None if flags["draft"] is None else drafts(flags["draft"])
    prompts = encode(
        items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens
    )
    return [tuple(one.ids) for one in prompts], LocalCopy(target, params, draft), target.tokenizer


def _plain_text(item: Any) -> str:
    """The text of a prompt that is one, or a chat of a single message of the user's."""
    prompt = item.prompt
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0].get("role") == "user":
        prompt = prompt[0]["content"]
    if not isinstance(prompt, str):
        raise UsageError(
            f"{item.where} is a chat, and without a local copy there is no template for "
            "it: give --prompts of text"
        )
    return prompt


def _engine(place: str, flags: Mapping[str, Any]) -> TextEngine:
    """A server by its address, or a function by module:function or file.py:function."""
    from draftproof.audit.engines.callables import CallableEngine
    from draftproof.audit.engines.endpoint import EndpointEngine
    from draftproof.cli.key import api_key

    if place == flags["subject"] or _is_function(place):
        return CallableEngine.named(place)
    return EndpointEngine(place, model=flags["served_model"], key=api_key(flags))


def _is_function(place: str) -> bool:
    module, colon, name = place.rpartition(":")
    is_file = module.endswith(".py") and "://" not in module
    parts = name.split(".") if is_file else (*module.split("."), *name.split("."))
    return bool(colon) and all(part.isidentifier() for part in parts)


def _kept(folder: Path | None) -> str:
    if folder is None or not folder.exists():
        return "draftproof: interrupted, and no text was kept; --out FOLDER keeps them"
    return f"draftproof: interrupted; the same command goes on with the texts in {folder}"


def _keep(found: BlackBox, command: str, folder: Path | None) -> None:
    """The result beside its samples."""
    from draftproof.audit import report
    from draftproof.report.page import write_json, write_page

    if folder is None:
        return
    write_json(folder / "result.json", report.json_document(found))
    write_page(folder / "report.md", report.reproduction(found, command) + "\n")
    write_page(folder / "report.html", report.page_of(found, command))
