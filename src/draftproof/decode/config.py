"""`speculative_config`: vLLM's keys and method names, checked before any weight is loaded."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from draftproof.core.records import Selection
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from draftproof.errors import UsageError

METHODS: dict[str, int] = {"draft_model": 4, "ngram": 10, "none": 0}
"""Methods this version has, with the draft length used when none is given."""

REJECTION_RULES = {"standard": None, "strict": "match", "probabilistic": "token", "block": "block"}
"""vLLM's `rejection_sample_method` -> our rule; None: the drafter's natural one."""

SIBLINGS = ("iid", "without_replacement", "top_k_plus_one")
"""How the children of a node of a sampled tree may come about."""

WITHOUT_MEANING = ("draft_tensor_parallel_size", "enforce_eager", "max_model_len")
"""vLLM keys that change nothing about what is generated here: accepted, and noted."""

_OF_METHOD = {
    "model": "draft_model",
    "revision": "draft_model",
    "draft_sample_method": "draft_model",
    "tree_selection": "draft_model",
    "prompt_lookup_max": "ngram",
    "prompt_lookup_min": "ngram",
}


@dataclass(frozen=True)
class SpeculativeConfig:
    """How to speculate. Read a mapping with `from_dict`; defaults live here and nowhere else.

    method: one of METHODS. model: hub id or folder of the draft model. num_speculative_tokens: draft length, 0 to switch off.
    prompt_lookup_max, prompt_lookup_min: suffix lengths looked up by `ngram`; one alone stands for both, as in vLLM.
    draft_sample_method: "probabilistic" samples the draft, "greedy" takes its best token. rule: a name in RULES, or None for
    the drafter's natural one ("token" for sampled drafts, "match" for fixed ones, "traversal" for sampled trees).
    tree: a shape instead of a chain, children per level ("2,2,1") or parents ("-1,-1,0"); its depth is the draft length.
    tree_selection: how sampled siblings come about, by default what the rule asks for, else "without_replacement"."""

    method: str = "none"
    model: str | None = None
    num_speculative_tokens: int = -1
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    draft_sample_method: str = "probabilistic"
    rejection_sample_method: str = "standard"
    revision: str | None = None
    rule: str | None = None
    tree: Any = None
    tree_selection: str | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any] | None) -> SpeculativeConfig:
        """Check a mapping in vLLM's form. UsageError: an unknown key (with the nearest valid one), a value out of range, a key
        that the method would not read."""
        if config is not None and not isinstance(config, Mapping):
            raise UsageError(f'speculative_config is {config!r}; it is a mapping like {{"method": "ngram"}}')
        given = dict(config or {})
        notes = tuple(
            f"speculative_config[{key!r}] means nothing here" for key in WITHOUT_MEANING if given.pop(key, None) is not None
        )
        allowed = [f.name for f in fields(cls) if f.name != "notes"]
        for key in given:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise UsageError(f"speculative_config has no key {key!r}; {hint}allowed: {', '.join(sorted(allowed))}")
        given = {key: value for key, value in given.items() if value is not None}
        given.setdefault("method", _implied_method(given))
        return cls(**given, notes=notes)

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise UsageError(f"method {self.method!r} is unknown; allowed: {', '.join(sorted(METHODS))}")
        if self.tree is not None:
            object.__setattr__(self, "tree", TreeShape.parse(self.tree).parents)
        if self.num_speculative_tokens == -1:
            length = METHODS[self.method] if self.shape is None else self.shape.depth
            object.__setattr__(self, "num_speculative_tokens", length)
        _check_count("num_speculative_tokens", self.num_speculative_tokens, 0)
        for name in ("prompt_lookup_max", "prompt_lookup_min"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), 1)
        _check_choice("draft_sample_method", self.draft_sample_method, ("probabilistic", "greedy"))
        _check_choice("rejection_sample_method", self.rejection_sample_method, tuple(REJECTION_RULES))
        if self.rule is not None:
            _check_choice("rule", self.rule, tuple(RULES))
        if self.tree_selection is not None:
            _check_choice("tree_selection", self.tree_selection, SIBLINGS)
        self._check_combination()

    def _check_combination(self) -> None:
        if self.method == "draft_model" and not self.model:
            raise UsageError('method "draft_model" needs "model": a hub id or the folder of a draft model')
        defaults = {f.name: f.default for f in fields(self)}
        for name, method in _OF_METHOD.items():
            if method != self.method and getattr(self, name) != defaults[name]:
                raise UsageError(
                    f"speculative_config[{name!r}] is read by method {method!r} only; the method is {self.method!r}"
                )
        if self.shape is not None and self.num_speculative_tokens not in (0, self.shape.depth):
            raise UsageError(
                f"num_speculative_tokens is {self.num_speculative_tokens}, but the tree has {self.shape.depth} levels: "
                "leave num_speculative_tokens out"
            )
        if self.tree_selection is not None and (self.shape is None or self.draft_sample_method == "greedy"):
            raise UsageError('tree_selection is read for sampled trees: give "tree", and draft_sample_method "probabilistic"')
        implied = REJECTION_RULES[self.rejection_sample_method]
        if self.rule and implied and self.rule != implied:
            raise UsageError(
                f"rule {self.rule!r} contradicts rejection_sample_method {self.rejection_sample_method!r} (rule {implied!r})"
            )

    @property
    def rule_name(self) -> str | None:
        """The rule asked for, by either key; None for the drafter's natural one."""
        return self.rule or REJECTION_RULES[self.rejection_sample_method]

    @property
    def shape(self) -> TreeShape | None:
        """The shape of a draft; None for a chain of `num_speculative_tokens`."""
        return None if self.tree is None else TreeShape(self.tree)

    @property
    def selection(self) -> Selection:
        """How sampled siblings come about: as asked, else as the rule needs it."""
        if self.shape is None:
            return "iid"
        if self.tree_selection is not None:
            return self.tree_selection  # type: ignore[return-value]
        wanted: dict[str | None, Selection] = {"k_seq": "iid", "greedy_k": "top_k_plus_one"}
        return wanted.get(self.rule_name, "without_replacement")

    @property
    def lookup_range(self) -> tuple[int, int]:
        """(longest, shortest) suffix for `ngram`: (3, 1) unless given."""
        longest, shortest = self.prompt_lookup_max, self.prompt_lookup_min
        if longest is None and shortest is None:
            return 3, 1
        return longest or shortest or 1, shortest or longest or 1


def _implied_method(given: Mapping[str, Any]) -> str:
    """vLLM allows {"model": "ngram"} and a bare draft model."""
    model = given.get("model")
    if model is not None and not isinstance(model, str):
        raise UsageError(f'speculative_config["model"] is {model!r}; it is the name or folder of a draft model')
    if model in METHODS:
        raise UsageError(f'say {{"method": "{model}"}}: "model" is for the name of a draft model')
    return "draft_model" if model else "none"


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}; allowed: a whole number from {least}")


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}; allowed: {', '.join(sorted(allowed))}")
