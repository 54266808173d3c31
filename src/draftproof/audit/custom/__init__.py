"""The enumerated proof for a rule, a drafter or a step function of anybody's."""
