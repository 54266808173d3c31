"""The comparison with other engines: its ratios, and workers that fail."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from benchmark_scripts import FOLDER, script

sys.path.insert(0, str(FOLDER / "peers"))
compare = script("peers/compare")

WORKER = """
import json, sys
print(json.dumps({"ready": 0.1, "version": "fake"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["way"].get("lookup") and asked["temperature"]:
        print(json.dumps({"error": "greedy only"}), flush=True)
    else:
        seconds = 0.5 if asked["way"] else 1.0
        print(json.dumps({"token_ids": [1] * asked["max_tokens"], "seconds": seconds}), flush=True)
"""


def line(arm, prompt, seconds, own):
    about = {"arm": arm, "own": own, "prompt": prompt, "temperature": 0, "tokens": 10}
    return about | {"seconds": seconds}


def test_ratios_are_paired_by_prompt_and_held_against_the_fastest_plain_arm():
    lines = []
    for number, slow in enumerate((1.0, 4.0, 2.0)):  # prompts differ more than arms do
        lines.append(line("a plain", f"chat {number}", slow, "a plain"))
        lines.append(line("a fast", f"chat {number}", slow / 2, "a plain"))
        lines.append(line("b plain", f"chat {number}", slow / 4, "b plain"))
    head, _, *rows = compare.table(lines)
    assert head == "| arm | tokens per second | to its own plain | to b plain |"
    assert rows == [
        "| a fast | 10.0 | 2.00 (2.00 to 2.00) | 0.50 (0.50 to 0.50) |",
        "| a plain | 5.0 |  | 0.25 (0.25 to 0.25) |",
        "| b plain | 20.0 |  |  |",
    ]


def test_a_way_that_fails_is_left_out_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(compare, "WORKER", worker)
    monkeypatch.setattr(compare, "prompts_of", lambda _: {"edits 0": [1], "chat 0": [2]})
    ways = {"plain": {}, "lookup": {"lookup": 5}}
    arms = [
        compare.Arm(f"fake {name}", "fake", "fake plain", sys.executable, {}, way)
        for name, way in ways.items()
    ]
    gone = compare.Arm("gone plain", "fake", "gone plain", str(tmp_path / "none"), {}, {})
    monkeypatch.setattr(compare, "arms_of", lambda *_: [*arms, gone])
    raw = tmp_path / "raw.jsonl"
    args = Namespace(raw=raw, temperatures=[0.0, 0.7], tokens=4)
    compare.run(args)
    lines = [json.loads(each) for each in raw.read_text().splitlines()]
    written = [(each["arm"], each["temperature"]) for each in lines if "tokens" in each]
    assert sorted(written) == sorted(
        [("fake plain", 0.0), ("fake lookup", 0.0), ("fake plain", 0.7)] * 2
    )
    assert {each["left_out"] for each in lines if "left_out" in each} == {
        "gone plain",
        "fake lookup",
    }
    compare.run(args)  # goes on with what is lacking: nothing but what failed
    again = [json.loads(each) for each in raw.read_text().splitlines()]
    assert sum("tokens" in each for each in again) == len(written)
    compare.report(args)
    told = capsys.readouterr().out
    assert "| fake lookup | 8.0 | 2.00 (2.00 to 2.00) |" in told
