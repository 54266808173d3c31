"""`rounds.jsonl`: what is written is what is read, and a broken file says which line is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel, __version__
from draftproof.core.records import Round, Seconds
from draftproof.decode.record import (
    RecordHeader,
    RoundWriter,
    header_for,
    params_as_dict,
    read_rounds,
    write_rounds,
)
from draftproof.errors import UsageError

HEADER = RecordHeader(
    target="table",
    method="ngram",
    rule="match",
    prompt_token_ids=(1, 2, 1),
    config={"method": "ngram", "num_speculative_tokens": 4},
    params={"temperature": 0.7, "seed": 5},
)
ROUNDS = [
    Round(
        3,
        (2, 1),
        (-1, 0),
        (2, 1, 0),
        ("draft", "draft", "bonus"),
        2,
        2,
        (0.5, 1.0),
        1,
        True,
        "a note",
        seconds=Seconds(1.0, 0.5, 2.0, 3.0),
    ),
    Round(6, (), (), (2,), ("plain",), 0, 0),
    Round(7, (1,), (-1,), (0,), ("replacement",), 0, 1, (0.25,)),
]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    write_rounds(path, HEADER, ROUNDS)
    header, rounds = read_rounds(path)
    assert header == HEADER
    assert header.draftproof == __version__
    assert rounds == ROUNDS
    # left out of equality
    assert [record.seconds for record in rounds] == [record.seconds for record in ROUNDS]
    first = json.loads(path.read_text().splitlines()[0])
    assert (first["format"], first["version"]) == ("draftproof.rounds", 1)


def test_every_round_is_on_disk_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    writer = RoundWriter(path)
    writer.header(HEADER)
    for count, record in enumerate(ROUNDS, 1):
        writer.round(record)
        assert read_rounds(path) == (HEADER, ROUNDS[:count])
    writer.close()


def test_a_stream_is_recorded_round_by_round_and_the_record_is_the_results(tmp_path: Path) -> None:
    model = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    decoder = SpeculativeDecoder(
        None, model, speculative_config={"method": "ngram", "num_speculative_tokens": 3}
    )
    path, params = tmp_path / "rounds.jsonl", SamplingParams(max_tokens=12, seed=1, n=2)
    with RoundWriter(path) as writer:
        writer.header(header_for(decoder, [0, 1, 2], params))
        stream = decoder.stream([0, 1, 2], params, on_round=writer.round)
        while True:
            try:
                next(stream)
            except StopIteration as done:
                result = done.value
                break
    header, rounds = read_rounds(path)
    assert (header.target, header.method, header.rule, header.prompt_token_ids) == (
        "table",
        "ngram",
        "match",
        (0, 1, 2),
    )
    assert (
        header.params == {"max_tokens": 12, "seed": 1, "n": 2}
        and header.config["num_speculative_tokens"] == 3
    )
    assert rounds == [record for output in result.outputs for record in output.rounds]
    assert [i for i, record in enumerate(rounds) if record.start == 3] == [
        0,
        len(result.outputs[0].rounds),
    ]
    assert [token for record in rounds for token in record.tokens] == [
        t for output in result.outputs for t in output.token_ids
    ]


def test_an_interrupted_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    write_rounds(path, HEADER, ROUNDS)
    path.write_text(path.read_text()[:-20])
    assert read_rounds(path) == (HEADER, ROUNDS[:-1])


def test_a_missing_newline_at_the_end_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    write_rounds(path, HEADER, ROUNDS)
    path.write_text(path.read_text().rstrip("\n"))
    assert read_rounds(path) == (HEADER, ROUNDS)


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        (1, "{}", "line 1 says format None"),
        (1, '{"format": "draftproof.rounds", "version": 2}', "line 1 says version 2"),
        (1, '{"format": "draftproof.rounds", "version": 1}', "line 1 lacks the key 'target'"),
        (1, "[1]", "line 1 is list, not an object"),
        (2, "not json", "line 2 is not JSON"),
        (3, '{"start": 6}', "line 3 lacks the key 'draft_tokens'"),
        (
            4,
            '{"start": 6, "draft_tokens": 5}',
            "line 4, key 'draft_tokens' is 5, where a list is expected",
        ),
        (2, "", "line 2 is not JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: int, text: str, expected: str) -> None:
    path = tmp_path / "rounds.jsonl"
    write_rounds(path, HEADER, ROUNDS)
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=expected) as error:
        read_rounds(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00"])
def test_what_is_no_record_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"line 1 holds no header|cannot be read"):
        read_rounds(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_rounds(tmp_path / "absent.jsonl")


def test_an_impossible_path_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be recorded in .*absent"):
        RoundWriter(tmp_path / "absent" / "rounds.jsonl")
    with pytest.raises(UsageError, match="cannot be recorded"):
        RoundWriter(tmp_path)


def test_parameters_are_kept_when_they_differ_from_their_defaults() -> None:
    def my_processor(ids: object, scores: object) -> object:
        return scores

    params = SamplingParams(
        temperature=0.5, stop="x", logit_bias={3: 1.5}, logits_processors=[my_processor], seed=7
    )
    assert json.loads(json.dumps(params_as_dict(params))) == {
        "temperature": 0.5,
        "stop": ["x"],
        "logit_bias": {"3": 1.5},
        "logits_processors": ["my_processor"],
        "seed": 7,
    }


def test_a_ban_by_bias_is_json_too():
    params = SamplingParams(logit_bias={5: -float("inf")})
    assert json.loads(json.dumps(params_as_dict(params), allow_nan=False)) == {
        "logit_bias": {"5": "-inf"}
    }
