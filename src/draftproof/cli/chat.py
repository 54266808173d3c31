"""`draftproof chat`: a conversation on the terminal. A turn reads only what is new; Ctrl-C ends an
answer, not the chat.

Without a terminal every line of standard input is a turn, so that a conversation can be piped in.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from draftproof.cli import options
from draftproof.cli.main import Terminated
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.cli.show import Writer
    from draftproof.decode.chat import Chat
    from draftproof.decode.decoder import SpeculativeDecoder
    from draftproof.decode.result import Result

COMMANDS = {
    "/undo": "take back the last turn",
    "/reset": "begin again",
    "/help": "this list",
    "/exit": "leave; so does Ctrl-D",
}

SHOWN_FLAGS = {
    name: flag for name, flag in options.TEXT_FLAGS.items() if name not in ("n", "logprobs")
}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("chat")(chat)


@options.with_flags(
    options.DRAFT_FLAGS, options.LAW_FLAGS, options.END_FLAGS, SHOWN_FLAGS, options.MACHINE_FLAGS
)
def chat(
    context: typer.Context,
    system: options.System = None,
    tools: options.Tools = None,
    chat_template_kwargs: options.TemplateVariables = None,
    show: options.Show = False,
    as_json: options.Json = False,
    **_: Any,
) -> None:
    """Talk with a model, turn by turn; what was read stays read."""
    execute({**context.params, "n": None, "logprobs": None})


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, load, and take turns until there are no more. A turn that cannot be taken,
    as one that no longer fits, is told, and on a terminal the conversation goes on."""
    from draftproof.cli.generate import complete_params, load

    config = options.speculative_config(flags)
    overrides, template = options.sampling_overrides(flags), options.template_options(flags)
    decoder = load(flags, config)
    turns: list[dict[str, Any]] = []
    refused: UsageError | None = None
    with decoder.chat(system=flags["system"], **template) as conversation:
        # refuses flags that would do nothing, and a template that does not know them, before a turn
        # is typed
        complete_params(decoder, conversation.prompt_ids("?"), overrides)
        for text in _inputs():
            if text.startswith("/"):
                if text == "/exit":
                    break
                _obey(text, conversation)
                continue
            try:
                turns.append(_turn(decoder, conversation, text, flags, overrides))
            except UsageError as error:
                if not sys.stdin.isatty():
                    refused = error
                    break
                print(error, file=sys.stderr)
        messages = list(conversation.messages)
    if flags["as_json"]:
        from draftproof.report.tables import json_line

        print(json_line({"turns": turns, "messages": messages, "config": decoder.config.as_dict()}))
    if refused is not None:
        raise refused


def _turn(
    decoder: SpeculativeDecoder,
    conversation: Chat,
    text: str,
    flags: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    """Ask, show the answer as it comes, and say what it took."""
    from draftproof.cli.generate import complete_params
    from draftproof.cli.show import Writer
    from draftproof.cli.single import as_dict

    params = complete_params(decoder, conversation.prompt_ids(text), overrides)
    writer = Writer(origins=flags["show"])
    with _interruptible() as enough:
        stream = conversation.stream(text, params, cancel=enough)
        result = _drain(stream, writer)
    print(_summary(result), file=sys.stderr)
    return as_dict(result.outputs[0]) | {
        "question": text,
        "num_prompt_tokens": len(result.prompt_token_ids),
        "num_cached_tokens": result.num_cached_tokens,
        "seed": result.seed,
    }


def _drain(stream: Any, writer: Writer) -> Result:
    try:
        while True:
            piece = next(stream)
            writer.piece(piece.text, piece.origin)
    except StopIteration as done:
        result: Result = done.value
        return result
    finally:
        writer.line_end()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """While an answer comes, Ctrl-C sets the event that is yielded, and the answer ends within one
    round."""
    enough = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield enough
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: enough.set())
    try:
        yield enough
    finally:
        signal.signal(signal.SIGINT, before)


def _inputs() -> Iterator[str]:
    """What the user says, a line at a time, blank ones left out."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print(
            "Type and press return. "
            + "; ".join(f"{name}: {what}" for name, what in COMMANDS.items()),
            file=sys.stderr,
        )
    while True:
        try:
            line = _ask() if is_terminal else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt) as ended:
            print(file=sys.stderr)
            if isinstance(ended, Terminated):
                raise
            return
        if not is_terminal and not line:
            return
        if line.strip():
            yield line.strip()


def _ask() -> str:
    from rich.console import Console

    return Console(stderr=True).input("[bold]> [/bold]")


def _obey(command: str, conversation: Chat) -> None:
    try:
        if command == "/undo":
            conversation.undo()
            print("the last turn is taken back", file=sys.stderr)
        elif command == "/reset":
            conversation.reset()
            print("a new conversation", file=sys.stderr)
        elif command == "/help":
            print("; ".join(f"{name}: {what}" for name, what in COMMANDS.items()), file=sys.stderr)
        else:
            print(
                f"there is no command {command.split()[0]}; there are {', '.join(COMMANDS)}",
                file=sys.stderr,
            )
    except UsageError as error:
        print(error, file=sys.stderr)


def _summary(result: Result) -> str:
    read = len(result.prompt_token_ids) - result.num_cached_tokens
    parts = [
        f"{len(result.token_ids)} tokens ({result.finish_reason})",
        f"{result.tokens_per_second:.1f} tok/s",
    ]
    parts.append(f"{read} of {len(result.prompt_token_ids)} prompt tokens read")
    if result.stats.tokens_per_round is not None and result.stats.method != "none":
        parts.append(f"{result.stats.tokens_per_round:.2f} tokens a round")
    return "; ".join([*parts, f"seed {result.seed}", *result.stats.notes])
