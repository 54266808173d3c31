"""The built-in prompts of training: questions by topic, edits of standard-library functions,
summaries of its documentation.

Sources lie in every Python installation, so nothing is downloaded and nothing of another's data is
carried along. Which functions there are depends on the version of Python; the answers that were
trained on are recorded, not the prompts' source."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from draftproof.train.prompts import TrainPrompt

LEFT_OUT = (
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "site-packages",
    "ensurepip",
    "turtledemo",
    "encodings",
    "__pycache__",
)
FUNCTION_LINES = range(5, 26)
PASSAGE_WORDS = range(60, 221)
ONE_FUNCTION_IN = 3

EDITS = (
    "Add a docstring to this function.",
    "Add type hints to the parameters and the return value of this function.",
    "Add a short comment above every important step of this function.",
    "Rename the first parameter of this function to `value` everywhere.",
    "Rename this function to `compute` and keep everything else as it is.",
    "Raise a ValueError at the beginning of this function when its first argument is None.",
    "Remove all comments and the docstring from this function.",
    "Use double quotes instead of single quotes in this function.",
    "Add a print statement at the beginning of this function that shows its arguments.",
    "Rewrite this function so that the local variables have longer, clearer names.",
)
READINGS = (
    "Summarize the following text in two sentences.",
    "List the key points of the following text.",
    "What is the following text about? Answer in one paragraph.",
    "Explain the following text to a beginner.",
    "Extract all technical terms from the following text as a list.",
    "Rewrite the following text in simpler words.",
    "Give the following text a title, then summarize it.",
    "Write three questions that the following text answers, each with its answer.",
)
QUESTIONS = (
    "Explain {} to a ten-year-old.",
    "What are the most important facts about {}?",
    "Write a short story about {}.",
    "Give me five tips about {}.",
    "What are the advantages and disadvantages of {}?",
    "Write an email to a friend about {}.",
    "Describe the history of {} in one paragraph.",
    "I want to learn about {}. Where should I start?",
    "Write a poem about {}.",
    "What are common misunderstandings about {}?",
    "Write a dialogue between two people who disagree about {}.",
    "Plan a one-day workshop about {}.",
)
TOPICS = (
    *(
        "volcanoes",
        "bicycles",
        "the water cycle",
        "chess",
        "black holes",
        "bread baking",
        "public libraries",
        "sleep",
    ),
    *(
        "the Roman Empire",
        "electric cars",
        "bees",
        "jazz",
        "vaccines",
        "mountain climbing",
        "prime numbers",
        "coffee",
    ),
    *(
        "computer programming",
        "gardening",
        "the stock market",
        "photography",
        "the human heart",
        "trains",
        "tea",
        "rain",
    ),
    *(
        "time management",
        "job interviews",
        "learning a language",
        "renewable energy",
        "the moon",
        "football",
        "painting",
    ),
    *(
        "democracy",
        "artificial intelligence",
        "ocean currents",
        "cats",
        "running a marathon",
        "poetry",
        "glaciers",
        "maps",
    ),
    *(
        "cooking for a family",
        "saving money",
        "friendship",
        "the printing press",
        "earthquakes",
        "opera",
        "recycling",
    ),
    *(
        "mathematics at school",
        "working from home",
        "space travel",
        "medieval castles",
        "dinosaurs",
        "public speaking",
    ),
    *(
        "the internet",
        "healthy eating",
        "birds",
        "architecture",
        "museums",
        "camping",
        "the French Revolution",
        "honey",
    ),
)


def chat_prompts() -> list[TrainPrompt]:
    """Every question about every topic."""
    return [
        TrainPrompt.ask(question.format(topic), "chat")
        for question in QUESTIONS
        for topic in TOPICS
    ]


def code_prompts() -> list[TrainPrompt]:
    """An edit of one in `ONE_FUNCTION_IN` functions of the standard library, both chosen by the
    function's own text."""
    prompts = []
    for code in library()[0]:
        number = _hash(code)
        if number % ONE_FUNCTION_IN == 0:
            edit = EDITS[number // ONE_FUNCTION_IN % len(EDITS)]
            prompts.append(
                TrainPrompt.ask(
                    f"{edit} Give the whole function.\n\n```python\n{code}\n```", "code"
                )
            )
    return prompts


def summary_prompts() -> list[TrainPrompt]:
    """One reading of every passage of documentation."""
    return [
        TrainPrompt.ask(f"{READINGS[_hash(text) % len(READINGS)]}\n\n{text}", "summary")
        for text in library()[1]
    ]


KINDS: dict[str, Callable[[], list[TrainPrompt]]] = {
    "chat": chat_prompts,
    "code": code_prompts,
    "summary": summary_prompts,
}
"""The built-in kinds of prompt."""


@cache
def library() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the standard library: the source of functions of a middling length, methods included, and
    the docstrings that are long enough to be summarised; each once."""
    functions: dict[str, None] = {}
    passages: dict[str, None] = {}
    for text, tree in _modules():
        lines = text.splitlines()
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef)
                and (node.end_lineno or 0) - node.lineno + 1 in FUNCTION_LINES
            ):
                functions[textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))] = (
                    None
                )
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                passage = ast.get_docstring(node) or ""
                if len(passage.split()) in PASSAGE_WORDS:
                    passages[passage] = None
    return tuple(functions), tuple(passages)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Source and syntax tree of the standard library's modules, in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if any(part in LEFT_OUT for part in path.relative_to(root).parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            yield text, ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
