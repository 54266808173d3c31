"""The automaton against brute force: what occurs, how often, what follows; and what it costs."""

from __future__ import annotations

import random

import pytest

from draftproof.drafters.stores.automaton import BREAK, SuffixAutomaton
from draftproof.drafters.stores.outputs import SharedOutputs


def occurrences(text, stretch):
    return sum(text[i : i + len(stretch)] == stretch for i in range(len(text) - len(stretch) + 1))


def followers(counts, state):
    return {token: count for token, count, _, _ in counts.followers(state)}


def check_suffixes(counts, text, depth, alphabet):
    found = list(counts.suffixes())
    assert [n for _, low, high in reversed(found) for n in range(low, high + 1)] == list(
        range(1, min(depth, len(text)) + 1)
    )
    for state, low, high in found:
        for length in range(low, high + 1):
            stretch = text[-length:]
            assert counts.count[state] == occurrences(text, stretch)
            if length < depth:
                after = {token: occurrences(text, [*stretch, token]) for token in range(alphabet)}
                assert followers(counts, state) == {
                    token: count for token, count in after.items() if count
                }


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("alphabet", [1, 2, 3])
def test_every_suffix_is_counted_as_by_hand_after_every_token(depth, alphabet):
    rng = random.Random(depth * 10 + alphabet)
    for _ in range(12):
        text: list[int] = []
        counts = SuffixAutomaton(depth)
        for _ in range(30):
            text.append(rng.randrange(alphabet))
            counts.extend(text[-1:])
            check_suffixes(counts, text, depth, alphabet)


def test_the_latest_occurrence_is_known():
    counts = SuffixAutomaton(4)
    counts.extend([5, 1, 5, 2, 5])
    state = next(state for state, low, _ in counts.suffixes() if low == 1)
    assert sorted((token, latest) for token, _, latest, _ in counts.followers(state)) == [
        (1, 2),
        (2, 4),
    ]


def test_another_text_is_matched_by_its_longest_suffix_that_occurs():
    rng = random.Random(3)
    for _ in range(200):
        text = [rng.randrange(3) for _ in range(20)]
        other = [rng.randrange(3) for _ in range(6)]
        counts = SuffixAutomaton(5)
        counts.extend(text)
        longest = max(n for n in range(6) if occurrences(text, other[len(other) - n :]))
        assert next((high for _, _, high in counts.matches(other)), 0) == longest


def test_nothing_is_seen_across_a_break():
    counts = SuffixAutomaton(4)
    counts.extend([1, 2, BREAK, 3, 2, BREAK])
    (state, _, _) = next(counts.matches([9, 2]))
    assert (counts.count[state], followers(counts, state)) == (2, {})


class Counting(list):
    """A list that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, i):
        Counting.looks += 1
        return super().__getitem__(i)


@pytest.mark.parametrize("kind", ["random", "period", "copies", "one token"])
def test_states_and_steps_grow_linearly(kind):
    """Twice the text, at most about twice the states and the looks at them: 2.4 leaves room for the
    first tokens' share."""

    def cost(size):
        rng = random.Random(0)
        block = [rng.randrange(200) for _ in range(100)]
        text = {
            "random": [rng.randrange(50) for _ in range(size)],
            "period": [i % 7 for i in range(size)],
            "copies": (block * (size // 100 + 1))[:size],
            "one token": [0] * size,
        }[kind]
        counts = SuffixAutomaton(24)
        counts.link, counts.length, counts.follow = (
            Counting(counts.link),
            Counting(counts.length),
            Counting(counts.follow),
        )
        Counting.looks = 0
        counts.extend(text)
        return len(counts.count), sum(map(len, list(counts.follow))), Counting.looks

    small, large = cost(1500), cost(3000)
    assert large[0] <= 2 * 3000 and large[1] <= 3 * 3000
    assert large[2] <= 2.4 * small[2]


def test_the_shared_store_keeps_to_its_caps_and_drops_the_oldest():
    store = SharedOutputs(8, 8, 1000)
    for i in range(40):
        store.add([100 + i, 200 + i])
        assert store.num_requests <= 8
        assert store.num_tokens <= 1000
    held = [part for part in store.parts() if next(part.matches([139]), None)]
    assert len(held) == 1
    assert not any(next(part.matches([100]), None) for part in store.parts())
    store.add(list(range(5000)))
    assert store.num_tokens <= 1000
    assert any(next(part.matches([4999]), None) for part in store.parts()), (
        "the end of an output too long is kept"
    )
    store.add([])
    assert store.version == 41
