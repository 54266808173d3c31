"""Which of several drafters drafts: by what its time would bring elsewhere, at the pace of the
text."""

from __future__ import annotations

import numpy as np

from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import Ledger
from draftproof.decode.lengths.pace import START_PACE, Pace
from draftproof.drafters.protocol import Foreseen

VERIFY = ((1, 1.0), (2, 1.12), (3, 1.15), (5, 1.38), (9, 1.62), (17, 1.91))
LOOKUP = RoundCosts(verify=VERIFY)
HEAD = RoundCosts(verify=VERIFY, draft=0.045, read=0.001, fixed=0.09)
NOTHING, STRONG = Foreseen(0), Foreseen(9, most=12, chance=0.92)


def controller(head: RoundCosts = HEAD) -> LengthController:
    tables = {"lookup": LOOKUP, "head": head}
    members = [
        Member(name, LENGTHS["survival"].make(costs), costs, auto_off=True)
        for name, costs in tables.items()
    ]
    return LengthController(members, Ledger(0.03))


def situation(
    lookup: Foreseen, length: int = 60, remaining: int = 120, chance: float = 0.5
) -> Situation:
    return Situation(length, 16, remaining, {"lookup": lookup, "head": Foreseen(1, chance=chance)})


def ended(controller: LengthController, length: int, drafts: int, accepted: int) -> None:
    """The round that was begun drafted so many and kept `accepted` of them."""
    controller.observe(
        Round(
            start=length,
            draft_tokens=(0,) * drafts,
            draft_parents=tuple(range(-1, drafts - 1)),
            tokens=(0,) * (accepted + 1),
            origins=("draft",) * accepted + ("replacement",),
            num_accepted_tokens=accepted,
            reached=min(accepted + 1, drafts),
        )
    )


def test_a_weak_drafter_has_to_beat_the_pace_of_the_text_not_plain_decoding() -> None:
    """A head expected to bring 1.5 tokens in 1.3 plain ones' time is right for a text at 1.3, and
    wrong beside copies at 5."""
    fresh, fast = controller(), controller()
    assert fresh.begin(situation(NOTHING)) > 0 and fresh.choice == "head"
    for turn in range(8):
        drafts = fast.begin(situation(STRONG, 60 + 13 * turn))
        assert fast.choice == "lookup"
        ended(fast, 60 + 13 * turn, drafts, drafts)
    assert fast.begin(situation(NOTHING, 170)) == 0
    assert "pace of the text" in fast.reason


def test_a_probe_waits_until_no_other_drafter_promises_anything() -> None:
    """It costs what the others would have brought: on translations 4 accepted tokens a probe."""
    trying = controller()
    length = 60
    while "off" not in trying.reason:
        drafts = trying.begin(situation(NOTHING, length))
        ended(trying, length, drafts, 0)
        length += 1
    for _ in range(6):
        drafts = trying.begin(situation(STRONG, length))
        assert trying.choice == "lookup"
        ended(trying, length, drafts, drafts)
        length += drafts + 1
    trying.begin(situation(NOTHING, length))
    assert trying.reason == "head: probe"


def test_a_prompt_that_is_dear_to_read_counts_against_the_drafter() -> None:
    dear = RoundCosts(verify=VERIFY, draft=0.045, read=0.0065, fixed=0.09)
    assert controller(dear).begin(situation(NOTHING, length=60)) > 0
    assert controller(dear).begin(situation(NOTHING, length=600)) == 0
    assert controller(HEAD).begin(situation(NOTHING, length=600)) > 0
    assert controller(dear).begin(situation(NOTHING, length=600, remaining=4000)) > 0


def probing() -> LengthController:
    """With a round of the head begun that only asks whether it has become useful."""
    trying, length = controller(), 60
    drafts = trying.begin(situation(NOTHING, length))
    while trying.reason != "head: probe":
        ended(trying, length, drafts, 0)
        length += 1
        drafts = trying.begin(situation(NOTHING, length))
    return trying


def test_a_probe_of_a_chain_heeds_how_sure_the_law_is() -> None:
    """Before the draw: what the head itself thinks hopeless is not verified."""
    assert not probing().go_on(np.full(64, 1 / 64), 0)
    assert probing().go_on(np.eye(64)[3], 0)


def test_pace_follows_recent_rounds_and_never_falls_below_plain() -> None:
    pace = Pace()
    assert pace.now == START_PACE
    for _ in range(60):
        pace.enter(1.4, 1)
    assert pace.now == 1.0
    for _ in range(60):
        pace.enter(1.5, 6)
    assert 3.0 < pace.now < 4.0
