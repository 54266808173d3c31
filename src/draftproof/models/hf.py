"""A live decoder-only `transformers` model as a LanguageModel: a pass reads chains or trees, and forgetting is an integer."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from draftproof.errors import UsageError
from draftproof.models.attention import additive_mask, attending, check_parents, is_chain, tree_depths
from draftproof.models.cache import KeyValueCache, Pass, Segment
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.models.selfcheck import check_forward
from draftproof.models.support import check_config, check_module, context_limit

CHUNK = 512
"""Tokens of a long prompt read in one pass."""


class HFSession:
    """One sequence read by an `HFModel`."""

    def __init__(self, model: HFModel) -> None:
        self.model: LanguageModel = model
        self._cache: KeyValueCache | None = KeyValueCache(model.num_layers, model.max_length)
        self._tokens: list[int] = []
        self._last_parents: Sequence[int] | None = None
        self._last_start = 0
        self._after_tree = False

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def cache(self) -> KeyValueCache:
        """The keys and values; UsageError once closed."""
        if self._cache is None:
            raise UsageError("this session is closed")
        return self._cache

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens; UsageError when fewer were read, or when it would cut through a tree."""
        if not 0 <= length <= self.length:
            raise UsageError(f"cannot roll back to {length} tokens: the session holds {self.length}")
        if self._after_tree and length > self._last_start:
            raise UsageError(f"a tree was read after {self._last_start} tokens: use keep() to choose a path of it")
        self.cache.length = length
        del self._tokens[length:]
        self._last_parents, self._after_tree = None, False

    def keep(self, path: Sequence[int]) -> None:
        """Keep the tokens of the last `extend` at the indices `path`, a way down from the context; forget its others."""
        if self._last_parents is None:
            raise UsageError("keep() follows an extend(); nothing was read since the last keep() or rollback()")
        above = -1
        for node in path:
            if not 0 <= node < len(self._last_parents) or self._last_parents[node] != above:
                raise UsageError(f"keep({list(path)}) is not a way down what was just read: {node} does not follow {above}")
            above = node
        start = self._last_start
        self.cache.compact(start, path)
        self._tokens[start:] = [self._tokens[start + node] for node in path]
        self._last_parents, self._after_tree = None, False

    def close(self) -> None:
        if self._cache is not None:
            self._cache.drop()
        self._cache = None
        self._tokens, self._last_parents, self._after_tree = [], None, False

    def require_ready(self) -> None:
        """UsageError when closed, or when a tree still waits for keep() or rollback()."""
        if self._after_tree:
            raise UsageError("a tree was read: choose what stays with keep() or rollback() before reading on")
        assert self.cache is not None

    def note_read(self, tokens: Sequence[int], parents: Sequence[int] | None) -> None:
        """A pass over `tokens` has succeeded: they count as read."""
        self._last_start = self.length
        self._last_parents = parents if parents is not None else range(-1, len(tokens) - 1)
        self._after_tree = not is_chain(parents)
        self._tokens.extend(int(token) for token in tokens)
        self.cache.length = self.length


class HFModel:
    """A `transformers` causal language model behind the `LanguageModel` protocol.

    module: a decoder-only causal LM; it is put into eval mode, its config stays as it is. tokenizer: its tokenizer, or None
    for ids in and ids out. max_length: hold sessions to fewer tokens than the config allows. check: compare a chain, a tree and
    a rollback on a few tokens with the model's own forward, and refuse the model when they differ (a few short passes).
    UnsupportedModelError names what is in the way.

    Token ids that no tokenizer entry stands for (padding of the output layer) are never emitted: logits are cut to
    `vocab_size`. Passes of one model take turns: `extend_many` may be called from several threads.
    """

    supports_trees = True

    def __init__(
        self, module: Any, tokenizer: Any = None, *, name: str | None = None, max_length: int | None = None, check: bool = True
    ) -> None:
        config = module.config
        limit = context_limit(config)
        if max_length is not None and not 1 <= max_length <= (limit or max_length):
            raise UsageError(f"max_length is {max_length}; this model allows 1 to {limit or 'any number of'} tokens")
        check_config(config, max_length)
        check_module(module)
        self.module = module.eval()
        self.tokenizer = tokenizer
        self.name: str = name or getattr(config, "_name_or_path", "") or type(module).__name__
        rows = module.get_output_embeddings().weight.shape[0]
        self.vocab_size: int = min(rows, len(tokenizer)) if tokenizer is not None else rows
        self.num_input_ids: int = module.get_input_embeddings().weight.shape[0]
        self.max_length: int | None = max_length if max_length is not None else limit
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.device: torch.device = module.get_input_embeddings().weight.device
        self.dtype: torch.dtype = module.dtype
        self.generation_config = getattr(module, "generation_config", None)
        self.eos_token_ids: tuple[int, ...] = _eos_token_ids(self.generation_config, config, tokenizer)
        parameters = inspect.signature(module.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._takes_rows = "logits_to_keep" in parameters
        self._configs = list({id(part.config): part.config for part in module.modules() if hasattr(part, "config")}.values())
        self._shares_passes = False
        self._turn = threading.RLock()
        if check:
            check_forward(self)

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> HFModel:
        """A model by hub id, folder, .gguf file or short name; options and errors as in `draftproof.models.load.load_model`."""
        from draftproof.models.load import load_model

        return load_model(name_or_path, **options)

    def open(self) -> HFSession:
        return HFSession(self)

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens, together where the model's attention allows it; see `LanguageModel.extend_many`.

        UsageError, before anything is read, when a step is wrong."""
        for step in steps:
            self._check_step(step)
        if len({id(step.session) for step in steps}) < len(steps):
            raise UsageError("a session may take part only once in a pass")
        alone = [step for step in steps if not self._shares_passes or len(step.tokens) > CHUNK]
        together = [step for step in steps if not any(step is other for other in alone)]
        with self._turn, torch.inference_mode():
            outputs = {id(step): self._extend_alone(step) for step in alone}
            if together:
                outputs.update((id(step), out) for step, out in zip(together, self._pass(together), strict=True))
                for step in together:
                    _session(step).note_read(step.tokens, step.parents)
        return [_writable(outputs[id(step)]) for step in steps]

    def _check_step(self, step: Step) -> None:
        if not isinstance(step.session, HFSession) or step.session.model is not self:
            raise UsageError(f"the session was not opened by this model ({self.name})")
        step.session.require_ready()
        count, length = len(step.tokens), step.session.length
        if count == 0:
            raise UsageError("a pass needs at least one token")
        low, high = min(step.tokens), max(step.tokens)
        if low < 0 or high >= self.num_input_ids:
            raise UsageError(f"token ids {low}..{high} do not fit {self.name}, which reads 0..{self.num_input_ids - 1}")
        if self.max_length is not None and length + count > self.max_length:
            raise UsageError(
                f"the context of {self.name} holds {self.max_length} tokens: {count} more than {length} do not fit"
            )
        if step.parents is not None:
            check_parents(step.parents, count)
        if step.rows is not None and any(not 0 <= row < count for row in step.rows):
            raise UsageError(f"rows {list(step.rows)} must lie in 0..{count - 1}")
        if any(not 0 <= layer <= self.num_layers for layer in step.hidden):
            raise UsageError(f"hidden layers {list(step.hidden)} must lie in 0..{self.num_layers} (0: the embeddings)")

    def _extend_alone(self, step: Step) -> Output:
        session = _session(step)
        if len(step.tokens) <= CHUNK or not is_chain(step.parents):
            output = self._pass([step])[0]
        else:
            output = self._read_in_chunks(session, step)
        session.note_read(step.tokens, step.parents)
        return output

    def _read_in_chunks(self, session: HFSession, step: Step) -> Output:
        """Read a long chain CHUNK tokens at a time; the session's own length moves only when all of it was read."""
        wanted = range(len(step.tokens)) if step.rows is None else step.rows
        logits: dict[int, torch.Tensor] = {}
        hidden: dict[int, list[torch.Tensor]] = {layer: [] for layer in step.hidden}
        try:
            for first in range(0, len(step.tokens), CHUNK):
                tokens = step.tokens[first : first + CHUNK]
                rows = sorted({row - first for row in wanted if first <= row < first + len(tokens)})
                output = self._pass([replace(step, tokens=tokens, parents=None, rows=rows)])[0]
                session.cache.length += len(tokens)
                logits.update((first + row, found) for row, found in zip(rows, output.logits, strict=True))
                for layer, states in output.hidden.items():
                    hidden[layer].append(states)
        finally:
            session.cache.length = session.length
        all_rows = torch.stack([logits[row] for row in wanted]) if len(wanted) else output.logits
        return Output(all_rows, {layer: torch.cat(parts) for layer, parts in hidden.items()})

    def _pass(self, steps: Sequence[Step]) -> list[Output]:
        """One forward over the tokens of `steps`, one after another in a single row; nothing counts as read yet."""
        current, positions = self._lay_out(steps)
        masks = [segment.mask for segment in current.segments]
        mask = masks[0] if len(masks) == 1 else torch.zeros(1, 1, device=self.device)
        arguments: dict[str, Any] = {self._cache_argument: current}
        rows = self._rows(steps, current)
        if self._takes_rows:
            arguments["logits_to_keep"] = rows
        if any(step.hidden for step in steps):
            arguments["output_hidden_states"] = True
        with attending(current, self._configs):
            result = self.module(
                input_ids=torch.tensor([[token for step in steps for token in step.tokens]], device=self.device),
                attention_mask=None if mask is None else mask[None, None],
                position_ids=positions[None],
                use_cache=True,
                **arguments,
            )
        if len(steps) == 1:
            self._shares_passes = current.can_be_shared
        logits = result.logits[0, :, : self.vocab_size]
        if not self._takes_rows and isinstance(rows, torch.Tensor):
            logits = logits[rows]
        return self._take_apart(steps, current, logits, result)

    def _lay_out(self, steps: Sequence[Step]) -> tuple[Pass, torch.Tensor]:
        """The pass over `steps` with every part's mask, and the absolute positions [n] of all tokens."""
        segments: list[Segment] = []
        positions: list[int] = []
        for step in steps:
            cache, count, first = _session(step).cache, len(step.tokens), len(positions)
            cache.reserve(cache.length + count)
            parents = None if step.parents is None or is_chain(step.parents) else step.parents
            mask = additive_mask(count, parents, cache.length, self.dtype, self.device)
            segments.append(Segment(cache, first, first + count, mask))
            depths = range(count) if parents is None else tree_depths(parents)
            positions.extend(cache.length + depth for depth in depths)
        return Pass(segments), torch.tensor(positions, device=self.device)

    def _rows(self, steps: Sequence[Step], current: Pass) -> int | torch.Tensor:
        """Which rows of the pass want logits, as `logits_to_keep` has it: 0 for all, or their indices."""
        if all(step.rows is None for step in steps):
            return 0
        rows: list[int] = []
        for step, segment in zip(steps, current.segments, strict=True):
            rows.extend(segment.first + row for row in (range(len(step.tokens)) if step.rows is None else step.rows))
        return torch.tensor(rows, dtype=torch.long, device=self.device)

    def _take_apart(self, steps: Sequence[Step], current: Pass, logits: torch.Tensor, result: Any) -> list[Output]:
        outputs, first = [], 0
        for step, segment in zip(steps, current.segments, strict=True):
            last = first + len(step.tokens if step.rows is None else step.rows)
            hidden = {layer: result.hidden_states[layer][0, segment.first : segment.last] for layer in step.hidden}
            outputs.append(Output(logits[first:last], hidden))
            first = last
        return outputs


def _session(step: Step) -> HFSession:
    assert isinstance(step.session, HFSession)
    return step.session


def _writable(output: Output) -> Output:
    """The same numbers in tensors that may be written to and trained on, which those made in inference mode may not.

    The copy is of a few rows; leaving inference mode out instead would slow every pass by 3-4% (SmolLM2 on a CPU)."""
    return Output(output.logits.clone(), {layer: states.clone() for layer, states in output.hidden.items()})


def _eos_token_ids(generation_config: Any, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end a text: from the generation config, else the config, else the tokenizer; () when none says so."""
    for source in (generation_config, config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return (int(ids),) if isinstance(ids, int) else tuple(int(i) for i in ids)
    return ()
