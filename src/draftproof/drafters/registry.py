"""The methods: every way to draft that can be asked for by name, collected from the files of
drafters.

A drafter's file states all about it in `METHODS` at its end; nothing else lists it. The config, the
command line, `plan`, `bench`, `doctor`, the contract tests and the proof read it from here. Files
are imported when METHODS is first looked into; those of heads, which load torch, are stated in
`drafters/heads.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from draftproof import drafters
from draftproof.drafters.options import Option
from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel

if TYPE_CHECKING:
    from draftproof.core.pipeline import LawPipeline
    from draftproof.core.tree import TreeShape

Tokens = tuple[int, ...]


class Config(Protocol):
    """What `make` reads of a checked `speculative_config`."""

    method: str
    model: str | None
    num_speculative_tokens: int
    options: Mapping[str, Any]

    @property
    def rule_name(self) -> str | None:
        """The rule asked for; None for the drafter's natural one."""

    @property
    def shape(self) -> TreeShape | None:
        """The shape of a draft; None for a chain."""

    def option(self, name: str) -> Any:
        """The value of one of the method's own keys, as given or by default."""


@dataclass(frozen=True)
class Parts:
    """What a drafter is made from. draft: the loaded draft model, for methods whose `model` is
    one."""

    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Any


@dataclass(frozen=True)
class Proof:
    """How a drafter that needs no model is proven: a small one of it, over three tokens, and what
    it proposes, written without its code. For a draft that the context alone decides, one of two
    descriptions; for one that depends on rounds before, none: the proof then asks a copy of the
    drafter for the coming draft.

    guess(context, path, laws): of a chain, the token after context and drafted path, or None where
    the draft ends. paths(context, depth): of a tree, every drafted path of at most `depth` tokens;
    bans are applied by the proof. nodes: most nodes of such a tree."""

    drafter: Callable[[], Drafter]
    guess: Callable[[Tokens, Tokens, LawPipeline], int | None] | None = None
    paths: Callable[[Tokens, int], Sequence[Tokens]] | None = None
    nodes: int = 5


@dataclass(frozen=True)
class Method:
    """One way to draft.

    summary: one line for people. length: the draft length when none is given, unless `length_from`
    names the option that says it. requires: the options it cannot do without. make: the drafter of
    a checked config. model: what the key "model" names, a draft model ("draft", loaded before
    `make`), the folder of something else ("folder", read by `make`) or what one of several drafters
    takes ("drafters"); None when the method takes none. options: the keys it alone reads. trees:
    whether it takes "tree".
    replayable: whether its drafts come from tokens alone, so that they can be replayed over a
    recorded text without a forward. foretold: whether what it drafts on a recorded text can be
    known without decoding it anew.
    vllm: whether vLLM has the method under this name.
    model_optional: whether it also works without its model. adapts: whether its lengths adapt
    unless the config says otherwise. members: of a method of several drafters, their
    configurations; UsageError where they do not go together. passes_on: methods whose keys it reads
    too, for its drafters named without keys of their own.
    examples: name -> a drafter of it over tokens below 8, for the contract tests. proof: name ->
    how it is proven; the rest are described in `audit`, beside the toy models, heads and stores
    they run with.
    """

    name: str
    summary: str
    length: int
    make: Callable[[Any, Parts], Drafter]
    model: Literal["draft", "folder", "drafters"] | None = None
    options: tuple[Option, ...] = ()
    requires: tuple[str, ...] = ()
    length_from: str | None = None
    trees: bool = False
    replayable: bool = False
    foretold: bool = True
    vllm: bool = False
    model_optional: bool = False
    adapts: bool = False
    members: Callable[[Any], tuple[Any, ...]] | None = None
    passes_on: tuple[str, ...] = ()
    examples: Mapping[str, Callable[[], Drafter]] = field(default_factory=dict)
    proof: Mapping[str, Proof] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """Another drafter under a method's name. make: None where the config does not ask for it.
    options: keys it adds."""

    method: str
    make: Callable[[Any, Parts], Drafter | None]
    options: tuple[Option, ...]


def _none(config: Config, parts: Parts) -> Drafter:
    raise AssertionError("method 'none' has no drafter")


STATED_IN_HEADS = ("eagle", "medusa")


def _modules() -> Iterator[Any]:
    for module in pkgutil.iter_modules(drafters.__path__):
        if not module.ispkg and module.name not in STATED_IN_HEADS:
            yield importlib.import_module(f"{drafters.__name__}.{module.name}")


def _stated(module: Any, name: str) -> tuple[Any, ...]:
    """METHODS or VARIANTS of a drafter's file."""
    return () if module.__name__ == __name__ else vars(module).get(name, ())


@cache
def _found() -> dict[str, Method]:
    """ "none", then what every file states, in the order of files."""
    modules = list(_modules())
    stated = [method for module in modules for method in _stated(module, "METHODS")]
    found = {
        method.name: method for method in (Method("none", "plain decoding", 0, _none), *stated)
    }
    if len(found) <= len(stated):
        raise AssertionError(
            f"two files of drafters state one method: {', '.join(method.name for method in stated)}"
        )
    for variant in (one for module in modules for one in _stated(module, "VARIANTS")):
        found[variant.method] = _with(found[variant.method], variant)
    lent = {
        name: tuple(key for lender in method.passes_on for key in found[lender].options)
        for name, method in found.items()
    }
    return {
        name: replace(method, options=(*method.options, *lent[name]))
        for name, method in found.items()
    }


def _with(method: Method, variant: Variant) -> Method:
    def make(config: Config, parts: Parts) -> Drafter:
        return variant.make(config, parts) or method.make(config, parts)

    return replace(method, make=make, options=(*method.options, *variant.options))


class _Methods(Mapping[str, Method]):
    """The methods by name; drafters' files are read on the first look."""

    def __getitem__(self, name: str) -> Method:
        return _found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_found())

    def __len__(self) -> int:
        return len(_found())


METHODS: Mapping[str, Method] = _Methods()


def drafting_methods() -> tuple[str, ...]:
    """The names of all methods that draft, sorted."""
    return tuple(sorted(name for name in METHODS if name != "none"))


def readers(option: str) -> tuple[str, ...]:
    """The methods that read `option`, sorted; () for a key no method has."""
    return tuple(
        sorted(m.name for m in METHODS.values() if any(o.name == option for o in m.options))
    )


def examples() -> dict[str, Callable[[], Drafter]]:
    """The drafters that the contract tests run, of those that state some, by the name of the
    example."""
    return {name: make for method in METHODS.values() for name, make in method.examples.items()}


def proofs() -> dict[str, Proof]:
    """How each drafter that states it is proven, by the name of its cells."""
    return {name: proof for method in METHODS.values() for name, proof in method.proof.items()}
