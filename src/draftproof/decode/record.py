"""`rounds.jsonl`: what a run did, round by round, for planning, simulation, training and audit to
read.

The first line is a header, every further line one `Round`. A line is written and flushed as soon as
its round ends, so an interruption loses nothing but an unfinished last line, which reading leaves
out. The rounds of several samples of one prompt follow one another; a sample begins where `start`
equals the length of the prompt. Where there is a tokenizer, a line has the texts of its tokens too
(`round_texts.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from draftproof import __version__
from draftproof.core.grammar import Grammar
from draftproof.core.params import SamplingParams
from draftproof.core.records import Round, Seconds
from draftproof.core.structured import StructuredOutputs
from draftproof.decode.round_texts import RoundTexts
from draftproof.decode.text import Tokenizer
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.decode.decoder import SpeculativeDecoder

FORMAT = "draftproof.rounds"
VERSION = 1


@dataclass(frozen=True)
class RecordHeader:
    """What was run. target: the model's name. method, rule: as in the statistics. config: the
    speculative config, complete. params: the sampling parameters that differ from their defaults
    (callables by name), the seed included. draftproof: the version that wrote the file."""

    target: str
    method: str
    rule: str | None
    prompt_token_ids: tuple[int, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    draftproof: str = __version__


def check_path(path: str | Path) -> None:
    """UsageError when a record could not be written to `path`; touches nothing."""
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"rounds cannot be recorded in {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"rounds cannot be recorded in {path}: there is no folder {path.parent}")


class RoundWriter:
    """Writes one file; a context manager. An existing file is replaced. UsageError when the path
    cannot be written.

    tokenizer: adds the texts of tokens to every round; None leaves them out."""

    def __init__(self, path: str | Path, tokenizer: Tokenizer | None = None) -> None:
        self._path = Path(path)
        self._tokenizer = tokenizer
        self._texts: RoundTexts | None = None
        try:
            self._file = self._path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(
                f"rounds cannot be recorded in {self._path}: {error.strerror or error}"
            ) from error

    def header(self, header: RecordHeader) -> None:
        """The first line; must be written before any round."""
        if self._tokenizer is not None:
            self._texts = RoundTexts(self._tokenizer, len(header.prompt_token_ids))
        self._line({"format": FORMAT, "version": VERSION} | asdict(header))

    def round(self, record: Round) -> None:
        """One round; on disk when this returns."""
        self._line(asdict(record) | ({} if self._texts is None else self._texts.of(record)))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RoundWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, values: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(values, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(
                f"rounds cannot be recorded in {self._path}: {error.strerror or error}"
            ) from error


def write_rounds(
    path: str | Path,
    header: RecordHeader,
    rounds: Iterable[Round],
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write `rounds` under `header`, each as it comes, with the texts `tokenizer` gives."""
    with RoundWriter(path, tokenizer) as writer:
        writer.header(header)
        for record in rounds:
            writer.round(record)


def read_rounds(path: str | Path) -> tuple[RecordHeader, list[Round]]:
    """The header and the rounds of a file. UsageError, naming the line: not JSON, another format or
    version, a missing key."""
    lines = _lines(path)
    header = _header(lines[0], f"{path} line 1")
    return header, [
        _round(line, f"{path} line {number}") for number, line in enumerate(lines[1:], 2)
    ]


def read_texts(path: str | Path) -> list[tuple[list[str], list[str]] | None]:
    """`texts` and `draft_texts` of each round of a file that `read_rounds` reads; None for a round
    that lacks them. UsageError, naming the line, where they are not one string a token."""
    return [
        _texts(_object(line, f"{path}"), f"{path} line {number}")
        for number, line in enumerate(_lines(path)[1:], 2)
    ]


def _texts(values: Mapping[str, Any], where: str) -> tuple[list[str], list[str]] | None:
    if "texts" not in values or "draft_texts" not in values:
        return None
    for key, of in (("texts", "tokens"), ("draft_texts", "draft_tokens")):
        given = values[key]
        if (
            not isinstance(given, list)
            or len(given) != len(values[of])
            or not all(isinstance(text, str) for text in given)
        ):
            raise UsageError(f"{where}, key {key!r}, is not one string for each of its {of}")
    return values["texts"], values["draft_texts"]


def _lines(path: str | Path) -> list[str]:
    """The whole lines of a file, the header's first."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as recorded rounds: {error}") from error
    *lines, unfinished = text.split("\n")
    if unfinished and _is_json(unfinished):
        lines.append(unfinished)
    if not lines:
        raise UsageError(f"{path} line 1 holds no header; a recorded run starts with one")
    return lines


def header_for(
    decoder: SpeculativeDecoder, prompt_token_ids: Sequence[int], params: SamplingParams
) -> RecordHeader:
    """The header of a run of `decoder` on one prompt."""
    return RecordHeader(
        target=decoder.target.name,
        method=decoder.drafter.name if decoder.drafter is not None else "none",
        rule=decoder.rule_for(params).name if decoder.drafter is not None else None,
        prompt_token_ids=tuple(prompt_token_ids),
        config=decoder.config.as_dict(),
        params=params_as_dict(params),
    )


def params_as_dict(params: SamplingParams) -> dict[str, Any]:
    """The fields of `params` that differ from their defaults, ready for JSON: callables by their
    name, and a bias of -inf, for which JSON has no number, as the string "-inf"."""
    plain = SamplingParams()
    return {
        f.name: _plain(getattr(params, f.name))
        for f in fields(params)
        if getattr(params, f.name) != getattr(plain, f.name)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (StructuredOutputs, Grammar)):
        return value.as_dict()
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value


def _header(line: str, where: str) -> RecordHeader:
    values = _object(line, where)
    if values.get("format") != FORMAT:
        raise UsageError(
            f"{where} says format {values.get('format')!r}; recorded rounds start with {FORMAT!r}"
        )
    if values.get("version") != VERSION:
        raise UsageError(
            f"{where} says version {values.get('version')!r} of {FORMAT}; this "
            f"draftproof reads {VERSION}"
        )
    return _build(RecordHeader, values, where, prompt_token_ids=tuple)


def _round(line: str, where: str) -> Round:
    values = _object(line, where)
    tuples = dict.fromkeys(
        ("draft_tokens", "draft_parents", "tokens", "origins", "overlaps"), tuple
    )
    return _build(
        Round, values, where, seconds=lambda given: _build(Seconds, given, where), **tuples
    )


def _build(kind: Any, values: Any, where: str, **convert: Callable[[Any], Any]) -> Any:
    """A `kind` from `values`; keys it does not know are left out, so that others may annotate a
    file."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{where} has {values!r} where an object is expected")
    known: dict[str, Any] = {}
    for f in fields(kind):
        if f.name in values:
            known[f.name] = _converted(
                values[f.name], convert.get(f.name), f"{where}, key {f.name!r}"
            )
        elif f.default is MISSING and f.default_factory is MISSING:
            raise UsageError(f"{where} lacks the key {f.name!r}")
    return kind(**known)


def _converted(value: Any, convert: Callable[[Any], Any] | None, where: str) -> Any:
    try:
        return value if convert is None else convert(value)
    except TypeError as error:
        raise UsageError(f"{where} is {value!r}, where a list is expected") from error


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, Mapping):
        raise UsageError(f"{where} is {type(values).__name__}, not an object")
    return values


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
