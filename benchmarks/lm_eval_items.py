"""Fifty items for lm-evaluation-harness that need no download: how a sentence of this project's own
pages goes on, among three other sentences' ends.

    python benchmarks/lm_eval_items.py FOLDER      # writes continuation.yaml and continuation.jsonl

A score says little about a model. It is for comparing two ways of running one: the harness's own
Hugging Face backend and a server (docs/serve.md)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from random import Random

ITEMS = 50
TASK = """\
task: continuation
dataset_path: json
dataset_kwargs:
  data_files: {file}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{begin}}}}"
doc_to_choice: "{{{{ends}}}}"
doc_to_target: "{{{{right}}}}"
target_delimiter: " "
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "continuation.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in items()), encoding="utf-8")
    task = TASK.format(file=file.resolve())
    (folder / "continuation.yaml").write_text(task, encoding="utf-8")


def items() -> list[dict[str, object]]:
    halves, random = list(sentences()), Random(0)
    found = []
    for number in range(ITEMS):
        begin, end = halves[number]
        others = random.sample([each[1] for each in halves if each[1] != end], 3)
        ends = random.sample([end, *others], 4)
        found.append({"begin": begin, "ends": ends, "right": ends.index(end)})
    return found


def sentences() -> list[tuple[str, str]]:
    """Sentences of plain words, in two halves."""
    found = []
    for path in sorted((Path(__file__).parent.parent / "docs").glob("*.md")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for sentence in re.findall(r"(?<=[.:] )[A-Z][a-z][A-Za-z ,;']{50,160}\.", text):
            words = sentence.split()
            middle = len(words) // 2
            found.append((" ".join(words[:middle]), " ".join(words[middle:])))
    return found


if __name__ == "__main__":
    main()
