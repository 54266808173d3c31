"""What a drafter is shown after a round: the states of the accepted path, whatever else the target
read."""

from __future__ import annotations

import numpy as np

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.drafters.protocol import Drafter, DraftSession, Wants

CYCLE = [[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)]


def state(prefix, layer):
    return np.array([len(prefix), prefix[-1], layer], dtype=np.float64)


class SecondIsRight(Drafter, DraftSession):
    """Two siblings a level, of which the second is what the target writes."""

    name, trees, wants = "second_is_right", True, Wants(hidden=(1,))
    selections = frozenset({"fixed"})
    memories = ()

    def open(self, request):
        self.seen = []
        return self

    def propose(self, context, draft):
        node, token = -1, context[-1]
        while draft.room_under(node) > 0 and draft.num_nodes < 4:
            draft.guess((token + 5) % 8, node)
            node = draft.guess((token + 1) % 8, node)
            token = (token + 1) % 8

    def observe(self, seen):
        self.seen.append(seen)

    def state_key(self):
        return ()

    def fork(self):
        return self


def test_states_are_those_of_the_accepted_path():
    drafter = SecondIsRight()
    config = {"num_speculative_tokens": 2, "rule": "match"}
    made = SpeculativeDecoder(drafter, TableModel(CYCLE, hidden=state), speculative_config=config)
    result = made.generate([0, 1, 2], SamplingParams(max_tokens=10, temperature=0))
    assert result.stats.num_accepted_tokens >= 4
    text, shown = [0, 1, 2, *result.token_ids], 0
    for seen in drafter.seen:
        assert seen.start == shown
        for place, (token, vector) in enumerate(
            zip(seen.tokens, seen.hidden[1], strict=True), start=seen.start
        ):
            assert token == text[place]
            np.testing.assert_array_equal(np.asarray(vector), state(text[: place + 1], 1))
        shown += len(seen.tokens)
    assert shown >= 10
