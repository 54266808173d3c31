"""The proposer that vLLM asks for drafts: rows of its batch in, lists of tokens out (read at vLLM
0.32, `custom_class`).

vLLM hands over every row's tokens and no name of the request in it, moves rows about when others
end, and tells nobody when one ends. A row's state is therefore found again by its text, and freed
in the first step in which no row goes on from it.

Drafts are lists of tokens, which vLLM verifies as one-hot laws: exact for whatever is proposed, and
accepted with the target's probability of the token. Drafters that sample have no way to hand over
the law they drew from, and get no hidden states either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.decode.config import SpeculativeConfig
from draftproof.drafters.registry import METHODS, Parts
from draftproof.errors import UsageError
from draftproof.vllm.row import Row, Verifier

CONFIG = "draftproof"
"""The key of vLLM's `--additional-config` that holds our own speculative config."""


class Proposer:
    """The drafter that `--additional-config '{"draftproof": {"method": ...}}'` names, with the keys
    of a speculative config.

    vllm_config: of the engine. UsageError for a method that does not draft from tokens alone, or
    keys that vLLM decides."""

    method: str | None = None

    def __init__(self, vllm_config: Any) -> None:
        model = vllm_config.model_config
        self._length = int(vllm_config.speculative_config.num_speculative_tokens)
        self._verifier = Verifier(
            str(model.model), int(model.get_vocab_size()), int(model.max_model_len)
        )
        asked = dict((getattr(vllm_config, "additional_config", None) or {}).get(CONFIG) or {})
        self._config = self._checked(asked)
        stores = any("store" in config.options for config in (self._config, *self._config.members))
        tokenizer = _tokenizer(model) if stores else None
        self._drafter = self._config.spec.make(self._config, Parts(self._verifier, None, tokenizer))
        self._rows: list[Row] = []

    def load_model(self, target_model: Any) -> None:
        """Nothing to load: drafts come from tokens alone."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A draft for every row of the batch; none for one whose prompt is not read to its end.

        sampled_token_ids: what each row has just got, accepted drafts included. num_tokens_no_spec
        [rows]: how long its text is now. token_ids_cpu [rows, ...]: the texts. slot_mappings: where
        keys and values lie, of no use here."""
        before, self._rows = self._rows, []
        drafts: list[list[int]] = []
        for place, sampled in enumerate(sampled_token_ids):
            if not len(sampled):
                drafts.append([])
                continue
            text = token_ids_cpu[place, : int(num_tokens_no_spec[place])]
            row = self._row(before, place, text, len(sampled))
            self._rows.append(row)
            drafts.append(row.draft(self._length))
        for row in before:
            row.close()
        return drafts

    def _row(self, before: list[Row], place: int, text: Any, num_new: int) -> Row:
        """The state that `text` goes on from, taken out of `before`, told what is new; a fresh one
        when there is none."""
        # rows seldom move, so the first is nearly always the one
        nearest = sorted(before, key=lambda row: row.place != place)
        found = next((row for row in nearest if row.goes_on(text)), None)
        if found is None:
            found = Row(self._drafter, self._config, self._verifier, text[: len(text) - num_new])
        else:
            before.remove(found)
        found.place = place
        found.read(text)
        return found

    def _checked(self, asked: Mapping[str, Any]) -> SpeculativeConfig:
        """Our configuration, its draft length vLLM's."""
        name = asked.get("method") or self.method
        if self.method is not None and name != self.method:
            raise UsageError(
                f"{type(self).__name__} drafts by method {self.method!r}, not {name!r}: "
                "name draftproof.vllm.Proposer"
            )
        for key in (
            "rule",
            "rejection_sample_method",
            "tree",
            "model",
            "num_speculative_tokens_per_batch_size",
        ):
            if asked.get(key) is not None:
                raise UsageError(
                    f"{CONFIG} has the key {key!r}; inside vLLM, whose rules verify, it "
                    "is not ours to decide"
                )
        if asked.get("num_speculative_tokens", self._length) != self._length:
            raise UsageError(
                f"{CONFIG} asks for {asked['num_speculative_tokens']} tokens a draft, "
                f"vLLM for {self._length}"
            )
        alone = sorted(known.name for known in METHODS.values() if known.replayable)
        if name not in (*alone, "auto"):
            raise UsageError(
                "vLLM shows proposers tokens alone, which is enough for "
                f"{', '.join(alone)} and auto; not for {name!r}"
            )
        config = SpeculativeConfig.from_dict(
            {**asked, "method": name, "num_speculative_tokens": self._length}
        )
        if other := [member.method for member in config.members if member.method not in alone]:
            raise UsageError(
                "vLLM shows proposers tokens alone: auto chooses from "
                f"{', '.join(alone)} there, not {other[0]!r}"
            )
        return config


class Suffix(Proposer):
    """Suffix decoding, within the request unless `suffix_decoding_max_cached_requests` is given."""

    method = "suffix"


class NGram(Proposer):
    """Prompt lookup."""

    method = "ngram"


class NGramCache(Proposer):
    """Tables of what followed each n-gram; `store` names a file of `draftproof build-store`."""

    method = "ngram_cache"


class Auto(Proposer):
    """Several drafters side by side: suffix and ngram unless `drafters` says otherwise. `costs`:
    what it weighs them by."""

    method = "auto"


def _tokenizer(model: Any) -> Any:
    """The target's, for a store that is bound to it."""
    from draftproof.models.load import load_tokenizer

    return load_tokenizer(str(model.tokenizer))
