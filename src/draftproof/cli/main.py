"""The command `draftproof`: one verb a module, imported only when it is chosen.

`draftproof --help` therefore loads no model library. A verb lives in `cli/<verb>.py` (a dash
becomes an underscore), which has `register(app)`; it is listed here with its line of help, and
shown only when its module exists.

Exit codes: 0 done; 1 a negative verdict (`audit` found a fault); 2 wrong usage, told in one
sentence on standard error; 130 interrupted; 143 ended by SIGTERM, which is taken as Ctrl-C is; 141
when whoever read standard output went away, as the shell reports it for any command.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from draftproof import __version__
from draftproof.errors import DraftproofError, UsageError

PROGRAM = "draftproof"

VERBS = {
    "generate": "Generate text from a prompt, plainly or speculatively, or both side by side.",
    "chat": "Talk with a model; a turn reads only what is new.",
    "serve": (
        "Serve a model to OpenAI's clients, every request drafted and batched beside the others."
    ),
    "pull": "Fetch the default model and keep it in the cache.",
    "plan": "Foretell whether speculation pays, with which drafter and which draft length.",
    "bench": "Measure ways of generating against plain decoding, on the same prompts.",
    "report": "Put several results of plan and bench on one HTML page.",
    "view": (
        "Show recorded rounds on one HTML page: every token by its origin, every draft with "
        "what was rejected."
    ),
    "build-store": "Count a corpus of yours into a file that drafters look in.",
    "audit": "Check that a decoder's output law is exactly its target's.",
    "train": "Train draft heads and draft models on text the target wrote itself.",
    "export": "Hand a trained head over to another engine.",
    "doctor": "Say what this machine and a pair of models can do, and why not more.",
    "simulate": "Tell what a draft would bring, from acceptance and cost alone.",
    "experiments": "Run the experiments on exactness and speed, and draw their figures.",
}
"""Verb -> its line in `draftproof --help`, in the order shown."""

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + 2  # SIGINT
EXIT_PIPE_CLOSED = 128 + 13  # SIGPIPE
EXIT_TERMINATED = 128 + 15  # SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whatever keeps its results when Ctrl-C ends it does so here too, and hands this
    on or raises it again."""


class LazyGroup(TyperGroup):
    """A group whose commands are empty shells, good for listing, until one is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of the shell, then choose as usual."""
        verb = args[0]
        if verb in self.commands:
            self.commands[verb] = load_verb(verb)
        elif not verb.startswith("-"):
            raise UsageError(unknown_verb(verb, list(self.commands)))
        return super().resolve_command(ctx, args)


def available_verbs() -> dict[str, str]:
    """The verbs whose module exists, with their help; imports none of them."""
    return {verb: text for verb, text in VERBS.items() if find_spec(module_of(verb))}


def module_of(verb: str) -> str:
    """The module of a verb: a dash in the one is an underscore in the other."""
    return f"draftproof.cli.{verb.replace('-', '_')}"


def load_verb(verb: str) -> Any:
    """Import `cli/<verb>.py` and return the command it registers under its own name."""
    app = typer.Typer(add_completion=False)
    import_module(module_of(verb)).register(app)
    return get_group(app).commands[verb]


def unknown_verb(verb: str, known: Sequence[str]) -> str:
    """The sentence for a verb that does not exist."""
    near = get_close_matches(verb, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(known)}"
    return f"there is no verb {verb!r}; {hint}"


def build_app() -> typer.Typer:
    """The whole command line, with shells for verbs."""
    app = typer.Typer(cls=LazyGroup, name=PROGRAM, add_completion=False, rich_markup_mode="rich")

    @app.callback(
        help=(
            "Speculative decoding you can prove: faster text whose law is exactly the target "
            "model's."
        )
    )
    def options(
        version: bool = typer.Option(
            False,
            "--version",
            is_eager=True,
            callback=show_version,
            help="Show the version and exit.",
        ),
    ) -> None:
        del version  # its callback has done the work

    for verb, text in available_verbs().items():
        app.command(verb, help=text)(lambda: None)
    return app


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every expected failure is one sentence on
    standard error."""
    try:
        code = invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as ended:
        return EXIT_TERMINATED if isinstance(ended, Terminated) else EXIT_INTERRUPTED
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # rich's way of taking a closed pipe
            return EXIT_PIPE_CLOSED
        raise
    except BrokenPipeError:
        # The interpreter flushes standard output once more when it ends; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except DraftproofError as error:
        return complain(str(error))


def invoke(arguments: list[str]) -> int:
    """Parse and run. Not through typer's own `main`, which draws boxes around errors and takes
    closed pipes for failures."""
    try:
        with get_command(build_app()).make_context(PROGRAM, arguments) as context:
            result = context.command.invoke(context)
    except typer.Exit as finished:
        return finished.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:
        # typer carries its own copy of click in some versions and not in others; what wrong usage
        # looks like is the same.
        if not hasattr(error, "format_message"):
            raise
        return complain(error.format_message())
    return result if isinstance(result, int) else 0


def complain(message: str) -> int:
    """Say what is wrong, on one line of standard error."""
    print(f"{PROGRAM}: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USAGE


def main() -> NoReturn:
    """Entry point of the console script."""
    heed_termination()
    sys.exit(run(sys.argv[1:]))


def heed_termination() -> None:
    """From now on SIGTERM ends a command as Ctrl-C does; a second one ends the process at once."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
