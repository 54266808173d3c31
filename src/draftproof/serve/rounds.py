"""What drafting did, told beside the text of a request that asks for it: every round in the form in
which the viewer shows it (docs/view.md)."""

from __future__ import annotations

from typing import Any

from draftproof.decode.result import Update
from draftproof.decode.round_texts import RoundTexts
from draftproof.view.data import round_data


class RoundsShown:
    """The rounds of one request's texts; of nobody else's. wanted: whether it asks for them."""

    def __init__(self, tokenizer: Any, wanted: bool | None) -> None:
        self._tokenizer, self._wanted = tokenizer, bool(wanted)
        self._texts: dict[int, RoundTexts] = {}

    def of(self, index: int, update: Update, num_prompt_tokens: int) -> dict[str, Any]:
        """What the choice of text `index` has beside what else an update brought."""
        if not self._wanted:
            return {}
        texts = self._texts.setdefault(index, RoundTexts(self._tokenizer, num_prompt_tokens))
        shown = []
        for record in update.rounds:
            spelled = texts.of(record)
            pair = spelled["texts"], spelled["draft_texts"]
            shown.append(round_data(record, pair) | {"sample": update.index})
        return {"rounds": shown}


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The rounds of a choice's parts."""
    if not any("rounds" in part for part in parts):
        return {}
    return {"rounds": [each for part in parts for each in part.get("rounds", ())]}
