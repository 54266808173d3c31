"""Logits -> law under the sampling parameters of one request; the same object serves the target and
the drafters.

The order is that of transformers' `generate`: logit bias, repetition penalty, presence and
frequency penalty (vLLM applies them here), bad words, EOS before min_tokens, suppressed and allowed
tokens, the grammar of structured outputs, extra logits processors; then temperature, top-k, top-p,
min-p, extra warpers.

Every row has its own history: the committed context and the drafted tokens before it.

On a CPU all of this is computed by NumPy, for tensors through their NumPy view: what the enumerator
proves on arrays is what runs on tensors. Only the softmax of a tensor without truncation is torch's
own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array

from draftproof.core.bans import Bans
from draftproof.core.constraint import Constraint
from draftproof.core.dense import dense_laws, dense_scores, softmax
from draftproof.core.grammar import Grammar
from draftproof.core.params import SamplingParams
from draftproof.core.penalties import Penalties
from draftproof.core.processors import Processors
from draftproof.core.records import Array
from draftproof.core.truncate import Truncation, largest_ids, write_law, write_scores
from draftproof.errors import InvalidLogitsError, UsageError

Path = Sequence[int]


class LawPipeline:
    """The laws of one text's next tokens. Made once a text; not for use by two threads at once.

    greedy: temperature is 0, every law is one-hot. reads_history: the law of a row depends on the
    tokens before it. UsageError when a token id of `params` is outside the vocabulary, no token is
    left, or bad words are not resolved."""

    def __init__(
        self,
        params: SamplingParams,
        *,
        num_prompt_tokens: int,
        vocab_size: int,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        self.params, self.num_prompt_tokens, self.vocab_size = params, num_prompt_tokens, vocab_size
        self.eos_token_ids = tuple(eos_token_ids)
        self.greedy = params.temperature == 0
        self._penalties = Penalties(params, num_prompt_tokens, vocab_size)
        self._bans = Bans(params, num_prompt_tokens, vocab_size, self.eos_token_ids)
        self._processors = Processors(params.logits_processors)
        self._warpers = Processors(() if self.greedy else params.logits_warpers)
        self.constraint = _constraint(params, num_prompt_tokens, vocab_size)
        self._truncation = Truncation.of(params, vocab_size)
        called = self.constraint is not None or bool(self._processors)
        self._edits = self._bans.biased or self._bans.active or self._penalties.active or called
        self.reads_history = (
            self._bans.reads_history or self._penalties.active or called or bool(self._warpers)
        )
        self._held: list[Array] = []

    def for_drafter(self) -> LawPipeline:
        """The same laws for whoever drafts: the states of logits processors are its own, and follow
        the target's."""
        follower = copy(self)
        follower._processors = Processors(self.params.logits_processors, self._processors)
        follower._warpers = Processors(
            () if self.greedy else self.params.logits_warpers, self._warpers
        )
        follower._held = []
        return follower

    def law(self, logits: Array, context: Sequence[int], path: Path = ()) -> Array:
        """The law [vocab] of the token after `context + path`.

        logits: [vocab], left untouched. context: prompt and emitted tokens, the pending one last.
        path: drafted tokens after it. float64 for float64 logits, else float32. InvalidLogitsError
        for NaN, +inf or no allowed token."""
        return self.laws(logits[None, :], context, (path,))[0, :]

    def laws(self, logits: Array, context: Sequence[int], paths: Sequence[Path]) -> Array:
        """Row by row what `law` gives, to the bit: logits [n, vocab], one path a row -> [n,
        vocab]."""
        x, owned = self._processed(logits, context, paths)
        if not is_numpy_array(x):
            return self._accelerated_laws(x, context, paths)
        tops = [row.max() for row in x]
        for i, top in enumerate(tops):
            if not math.isfinite(top):
                raise self._complaint(logits, x, i, context, paths[i])
        out = x if owned and not self._warpers else np.empty_like(x)
        with np.errstate(over="ignore"):
            for i, path in enumerate(paths):
                self._write_row(x[i], tops[i], context, path, out[i])
        return out if is_numpy_array(logits) else array_namespace(logits).asarray(out)

    def greedy_tokens(
        self, logits: Array, context: Sequence[int], paths: Sequence[Path]
    ) -> list[int]:
        """arg max of each row [n, vocab] after all processors, the lowest id among ties; one
        transfer for all rows."""
        x, _ = self._processed(logits, context, paths)
        xp = array_namespace(x)
        best = xp.argmax(x, axis=-1)
        tops = xp.take_along_axis(x, best[:, None], axis=-1)[:, 0]
        pairs = xp.stack(
            [xp.astype(best, x.dtype), tops], axis=-1
        ).tolist()  # float32 holds every id below 2^24
        for i, (_, top) in enumerate(pairs):
            if not math.isfinite(top):
                raise self._complaint(logits, x, i, context, paths[i])
        return [int(token) for token, _ in pairs]

    def best_tokens(
        self, logits: Array, context: Sequence[int], path: Path, count: int
    ) -> list[int]:
        """Up to `count` tokens of one row [vocab] by logit after all processors, the best first,
        none that they forbid."""
        x = self._processed(logits[None, :], context, [path])[0][0]
        if not math.isfinite(x.max()):
            raise self._complaint(logits[None, :], x[None, :], 0, context, path)
        if is_numpy_array(x):
            order = largest_ids(x, count)
        else:
            order = array_namespace(x).argsort(x, descending=True, stable=True)[:count]
        pairs = zip(order.tolist(), x[order].tolist(), strict=True)
        return [int(token) for token, score in pairs if math.isfinite(score)]

    def advantage(self, logits: Array, context: Sequence[int], one: int, other: int) -> float:
        """How much better `one` is than `other` after `context`, in nats, after all processors;
        logits: one row [vocab]."""
        row = self._processed(logits[None, :], context, [()])[0][0]
        return float(row[one]) - float(row[other])

    @property
    def can_forbid(self) -> bool:
        """Whether any bans or a grammar are in force: where not, nothing need be asked of
        `forbids`."""
        return self._bans.active or self.constraint is not None

    def forbids(self, token: int, context: Sequence[int], path: Path = ()) -> bool:
        """Whether bans (allowed and suppressed ids, bad words, EOS before min_tokens, a bias of
        -inf) or the grammar make `token` impossible after `context + path`. Logits processors
        cannot be asked."""
        if self._bans.forbids(token, context, path):
            return True
        return self.constraint is not None and not self.constraint.allows(token, context, path)

    def check(self) -> None:
        """Raise the InvalidLogitsError that `laws` on an accelerator holds back so as not to wait
        for it. Once a round, where the round waits anyway; on a CPU there is never anything to
        raise."""
        refuse_invalid(self.held_back())

    def held_back(self) -> list[Array]:
        """Whether each row has no law [n] bool, for every call of `laws` on an accelerator since
        this was last asked: for who looks at some of the rows only."""
        held, self._held = self._held, []
        return held

    def _processed(
        self, logits: Array, context: Sequence[int], paths: Sequence[Path]
    ) -> tuple[Array, bool]:
        """Everything before the temperature: [n, vocab] float32 or float64, NumPy for what is in a
        CPU's memory; and whether that is an array of our own. Where there is nothing to do it is
        the logits themselves, not to be written to."""
        if tuple(logits.shape) != (len(paths), self.vocab_size):
            raise UsageError(
                f"the logits have shape {list(logits.shape)}; allowed: [{len(paths)}, "
                f"{self.vocab_size}], "
                "a row for each path and a column for each token"
            )
        x, shared = _in_memory(logits)
        if not self._edits:
            return x, not shared
        if shared:
            x = array_namespace(x).asarray(x, copy=True)
        with np.errstate(over="ignore", invalid="ignore"):
            if self._bans.biased:
                self._bans.bias(x)
            if self._penalties.active:
                self._penalties.apply(x, context, paths)
            if self._bans.active:
                x = self._bans.apply(x, context, paths)
        if self.constraint is not None:
            self.constraint.apply(x, context, paths)
        if self._processors:
            self._processors.apply(x, context, paths)
        return x, True

    def _write_row(
        self, x: Array, top: Array, context: Sequence[int], path: Path, out: Array
    ) -> None:
        """The law of processed logits `x` into `out`, which may be `x` itself where there are no
        warpers."""
        if self.greedy:
            best = x.argmax()
            out[:] = 0
            out[best] = 1
        elif not self._warpers:
            write_law(x, top, self._truncation, out)
        else:
            write_scores(x, top, self._truncation, out)
            self._warpers.apply(out[None, :], context, (path,))
            if not math.isfinite(out.max()):
                fault = "the logits warpers left no token or NaN"
                raise InvalidLogitsError(f"{fault} at position {len(context) + len(path)}", fault)
            out[:] = softmax(out)

    def _accelerated_laws(self, x: Array, context: Sequence[int], paths: Sequence[Path]) -> Array:
        xp = array_namespace(x)
        if self.greedy:
            laws = xp.astype(
                xp.arange(x.shape[-1], device=device(x)) == xp.argmax(x, axis=-1, keepdims=True),
                x.dtype,
            )
        elif not self._warpers:
            laws = dense_laws(x, self._truncation)
        else:
            scores = dense_scores(x, self._truncation)
            self._warpers.apply(scores, context, paths)
            laws = softmax(scores)
        self._held.append(~(xp.isfinite(xp.max(x, axis=-1)) & xp.isfinite(laws[:, 0])))
        return laws

    def _complaint(
        self, logits: Array, x: Array, row: int, context: Sequence[int], path: Path
    ) -> InvalidLogitsError:
        """What is wrong with a row, found out only once something is."""
        raw, processed = (_on_cpu(array[row, :]) for array in (logits, x))
        where = f"the logits of row {row}, for position {len(context) + len(path)},"
        fault = _fault(raw, processed)
        bad = np.isnan(raw) if np.isnan(raw).any() else np.isposinf(raw)
        first = f" (first at token {int(bad.argmax())})" if bad.any() else ""
        return InvalidLogitsError(
            f"{where} {fault.format(first)}", f"the logits {fault.format('')}"
        )


def check_laws(
    params: SamplingParams,
    *,
    num_prompt_tokens: int,
    vocab_size: int,
    eos_token_ids: Sequence[int] = (),
) -> None:
    """The UsageError that a `LawPipeline` of these would raise, before any text is begun."""
    Bans(params, num_prompt_tokens, vocab_size, tuple(eos_token_ids))
    _constraint(params, num_prompt_tokens, vocab_size)


def _constraint(
    params: SamplingParams, num_prompt_tokens: int, vocab_size: int
) -> Constraint | None:
    grammar = params.structured_outputs
    if grammar is None:
        return None
    if not isinstance(grammar, Grammar):
        raise UsageError(
            "structured_outputs needs a tokenizer, which says how the grammar is spelled "
            "in token ids"
        )
    if grammar.vocab_size != vocab_size:
        raise UsageError(
            f"the grammar is over {grammar.vocab_size} token ids, and the model has {vocab_size}"
        )
    return Constraint(grammar, num_prompt_tokens)


def _fault(raw: Any, processed: Any) -> str:
    """What keeps a row of logits, as the model gave it and after all processing, from being a law.
    {}: the first bad token."""
    if np.isnan(raw).any():
        return "hold NaN{}: the model is at fault"
    if np.isposinf(raw).any():
        return "hold +inf{}"
    if np.isnan(processed).any():
        return "hold NaN after biases, penalties and logits processors, but not before"
    if np.isposinf(processed).any():
        return "hold +inf after biases, penalties and logits processors, but not before"
    if np.isneginf(raw).all():
        return "are all -inf: the model allows no token"
    return "are all -inf after bans, grammar and logits processors: no token is allowed there"


def refuse_invalid(held: Sequence[Array]) -> None:
    """Raise an InvalidLogitsError if one of these rows has no law; see `LawPipeline.held_back`.
    Waits for the device."""
    if held and bool(array_namespace(held[0]).concat(list(held)).any()):
        raise invalid_row()


def unprocessed_law(logits: Array) -> Array:
    """softmax of `logits` [vocab] as they are, for who only weighs them. InvalidLogitsError for NaN
    and infinity."""
    law = softmax(logits)
    if not math.isfinite(law.max()):
        raise InvalidLogitsError(
            "the logits hold NaN or infinity, or allow no token: the model is at fault"
        )
    return law


def invalid_row() -> InvalidLogitsError:
    """What is said of a row that an accelerator held back, of which no more is known."""
    return InvalidLogitsError(
        "a row of logits of this round holds NaN or infinity, or allows no token"
    )


def _in_memory(logits: Array) -> tuple[Array, bool]:
    """(array, whether it shares memory with `logits`): float64 kept, all else float32; a CPU tensor
    as its NumPy view.

    On a CPU a row is worked on in NumPy, by one thread: right after a forward pass, waking a thread
    pool for each operation on 50,000 numbers costs more than the operation itself
    (benchmarks/record.md)."""
    xp = array_namespace(logits)
    if is_torch_array(logits) and logits.device.type == "cpu" and logits.element_size() == 2:
        return _widened(logits.detach()), False
    wanted = xp.float64 if logits.dtype == xp.float64 else xp.float32
    x: Any = logits.detach() if is_torch_array(logits) else logits
    shared = x.dtype == wanted
    if not shared:
        x = xp.astype(x, wanted)
    if is_torch_array(x) and x.device.type == "cpu":
        return x.numpy(), shared
    return x, shared


def _widened(logits: Any) -> Array:
    """A 16-bit CPU tensor as a NumPy array of float32. bf16 is the upper half of a float32."""
    if str(logits.dtype) != "torch.bfloat16":
        return logits.numpy().astype(np.float32)
    upper = logits.view(array_namespace(logits).uint16).numpy()
    wide = np.empty(upper.shape, np.uint32)
    np.left_shift(upper, 16, out=wide, dtype=np.uint32)
    return wide.view(np.float32)


def _on_cpu(row: Array) -> Array:
    if is_torch_array(row):
        row = row.detach().cpu().double().numpy()
    return np.asarray(row, dtype=np.float64)
