"""A small set of prompts for when none are given: code editing, chat, summary and extraction.
Written for this package."""

from __future__ import annotations

_FUNCTIONS = (
    (
        "Rename the parameter `xs` to `values` everywhere",
        "def running_mean(xs, width):\n    total = sum(xs[:width])\n    means = [total / width]\n"
        "    for i in range(width, len(xs)):\n        total += xs[i] - xs[i - width]\n   "
        "     means.append(total / width)\n"
        "    return means\n",
    ),
    (
        "Add a type hint to every parameter and to the return value",
        "def count_words(text, lowest=1):\n    counts = {}\n    for word in text.lower().split():\n"
        "        counts[word] = counts.get(word, 0) + 1\n"
        "    return {word: n for word, n in counts.items() if n >= lowest}\n",
    ),
    (
        "Raise a ValueError when `width` is smaller than 1",
        "def wrap_line(line, width):\n    pieces = []\n    while len(line) > width:\n"
        "        cut = line.rfind(' ', 0, width + 1)\n        cut = width if cut <= 0 else cut\n"
        "        pieces.append(line[:cut].rstrip())\n        line = "
        "line[cut:].lstrip()\n    pieces.append(line)\n"
        "    return pieces\n",
    ),
    (
        "Add a docstring of one line",
        "def merge_sorted(left, right):\n    merged = []\n    i = j = 0\n    while i < "
        "len(left) and j < len(right):\n"
        "        if left[i] <= right[j]:\n            merged.append(left[i])\n           "
        " i += 1\n        else:\n"
        "            merged.append(right[j])\n            j += 1\n    return merged + "
        "left[i:] + right[j:]\n",
    ),
    (
        "Use `pathlib.Path` instead of `os.path`",
        "import os\n\ndef list_sources(folder):\n    found = []\n    for name in "
        "sorted(os.listdir(folder)):\n"
        "        path = os.path.join(folder, name)\n        if os.path.isfile(path) and "
        "name.endswith('.py'):\n"
        "            found.append(path)\n    return found\n",
    ),
    (
        "Return the number of removed items as a second value",
        "def drop_repeats(items):\n    seen = set()\n    kept = []\n    for item in "
        "items:\n        if item in seen:\n"
        "            continue\n        seen.add(item)\n        kept.append(item)\n    "
        "return kept\n",
    ),
    (
        "Rename the function to `clamp_all` and the variable `r` to `clamped`",
        "def limit(values, low, high):\n    r = []\n    for value in values:\n        if "
        "value < low:\n"
        "            r.append(low)\n"
        "        elif value > high:\n            r.append(high)\n        else:\n         "
        "   r.append(value)\n    return r\n",
    ),
    (
        "Close the file with a `with` statement",
        "def read_pairs(path):\n    file = open(path, encoding='utf-8')\n    pairs = "
        "{}\n    for line in file:\n"
        "        key, _, value = line.strip().partition('=')\n        if key:\n          "
        "  pairs[key] = value\n"
        "    file.close()\n    return pairs\n",
    ),
)

_REPORT = (
    "The workshop met on Tuesday to look at the delays of the spring. Mara said that "
    "parts from the coast arrived nine days "
    "late on average, and that two customers had cancelled. Jonas had tried a second "
    "supplier inland; its parts cost "
    "12 percent more but came within three days. The group agreed to order a third of "
    "the parts inland until October, to write "
    "to the two customers, and to count the late deliveries every week. Ines will "
    "prepare the letters by Friday."
)
_NOTICE = (
    "On the 14th of May the library on Elm Street will close its reading room at 4 pm "
    "because the heating is being repaired. "
    "Books can be returned through the flap beside the door. The evening course on "
    "bookkeeping moves to room 12 of the school "
    "on Park Road and begins at 6:30 pm as usual. Questions are answered by Tom Reyes at "
    "extension 417."
)

BUILTIN: dict[str, tuple[str, ...]] = {
    "code-editing": tuple(
        (
            f"{task} in the function below. Answer with the whole changed code and nothing "
            f"else.\n\n```python\n{source}```"
        )
        for task, source in _FUNCTIONS
    ),
    "chat": (
        "What makes a good first project for someone who has just learned to program?",
        "Explain to a ten-year-old why the sky is blue.",
        "I have two free days in a city I do not know. How should I plan them?",
        "Why do some languages have grammatical gender, and what is it good for?",
        "Give me three arguments for and three against working four days a week.",
        "How does a bicycle stay upright when it moves?",
        "Write a short, friendly note to a neighbour whose music is too loud.",
        "What is the difference between weather and climate?",
    ),
    "summary": (
        f"Summarise this report in three sentences.\n\n{_REPORT}",
        f"Write a headline and two sentences about this notice.\n\n{_NOTICE}",
    ),
    "extraction": (
        (
            "List every person in this report with what they said or will do, one a "
            f"line.\n\n{_REPORT}"
        ),
        f"Give the dates, times, places and names in this notice as JSON.\n\n{_NOTICE}",
    ),
}
"""Workload -> prompts, in the order they are run."""
