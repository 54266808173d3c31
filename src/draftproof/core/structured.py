"""Structured output as asked for: one grammar, by vLLM's names; `draftproof.grammars` compiles it
for a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from draftproof.core import checks
from draftproof.core.grammar import Grammar
from draftproof.errors import UsageError


@dataclass(frozen=True)
class StructuredOutputs:
    """Exactly one of these is given.

    json: a JSON schema, as an object or a string of JSON. json_object: any JSON object. regex: a
    regular expression that the whole text matches. choice: the text is one of these strings.
    grammar: a context-free grammar, in Lark's syntax or as EBNF in llama.cpp's (GBNF)."""

    json: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None

    def __post_init__(self) -> None:
        given = [
            spec.name for spec in fields(self) if getattr(self, spec.name) not in (None, False, ())
        ]
        if len(given) != 1:
            names = ", ".join(spec.name for spec in fields(self))
            said = " and ".join(given) or "none of them"
            raise UsageError(f"structured_outputs has {said}; it has exactly one of {names}")

    @property
    def kind(self) -> str:
        """The name of what is given."""
        return next(
            spec.name for spec in fields(self) if getattr(self, spec.name) not in (None, False, ())
        )

    @classmethod
    def from_dict(cls, values: Any) -> StructuredOutputs:
        """From vLLM's mapping. UsageError for an unknown key, a value of another kind, none or
        several of them."""
        if not isinstance(values, Mapping):
            checks.refuse(
                "structured_outputs",
                values,
                "a mapping with one of json, json_object, regex, choice, grammar",
            )
        unknown = sorted(set(map(str, values)) - {spec.name for spec in fields(cls)})
        if unknown:
            names = ", ".join(spec.name for spec in fields(cls))
            raise UsageError(f"structured_outputs has no key {unknown[0]!r}; allowed: {names}")
        checked: dict[str, Any] = {
            name: _CHECKS[name](f"structured_outputs.{name}", value)
            for name, value in values.items()
        }
        return cls(**checked)

    def as_dict(self) -> dict[str, Any]:
        """The mapping that `from_dict` reads back."""
        value = getattr(self, self.kind)
        return {self.kind: list(value) if self.kind == "choice" else value}


def _schema(name: str, value: Any) -> str | None:
    """A schema as canonical JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UsageError(f"{name} is no JSON: {error}") from error
    if not isinstance(value, (Mapping, bool)):
        checks.refuse(name, value, "a JSON schema: an object, or a string of JSON")
    return json.dumps(value)


def _text(name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        checks.refuse(name, value, "a string that is not empty")
    text: str | None = value
    return text


def _strings(name: str, value: Any) -> tuple[str, ...]:
    found = checks.strings(name, value)
    if not found:
        checks.refuse(name, value, "a list of strings, at least one")
    return found


_CHECKS = {
    "json": _schema,
    "json_object": checks.flag,
    "regex": _text,
    "choice": _strings,
    "grammar": _text,
}


def structured_outputs(name: str, value: Any) -> Any:
    """The check of the sampling parameter: None, a StructuredOutputs, its mapping, or a compiled
    grammar."""
    if value is None or isinstance(value, (StructuredOutputs, Grammar)):
        return value
    return StructuredOutputs.from_dict(value)
