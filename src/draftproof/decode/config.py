"""`speculative_config`: vLLM's keys and method names, checked before any weight is loaded."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from draftproof.core.rules import RULES, STATED, listed
from draftproof.core.tree import TreeShape
from draftproof.costs.round_costs import checked_costs
from draftproof.decode.lengths import LENGTHS, MOST
from draftproof.decode.lengths.auto_off import SHARE
from draftproof.decode.schedule import KEY, BatchSchedule
from draftproof.drafters.options import count_from, one_of
from draftproof.drafters.registry import METHODS, Method, readers
from draftproof.errors import UsageError

REJECTION_RULES = {"standard": None} | {
    stated.vllm: name for name, stated in STATED.items() if stated.vllm
}
"""vLLM's `rejection_sample_method` -> our rule; None: the drafter's natural one."""

WITHOUT_MEANING = ("draft_tensor_parallel_size", "enforce_eager", "max_model_len")
"""vLLM keys that change nothing about what is generated here: accepted, and noted."""

MESSAGE = 196
"""Characters of a complaint about a key: with the program's name and what is left out, three lines
of 80."""


@dataclass(frozen=True)
class SpeculativeConfig:
    """How to speculate. Read a mapping with `from_dict`; defaults live here and in `METHODS`,
    nowhere else.

    method: one of METHODS. model: hub id or folder of the draft model or of the method's weights.
    quantization: "int8" or "int4" rounds a draft model's weights (engine "openvino").
    num_speculative_tokens:
    draft length, 0 to switch off, -1 for the method's own. rule: a name in RULES, or None for the
    drafter's natural one ("token" for sampled drafts, "match" for fixed ones, "traversal" for
    sampled trees). tree: a shape instead of a chain, children per level ("2,2,1") or parents
    ("-1,-1,0"); its depth is the draft length. num_speculative_tokens_per_batch_size: [[first,
    last, k], ...], the draft length for batches of those sizes; the longest is
    num_speculative_tokens when that is left out. adaptive: a name in LENGTHS, true for "survival",
    false for "fixed"; num_speculative_tokens is then the longest draft. auto_off: stop drafting
    where it costs more than it gives, so that a text of 200 tokens takes at most this share of work
    beyond plain decoding; true is 0.03, and the default wherever lengths are weighed against costs.
    costs: the table they are weighed by (see `RoundCosts`), for all drafters or by drafter; unless
    given, measured before the first text where the text follows the seed whatever is drafted, else
    counted from the models. options: the keys that only this method reads, as given (see
    `option`)."""

    method: str = "none"
    model: str | None = None
    num_speculative_tokens: int = -1
    rejection_sample_method: str = "standard"
    revision: str | None = None
    quantization: str | None = None
    rule: str | None = None
    tree: Any = None
    num_speculative_tokens_per_batch_size: Any = None
    adaptive: str | bool | None = None
    auto_off: bool | float | None = None
    costs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any] | None) -> SpeculativeConfig:
        """Check a flat mapping in vLLM's form. UsageError: an unknown key (with the nearest valid
        one), a value out of range, a key that the method would not read."""
        if config is not None and not isinstance(config, Mapping):
            raise UsageError(
                f'speculative_config is {config!r}; it is a mapping like {{"method": "ngram"}}'
            )
        given = dict(config or {})
        notes = tuple(
            f"speculative_config[{key!r}] means nothing here"
            for key in WITHOUT_MEANING
            if given.pop(key, None) is not None
        )
        for key in given:
            _check_known(key, given.get("method"))
        given = {key: value for key, value in given.items() if value is not None}
        given.setdefault("method", _implied_method(given))
        options = {key: given.pop(key) for key in tuple(given) if readers(key)}
        return cls(**given, options=options, notes=notes)

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise UsageError(
                f"method {self.method!r} is unknown; allowed: {', '.join(sorted(METHODS))}"
            )
        if self.tree is not None:
            object.__setattr__(self, "tree", TreeShape.parse(self.tree).parents)
        if self.num_speculative_tokens_per_batch_size is not None:
            schedule = BatchSchedule.parse(self.num_speculative_tokens_per_batch_size)
            object.__setattr__(self, "num_speculative_tokens_per_batch_size", schedule.entries)
        object.__setattr__(self, "options", self._checked_options())
        if self.num_speculative_tokens == -1:
            object.__setattr__(self, "num_speculative_tokens", self._default_length())
        count_from(0)("num_speculative_tokens", self.num_speculative_tokens)
        one_of(*REJECTION_RULES)("rejection_sample_method", self.rejection_sample_method)
        if self.rule is not None:
            one_of(*RULES, shown=listed())("rule", self.rule)
        self._check_lengths()
        self._check_quantization()
        self._check_combination()
        _ = self.members

    def _default_length(self) -> int:
        if self.shape is not None:
            return self.shape.depth
        if self.schedule is not None:
            return self.schedule.longest
        if self.length_rule != "fixed" and self.method != "none":
            return MOST
        return (
            self.spec.length
            if self.spec.length_from is None
            else int(self.option(self.spec.length_from))
        )

    def _check_lengths(self) -> None:
        if not isinstance(self.adaptive, bool) and self.adaptive is not None:
            one_of(*LENGTHS)("adaptive", self.adaptive)
        if self.auto_off is not None and not isinstance(self.auto_off, bool):
            share = self.auto_off
            if not isinstance(share, (int, float)) or not 0 < share < 1:
                raise UsageError(
                    f"auto_off is {share!r}; allowed: true, false, or the share that may "
                    f"be lost, like {SHARE}"
                )
        if self.costs is not None:
            object.__setattr__(self, "costs", checked_costs(self.costs))

    def _checked_options(self) -> dict[str, Any]:
        known = {option.name: option for option in self.spec.options}
        for name in self.options:
            if name not in known:
                raise UsageError(
                    f"speculative_config[{name!r}] is read by method "
                    f"{' and '.join(map(repr, readers(name)))} only; "
                    f"the method is {self.method!r}"
                )
        return {name: known[name].check(name, value) for name, value in self.options.items()}

    def _check_quantization(self) -> None:
        if self.quantization is not None:
            one_of("int8", "int4")("quantization", self.quantization)
            if self.spec.model != "draft":
                raise UsageError(
                    "quantization rounds a draft model's weights; method "
                    f"{self.method!r} has none: leave it out"
                )

    def _check_combination(self) -> None:
        if self.spec.model is None and (self.model is not None or self.revision is not None):
            key = "model" if self.model is not None else "revision"
            takers = " and ".join(repr(method.name) for method in METHODS.values() if method.model)
            raise UsageError(
                f"speculative_config[{key!r}] is read by method {takers} only; the "
                f"method is {self.method!r}"
            )
        if self.spec.model and not self.model and not self.spec.model_optional:
            what = (
                "a hub id or the folder of a draft model"
                if self.spec.model == "draft"
                else "the folder of its weights"
            )
            raise UsageError(f'method "{self.method}" needs "model": {what}')
        for name in self.spec.requires:
            if name not in self.options:
                wanted = next(option.help for option in self.spec.options if option.name == name)
                raise UsageError(
                    f'method "{self.method}" needs "{name}" in speculative_config: {wanted}'
                )
        if self.shape is not None and self.method != "none" and not self.spec.trees:
            raise UsageError(
                f"method {self.method!r} takes no tree of a given shape: leave tree out"
            )
        if self.shape is not None and self.num_speculative_tokens not in (0, self.shape.depth):
            raise UsageError(
                f"num_speculative_tokens is {self.num_speculative_tokens}, but the tree "
                f"has {self.shape.depth} levels: "
                "leave num_speculative_tokens out"
            )
        if self.options.get("tree_selection") and (
            self.shape is None or self.option("draft_sample_method") == "greedy"
        ):
            raise UsageError(
                'tree_selection is read for sampled trees: give "tree", and '
                'draft_sample_method "probabilistic"'
            )
        if self.schedule is not None and self.method == "none":
            raise UsageError(
                f"speculative_config has {KEY!r} but no method, so nothing would be drafted"
            )
        if self.schedule is not None and self.schedule.longest > self.num_speculative_tokens:
            raise UsageError(
                f"{KEY} asks for {self.schedule.longest} tokens; num_speculative_tokens "
                f"allows {self.num_speculative_tokens}"
            )
        implied = REJECTION_RULES[self.rejection_sample_method]
        if self.rule and implied and self.rule != implied:
            raise UsageError(
                f"rule {self.rule!r} contradicts rejection_sample_method "
                f"{self.rejection_sample_method!r} (rule {implied!r})"
            )

    @property
    def spec(self) -> Method:
        """The method's entry in METHODS."""
        return METHODS[self.method]

    @property
    def members(self) -> tuple[SpeculativeConfig, ...]:
        """The configurations of the drafters it chooses from; of any other method, itself alone."""
        return (self,) if self.spec.members is None else self.spec.members(self)

    @property
    def draft_model(self) -> SpeculativeConfig | None:
        """The drafter's configuration whose model has to be loaded before drafters are made; None
        when there is none."""
        return next((member for member in self.members if member.spec.model == "draft"), None)

    def option(self, name: str) -> Any:
        """The value of one of the method's own keys: as given, else its default. KeyError for a key
        it does not read."""
        defaults = {option.name: option.default for option in self.spec.options}
        return self.options.get(name, defaults[name])

    def as_dict(self, *, vllm: bool = False) -> dict[str, Any]:
        """The flat mapping that `from_dict` reads back, without what was left at its default; vllm:
        only keys vLLM has too."""
        ours = () if vllm else ("quantization", "rule", "tree", "adaptive", "auto_off", "costs")
        plain = {
            f.name: f.default
            for f in fields(self)
            if f.name in ("model", "rejection_sample_method", "revision", KEY, *ours)
        }
        found = {"method": self.method, "num_speculative_tokens": self.num_speculative_tokens}
        found |= {
            name: getattr(self, name)
            for name, default in plain.items()
            if getattr(self, name) != default
        }
        known = {option.name: option for option in self.spec.options}
        return found | {
            name: value for name, value in self.options.items() if known[name].vllm or not vllm
        }

    @property
    def rule_name(self) -> str | None:
        """The rule asked for, by either key; None for the drafter's natural one."""
        return self.rule or REJECTION_RULES[self.rejection_sample_method]

    @property
    def schedule(self) -> BatchSchedule | None:
        """The draft length by batch size; None when it is the same for all."""
        entries = self.num_speculative_tokens_per_batch_size
        return None if entries is None else BatchSchedule(entries)

    @property
    def length_rule(self) -> str:
        """The rule for the draft length, a name in LENGTHS."""
        if isinstance(self.adaptive, str):
            return self.adaptive
        adapts = (
            METHODS[self.method].adapts
            if self.adaptive is None and self.method in METHODS
            else bool(self.adaptive)
        )
        return "survival" if adapts else "fixed"

    @property
    def loss_share(self) -> float | None:
        """How much more work than plain decoding a request may do; None when drafting never stops
        by itself."""
        on = LENGTHS[self.length_rule].weighs if self.auto_off is None else self.auto_off
        return (SHARE if on is True else float(on)) if on else None

    @property
    def shape(self) -> TreeShape | None:
        """The shape of a draft; None for a chain of `num_speculative_tokens`."""
        return None if self.tree is None else TreeShape(self.tree)


def _check_known(key: Any, method: Any) -> None:
    """UsageError for a key that no method has: the nearest one, and what the method asked for
    reads, its own keys first."""
    general = [f.name for f in fields(SpeculativeConfig) if f.name not in ("notes", "options")]
    own = {name: [option.name for option in one.options] for name, one in METHODS.items()}
    if key in general or readers(key):
        return
    asked = METHODS.get(method) if isinstance(method, str) else None
    if asked is None:
        allowed, near_to, who = general, sorted({*general, *sum(own.values(), [])}), "it reads"
    else:
        idle = {
            "tree": asked.trees,
            "model": asked.model,
            "revision": asked.model,
            "quantization": asked.model == "draft",
        }
        allowed = near_to = own[asked.name] + [name for name in general if idle.get(name, True)]
        who = f"method {asked.name!r} reads"
    near = difflib.get_close_matches(key, near_to, 1) if isinstance(key, str) else []
    hint = f"did you mean {near[0]!r}? {who[0].upper()}{who[1:]}" if near else who
    said = f"speculative_config has no key {key!r}; {hint} "
    raise UsageError(said + _as_fit(allowed, MESSAGE - len(said)))


def _as_fit(names: Sequence[str], room: int) -> str:
    """As many names as `room` characters take, at least one, and how many are left out."""
    shown = 1
    while shown < len(names) and len(", ".join(names[: shown + 1])) <= room:
        shown += 1
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more (docs/drafters.md)" if rest else "")


def _implied_method(given: Mapping[str, Any]) -> str:
    """vLLM allows {"model": "ngram"} and a bare draft model."""
    model = given.get("model")
    if model is not None and not isinstance(model, str):
        raise UsageError(
            f'speculative_config["model"] is {model!r}; it is the name or folder of a draft model'
        )
    if model in METHODS:
        raise UsageError(f'say {{"method": "{model}"}}: "model" is for the name of a draft model')
    return "draft_model" if model else "none"
