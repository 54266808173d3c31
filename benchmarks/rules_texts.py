"""The prompts of rules_on_real_pair.py."""

from __future__ import annotations

from real_models import prompts


def texts() -> dict[str, str]:
    """Short code tasks and questions in turn, more of them, then the longer code edits of
    real_models.py. A new one goes to the end of the short ones: the draws of a round are keyed by
    its prompt's place."""
    longer = prompts()
    short = {
        "code fizz": (
            "Write a Python function that returns the first n lines of FizzBuzz as a list of "
            "strings."
        ),
        "code sql": (
            "Write an SQL query for the three customers with the highest total of orders in 2023."
        ),
        "code regex": (
            "Explain and fix this regular expression for dates: `\\d{4}-\\d{1,2}-\\d{1,2}$`"
        ),
    }
    chats = {
        name: text for name, text in longer.items() if name not in short and name.startswith("chat")
    }
    found = {
        name: text for pair in zip(short.items(), chats.items(), strict=True) for name, text in pair
    }
    found |= {
        "code csv": (
            "Write a Python function that reads a CSV file and returns the mean of one "
            "column, skipping empty cells."
        ),
        "chat 3": "Why do leaves change their colour in autumn?",
        "code bash": (
            "Write a bash one-liner that lists the ten largest files under the current directory."
        ),
        "chat 4": "Give me three tips for learning a new language as an adult.",
        "code class": (
            "Write a small Python class for a stack with push, pop and peek, with docstrings."
        ),
        "chat 5": "Summarise in two sentences what the French Revolution changed.",
    }
    return found | {name: text for name, text in longer.items() if name not in found}
