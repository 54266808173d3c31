"""Which decoder a request gets: the server's own, another length of it, or another drafter over the
same target.

A request may choose among drafters that need no weights, no files and no measuring; everything else
is for whoever starts the server to decide.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from draftproof.core.rules import RULES
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.drafters.registry import METHODS
from draftproof.errors import UsageError
from draftproof.serve.errors import of_usage, refuse

FIELD = "speculative_config"

METHODS_BY_REQUEST = tuple(
    name
    for name, method in METHODS.items()
    if method.model is None and not method.requires and method.members is None
)
KEYS_BY_REQUEST = (
    *(
        "method",
        "num_speculative_tokens",
        "rule",
        "rejection_sample_method",
        "prompt_lookup_max",
        "prompt_lookup_min",
    ),
    *(
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
    ),
)
LONGEST_DRAFT = 128
"""Tokens of a draft that a request may ask for: one request's pass is every other's waiting."""

MOST_KEPT = 16


class Decoders:
    """The server's decoder, and those that requests asked for, the least recently used forgotten.

    build: how a decoder is made from a config. lossless: whether rules that change the target's law
    are refused."""

    def __init__(
        self,
        usual: SpeculativeDecoder,
        build: Callable[[SpeculativeConfig], SpeculativeDecoder],
        *,
        lossless: bool = False,
    ) -> None:
        self.usual, self._build, self._lossless = usual, build, lossless
        self._made: OrderedDict[str, SpeculativeDecoder] = OrderedDict()

    def choose(
        self, config: Mapping[str, Any] | None, predicts: bool
    ) -> tuple[SpeculativeDecoder, int | None]:
        """The decoder, and the draft length where it is not the decoder's own. predicts: the
        request brings a prediction, which the method `prediction` reads where the server's own does
        not. ApiError for what a request may not choose."""
        if config is None:
            return self._with_prediction(predicts), None
        self._check(config)
        length = config.get("num_speculative_tokens")
        is_off = length == 0 or config.get("method") == "none"
        if is_off and set(config) <= {"method", "num_speculative_tokens"}:
            if predicts:
                refuse(
                    FIELD,
                    (
                        "a prediction is drafted from, and speculative_config switches "
                        "drafting off: leave one of them out"
                    ),
                )
            return self.usual, 0
        if set(config) == {"num_speculative_tokens"}:
            decoder = self._with_prediction(predicts)
            if decoder.drafter is None:
                refuse(
                    FIELD,
                    (
                        f"{FIELD} gives a length, but this server drafts nothing unless the "
                        "request names a method"
                    ),
                )
            return decoder, length
        decoder = self._of(dict(config))
        if predicts and not _reads_predictions(decoder):
            refuse(FIELD, "a prediction is read by method 'prediction': name that method, or none")
        return decoder, None

    def _with_prediction(self, predicts: bool) -> SpeculativeDecoder:
        return (
            self.usual
            if not predicts or _reads_predictions(self.usual)
            else self._of({"method": "prediction"})
        )

    def _check(self, config: Mapping[str, Any]) -> None:
        unknown = [key for key in config if key not in KEYS_BY_REQUEST]
        if unknown:
            refuse(
                FIELD,
                (
                    f"{FIELD} of a request has no key {unknown[0][:80]!r}; it reads "
                    f"{', '.join(KEYS_BY_REQUEST)}"
                ),
            )
        method, length = config.get("method"), config.get("num_speculative_tokens")
        if method is not None and method not in METHODS_BY_REQUEST:
            refuse(
                FIELD,
                (
                    f"method {str(method)[:80]!r} is not for a request to choose; it may "
                    f"name {', '.join(METHODS_BY_REQUEST)}"
                ),
            )
        if length is not None and not (type(length) is int and 0 <= length <= LONGEST_DRAFT):
            refuse(
                FIELD,
                f"num_speculative_tokens is {str(length)[:40]}; allowed: 0 to {LONGEST_DRAFT}",
            )

    def _of(self, config: dict[str, Any]) -> SpeculativeDecoder:
        key = json.dumps(config, sort_keys=True)
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        try:
            parsed = SpeculativeConfig.from_dict(config)
            rule = parsed.rule_name
            if self._lossless and rule is not None and not RULES[rule].lossless:
                refuse(
                    FIELD, f"rule {rule!r} changes the target's law, which this server does not do"
                )
            decoder = self._build(parsed)
        except UsageError as error:
            raise of_usage(error, FIELD) from error
        self._made[key] = decoder
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)
        return decoder


def _reads_predictions(decoder: SpeculativeDecoder) -> bool:
    return decoder.drafter is not None and decoder.drafter.wants.prediction
