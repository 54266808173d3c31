"""The table of costs that drafting is decided by, for a configuration that was given none."""

from __future__ import annotations

from dataclasses import replace

from draftproof.costs.counted_costs import counted_costs
from draftproof.decode.controllers import weighs_costs
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.measured_costs import measured_costs
from draftproof.decode.speculation import Speculation
from draftproof.models.protocol import LanguageModel


def needs_costs(speculation: Speculation) -> bool:
    """Whether lengths are decided by costs and none were given."""
    config, drafter = speculation.config, speculation.drafter
    return drafter is not None and config.costs is None and weighs_costs(config, drafter)


def with_costs(target: LanguageModel, speculation: Speculation) -> Speculation:
    """The same with a table of costs, if it needs one and was given none: measured where the clock
    cannot change a text, or is asked to (`live`), else counted, so that a seed gives one text."""
    if not needs_costs(speculation):
        return speculation
    config, drafter = speculation.config, speculation.drafter
    assert drafter is not None
    if speculation.rule.text_follows_seed or LENGTHS[config.length_rule].live:
        table = measured_costs(target, drafter, config.num_speculative_tokens)
    else:
        table = counted_costs(target, drafter)
    costs = {name: costs.as_dict() for name, costs in table.items()}
    return replace(speculation, config=replace(config, costs=costs))
