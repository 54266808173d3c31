"""What a method is: its needs, the keys of `speculative_config` it alone reads, and how its drafter is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from draftproof.drafters.protocol import Drafter
from draftproof.models.protocol import LanguageModel

if TYPE_CHECKING:
    from draftproof.decode.config import SpeculativeConfig


@dataclass(frozen=True)
class Option:
    """A key of `speculative_config` that only some methods read. check(name, value) gives the value to keep, or UsageError."""

    name: str
    default: Any
    check: Callable[[str, Any], Any]
    help: str
    vllm: bool = True
    """Whether vLLM has the key under this name."""


@dataclass(frozen=True)
class Parts:
    """What a drafter is made from. draft: the loaded draft model, for methods whose `model` is one."""

    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Any


@dataclass(frozen=True)
class Method:
    """One way to draft.

    summary: one line for people. length: the draft length when none is given, unless `length_from` names the option that says
    it. requires: the options it cannot do without. make: the drafter of a checked config. model: what the key "model" names, a
    draft model ("draft", loaded before `make`), the folder of something else ("folder", read by `make`) or what one of several
    drafters takes ("drafters"); None when the method takes none. options: the keys it alone reads. trees: whether it takes
    "tree".
    replayable: whether its drafts come from tokens alone, so that they can be replayed over a recorded text without a forward.
    foretold: whether what it drafts on a recorded text can be known without decoding it anew.
    vllm: whether vLLM has the method under this name.
    model_optional: whether it also works without its model. adapts: whether its lengths adapt unless the config says otherwise.
    members: of a method of several drafters, their configurations; UsageError where they do not go together.
    """

    name: str
    summary: str
    length: int
    make: Callable[[SpeculativeConfig, Parts], Drafter]
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
    members: Callable[[SpeculativeConfig], tuple[SpeculativeConfig, ...]] | None = None
