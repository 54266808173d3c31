"""A live decoder-only `transformers` model as a LanguageModel: one pass reads a chain or a tree, and forgetting is an integer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from draftproof.errors import UsageError
from draftproof.models.attention import additive_mask, ancestors, check_parents, is_chain, tree_depths
from draftproof.models.cache import KeyValueCache
from draftproof.models.protocol import LanguageModel, Output, Step

CHUNK = 512
"""Tokens of a long prompt read in one pass."""


class HFSession:
    """One sequence read by an `HFModel`."""

    def __init__(self, model: HFModel) -> None:
        self.model: LanguageModel = model
        self.cache: KeyValueCache | None = KeyValueCache(model.num_layers, model.max_length)
        self._tokens: list[int] = []
        self._last_parents: Sequence[int] | None = None
        self._last_start = 0
        self._last_is_tree = False

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens; UsageError when fewer were read, or when it would cut through a tree."""
        if not 0 <= length <= self.length:
            raise UsageError(f"cannot roll back to {length} tokens: the session holds {self.length}")
        if self._last_is_tree and length > self._last_start:
            raise UsageError(f"a tree was read after token {self._last_start}: choose a path with keep() before keeping any of it")
        self._require_open().length = length
        del self._tokens[length:]
        self._last_parents, self._last_is_tree = None, False

    def keep(self, path: Sequence[int]) -> None:
        """Keep the tokens of the last `extend` at the indices `path`, a way down from the context; forget its others."""
        if self._last_parents is None:
            raise UsageError("keep() follows an extend(); nothing was read since the last keep() or rollback()")
        above = -1
        for node in path:
            if not 0 <= node < len(self._last_parents) or self._last_parents[node] != above:
                raise UsageError(f"keep({list(path)}) is not a way down the tree just read: {node} does not follow {above}")
            above = node
        start, tokens = self._last_start, [self._tokens[self._last_start + node] for node in path]
        self._require_open().compact(start, path)
        self._tokens[start:] = tokens
        self._last_parents, self._last_is_tree = None, False

    def close(self) -> None:
        if self.cache is not None:
            self.cache.drop()
        self.cache = None
        self._tokens, self._last_parents, self._last_is_tree = [], None, False

    def _require_open(self) -> KeyValueCache:
        if self.cache is None:
            raise UsageError("this session is closed")
        return self.cache

    def _require_ready(self) -> KeyValueCache:
        if self._last_is_tree:
            raise UsageError("a tree was read: choose what stays with keep() or rollback() before reading on")
        return self._require_open()

    def _read(self, tokens: Sequence[int], parents: Sequence[int] | None) -> None:
        """Note that a pass over `tokens` has succeeded."""
        self._last_start = self.length
        self._last_parents = parents if parents is not None else range(-1, len(tokens) - 1)
        self._last_is_tree = not is_chain(parents)
        self._tokens.extend(int(token) for token in tokens)
        self._require_open().length = self.length


class HFModel:
    """A `transformers` causal language model behind the `LanguageModel` protocol.

    module: a decoder-only causal LM; it is put into eval mode, its config stays as it is. tokenizer: its tokenizer, or None
    for ids in and ids out. Token ids that no tokenizer entry stands for (padding of the output layer) are never emitted:
    logits are cut to `vocab_size`.
    """

    supports_trees = True

    def __init__(self, module: Any, tokenizer: Any = None, *, name: str | None = None) -> None:
        self.module = module.eval()
        self.tokenizer = tokenizer
        config = module.config
        self.name: str = name or getattr(config, "_name_or_path", "") or type(module).__name__
        rows = module.get_output_embeddings().weight.shape[0]
        self.vocab_size: int = min(rows, len(tokenizer)) if tokenizer is not None else rows
        self.num_input_ids: int = module.get_input_embeddings().weight.shape[0]
        self.max_length: int | None = getattr(config, "max_position_embeddings", None)
        self.num_layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.device: torch.device = module.get_input_embeddings().weight.device
        self.dtype: torch.dtype = module.dtype
        self.generation_config = getattr(module, "generation_config", None)
        self.eos_token_ids: tuple[int, ...] = _eos_token_ids(self.generation_config, config, tokenizer)
        parameters = inspect.signature(module.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._takes_rows = "logits_to_keep" in parameters

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> HFModel:
        """See `draftproof.models.load.load_model`."""
        from draftproof.models.load import load_model

        return load_model(name_or_path, **options)

    def open(self) -> HFSession:
        return HFSession(self)

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens; see `LanguageModel.extend_many`. UsageError before any is read when a step is wrong."""
        for step in steps:
            self._check_step(step)
        if len({id(step.session) for step in steps}) < len(steps):
            raise UsageError("a session may take part only once in a pass")
        with torch.inference_mode():
            return [self._extend(step) for step in steps]

    def _check_step(self, step: Step) -> None:
        if not isinstance(step.session, HFSession) or step.session.model is not self:
            raise UsageError(f"the session was not opened by this model ({self.name})")
        step.session._require_ready()
        count = len(step.tokens)
        if count == 0:
            raise UsageError("a pass needs at least one token")
        if min(step.tokens) < 0 or max(step.tokens) >= self.num_input_ids:
            raise UsageError(
                f"token ids {min(step.tokens)}..{max(step.tokens)} do not fit {self.name}, which reads 0..{self.num_input_ids - 1}"
            )
        if self.max_length is not None and step.session.length + count > self.max_length:
            raise UsageError(
                f"the context of {self.name} holds {self.max_length} tokens; {step.session.length} read and {count} new do not fit"
            )
        if step.parents is not None:
            check_parents(step.parents, count)
        if step.rows is not None and any(not 0 <= row < count for row in step.rows):
            raise UsageError(f"rows {list(step.rows)} must lie in 0..{count - 1}")
        if any(not 0 <= layer <= self.num_layers for layer in step.hidden):
            raise UsageError(f"hidden layers {list(step.hidden)} must lie in 0..{self.num_layers} (0: the embeddings)")

    def _extend(self, step: Step) -> Output:
        session = step.session
        assert isinstance(session, HFSession)
        if len(step.tokens) <= CHUNK or not is_chain(step.parents):
            output = self._pass(session, step.tokens, step.parents, step.rows, step.hidden)
            session._read(step.tokens, step.parents)
            return output
        return self._extend_in_chunks(session, step)

    def _extend_in_chunks(self, session: HFSession, step: Step) -> Output:
        start, cache = session.length, session._require_open()
        rows = list(range(len(step.tokens))) if step.rows is None else list(step.rows)
        found: dict[int, torch.Tensor] = {}
        hidden: dict[int, list[torch.Tensor]] = {layer: [] for layer in step.hidden}
        try:
            for first in range(0, len(step.tokens), CHUNK):
                tokens = step.tokens[first : first + CHUNK]
                wanted = sorted({row - first for row in rows if first <= row < first + len(tokens)})
                output = self._pass(session, tokens, None, wanted, step.hidden)
                cache.length += len(tokens)
                found.update((first + row, logits) for row, logits in zip(wanted, output.logits, strict=True))
                for layer, states in output.hidden.items():
                    hidden[layer].append(states)
        finally:
            cache.length = start
        session._read(step.tokens, None)
        logits = torch.stack([found[row] for row in rows]) if rows else output.logits
        return Output(logits, {layer: torch.cat(parts) for layer, parts in hidden.items()})

    def _pass(
        self,
        session: HFSession,
        tokens: Sequence[int],
        parents: Sequence[int] | None,
        rows: Sequence[int] | None,
        hidden: Sequence[int],
    ) -> Output:
        cache = session._require_open()
        start, count = cache.length, len(tokens)
        chain = is_chain(parents)
        depths = torch.arange(count) if chain else torch.tensor(tree_depths(parents or ()))
        mask = None
        if count > 1 and not (chain and start == 0):
            visible = torch.ones(count, count, dtype=torch.bool).tril() if chain else ancestors(parents or ())
            mask = additive_mask(visible, start, self.dtype, self.device)
        arguments: dict[str, Any] = {self._cache_argument: cache}
        keep: Any = 0 if rows is None else torch.tensor(list(rows), dtype=torch.long, device=self.device)
        if self._takes_rows:
            arguments["logits_to_keep"] = keep
        if hidden:
            arguments["output_hidden_states"] = True
        result = self.module(
            input_ids=torch.tensor([list(tokens)], device=self.device),
            attention_mask=mask,
            position_ids=(depths + start).to(self.device)[None],
            use_cache=True,
            **arguments,
        )
        logits = result.logits[0]
        if rows is not None and not self._takes_rows:
            logits = logits[keep]
        states: Mapping[int, torch.Tensor] = {layer: result.hidden_states[layer][0] for layer in hidden}
        return Output(logits[:, : self.vocab_size], states)


def _eos_token_ids(generation_config: Any, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end a text: from the generation config, else the config, else the tokenizer; () when none says so."""
    for source in (generation_config, config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return (int(ids),) if isinstance(ids, int) else tuple(int(i) for i in ids)
    return ()
