"""Logits processors that keep a state of their own: found before any work, copied along drafted
paths, or refused.

Verification asks for rows that plain decoding never meets, and drafters ask too, so a processor
that counts its calls or moves a matcher on would be led astray. Each is tried on a copy: called
twice on the prompt, on a longer text, and on the prompt again. One that gives the same scores and
whose attributes stay as they are is a function, and is used as it is. Any other is taken as
`Forked` if copies of it, called once for each token of a text, give the same scores whatever other
copies were asked; else it is refused. What is not seen: a state outside the object, its closure and
the globals it names that changes no score in these calls.
"""

from __future__ import annotations

import copy
import importlib
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from draftproof.errors import UsageError

Processor = Callable[..., Any]

_DEEPEST, _LONGEST = 10, 1000
"""Attributes within attributes that are compared, and the longest container whose elements are."""

_FUNCTIONS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Processors found to be functions; they need not be tried for every request."""


class Forked:
    """A processor with a state: every row is processed by a copy that was called once for each
    token before it."""

    def __init__(self, template: Processor) -> None:
        self.template, self.__name__ = template, name_of(template)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return self.template(input_ids, scores)


def with_forks(
    processors: Sequence[Processor], prompt: Sequence[int], vocab_size: int, device: Any = None
) -> tuple[Any, ...]:
    """`processors`, those with a state as `Forked`. device: where scores will be. UsageError for
    one that cannot be copied."""
    if not processors:
        return ()
    trial = _Trial(prompt, vocab_size, device)
    return tuple(
        one if isinstance(one, Forked) or one in _known(one) else _tried(one, trial)
        for one in processors
    )


def fork(value: Any) -> Any:
    """A copy of `value` with a state of its own: by its `fork()` where it or a part of it has one
    (xgrammar's matchers), else as `copy.deepcopy` does it; what has no attributes and cannot be
    copied, such as a lock or a compiled grammar, is shared. TypeError for generators and other
    iterators, which are nothing but state."""
    if callable(getattr(value, "fork", None)):
        return value.fork()
    try:
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied says so in many ways
        pass
    if isinstance(value, Iterator):
        raise TypeError(f"a {type(value).__name__} cannot be copied")
    if isinstance(value, (list, tuple, set)):
        return type(value)(fork(one) for one in value)
    if isinstance(value, dict):
        return {key: fork(one) for key, one in value.items()}
    if not hasattr(value, "__dict__"):
        return value
    made = copy.copy(value)
    vars(made).update({name: fork(one) for name, one in vars(value).items()})
    return made


def name_of(processor: Processor) -> str:
    return str(getattr(processor, "__name__", type(processor).__name__))


def _known(processor: Processor) -> Any:
    """Where a processor that is a function is remembered; nowhere if it cannot be."""
    try:
        weakref.ref(processor), hash(processor)
    except TypeError:
        return ()
    return _FUNCTIONS


def _tried(processor: Processor, trial: _Trial) -> Any:
    before = _state(processor)
    one = _copied(processor)
    if _is_function(processor if one is None else one, trial):
        if _known(processor) is _FUNCTIONS:
            _FUNCTIONS.add(processor)
        return processor
    if one is None or not _copies_agree(processor, trial) or _state(processor) != before:
        raise UsageError(
            f"the logits processor {name_of(processor)} keeps a state of its own that "
            "cannot be copied along drafts; decode "
            "without them (num_speculative_tokens=0), or give a processor that is a "
            "function of input_ids and scores"
        )
    return Forked(processor)


def _is_function(processor: Processor, trial: _Trial) -> bool:
    first = trial.scores(processor)
    settled = _state(processor)  # what is made at the first call, tables and the like, is no state
    again, longer = trial.scores(processor), trial.scores(processor, 1)
    back = trial.scores(processor)
    del longer
    return first == again == back and _state(processor) == settled


def _copies_agree(processor: Processor, trial: _Trial) -> bool:
    """Whether copies along a path give what one object called token by token gives, whatever other
    copies were asked."""
    try:
        straight, forked = fork(processor), fork(processor)
        for length in range(4):
            if length:
                aside = fork(forked)
                trial.scores(aside, length, other=True), trial.scores(aside, length)
                forked = fork(forked)
            if trial.scores(straight, length) != trial.scores(forked, length):
                return False
    except Exception:  # as above
        return False
    return True


def _copied(processor: Processor) -> Processor | None:
    """A copy of its own; None where there is none, as of a function, whose closure every copy
    shares."""
    try:
        made: Processor = fork(processor)
    except Exception:  # as above
        return None
    return None if made is processor else made


class _Trial:
    """Calls on a text of the request's own: the prompt, and what the processor allows after it."""

    def __init__(self, prompt: Sequence[int], vocab_size: int, device: Any) -> None:
        # the convention's arrays; core itself knows no model library
        self._torch: Any = importlib.import_module("torch")
        self._prompt, self._vocab_size, self._device = list(prompt), vocab_size, device
        self._after: list[int] = []

    def scores(self, processor: Processor, length: int = 0, *, other: bool = False) -> Any:
        """The bytes of what comes of even scores `length` tokens after the prompt; the kind of
        error where one is raised. other: the last of these tokens is another one."""
        torch = self._torch
        path = self._after[:length] + [0] * (length - len(self._after))
        if other:
            path[-1] = (path[-1] + 1) % self._vocab_size
        ids = torch.tensor([self._prompt + path], dtype=torch.int64, device=self._device)
        try:
            found = (
                processor(ids, torch.zeros((1, self._vocab_size), device=self._device))[0]
                .float()
                .cpu()
            )
        except Exception as error:  # a caller's processor may raise anything
            return type(error)
        if length == len(self._after) and not other:
            self._after.append(int(found.argmax()))
        return found.numpy().tobytes()


class _Same:
    """Equal to itself alone, and kept alive so that nothing else takes its place."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]


def _state(value: Any, depth: int = 0, above: tuple[int, ...] = ()) -> Any:
    """All that can be compared of `value`: its attributes, what its closure holds, and the globals
    that it names."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Iterator):
        return object()  # nothing but state: equal to nothing
    if hasattr(value, "_version"):  # a tensor says how often it was written to
        return _Same(value), value._version
    if hasattr(value, "tobytes"):
        return value.tobytes()
    if depth > _DEEPEST or id(value) in above or isinstance(value, (type, types.ModuleType)):
        return _Same(value)
    inner = partial(_state, depth=depth + 1, above=(*above, id(value)))
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        if len(value) > _LONGEST:
            return _Same(value), len(value)
        held = [*value, *value.values()] if isinstance(value, dict) else value
        return type(value).__name__, [inner(one) for one in held]
    parts = [inner(part) for part in _parts(value)]
    return (_Same(value), parts) if parts else _Same(value)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        named = (value.__globals__.get(name) for name in value.__code__.co_names)
        yield from (one for one in named if isinstance(one, (int, float, list, dict, set)))
        yield from (value.__defaults__, vars(value))
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    else:
        yield from [vars(value)] if hasattr(value, "__dict__") else ()
        slots = (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()))
        yield from (
            getattr(value, slot) for slot in slots if slot != "__dict__" and hasattr(value, slot)
        )


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
