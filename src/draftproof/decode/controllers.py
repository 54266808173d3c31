"""From a configuration to the controller of one request's draft lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.length import LengthController, Member
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import Ledger
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError


def weighs_costs(config: SpeculativeConfig, drafter: Drafter) -> bool:
    """Whether anything is decided by costs: the length, when to stop drafting, or which drafter
    drafts."""
    return (
        LENGTHS[config.length_rule].weighs
        or config.loss_share is not None
        or len(drafter.members) > 1
    )


def length_controller(
    config: SpeculativeConfig, drafter: Drafter | None
) -> LengthController | None:
    """The controller of one request; None where every draft is as long as configured and never
    stops."""
    if drafter is None:
        return None
    if config.length_rule == "fixed" and not weighs_costs(config, drafter):
        return None
    length = LENGTHS[config.length_rule]
    share = config.loss_share
    made = []
    for name, member in drafter.members.items():
        by_token = _costs(config.costs, name)
        limit = drafter.limits.get(name)
        costs = by_level(by_token, member, limit or config.num_speculative_tokens)
        made.append(
            Member(
                name,
                length.make(costs),
                costs,
                auto_off=share is not None,
                live=length.live,
                by_token=by_token if member.trees else None,
                longest=limit,
            )
        )
    return LengthController(made, None if share is None else Ledger(share))


def _costs(given: Mapping[str, object] | None, name: str) -> RoundCosts:
    """A drafter's costs: from a table by drafter, or the one table for all. UsageError when none is
    its."""
    if given is None:
        return RoundCosts()
    if name not in given and not {field.name for field in fields(RoundCosts)} & set(given):
        raise UsageError(
            f"costs has tables for {', '.join(map(str, given))} and none for {name!r}; "
            "give one for every drafter"
        )
    return RoundCosts.from_dict(given.get(name, given))


def by_level(costs: RoundCosts, drafter: Drafter, longest: int) -> RoundCosts:
    """Costs by level of a tree instead of by token: what the target reads for so many levels, at
    most."""
    if not drafter.trees:
        return costs
    reads = [0, *(drafter.most_read(depth) for depth in range(1, max(longest, 1) + 1))]
    points = tuple((depth + 1, costs.verify_ratio(1 + count)) for depth, count in enumerate(reads))
    return replace(
        costs,
        verify=points,
        each=costs.each * max(count / depth for depth, count in enumerate(reads) if depth),
    )
