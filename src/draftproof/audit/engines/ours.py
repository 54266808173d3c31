"""draftproof's own decoder, its rounds recorded.

What is recorded is what the rule was handed, the draft with its laws, and what the round made of
it, as `on_round` tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from draftproof import __version__
from draftproof.audit.engines.rounds import RecordedRound
from draftproof.core.chance import Chance
from draftproof.core.params import SamplingParams
from draftproof.core.records import Draft, Round, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.errors import UsageError


class RecordingRule(Rule):
    """A rule that keeps the draft and the verdict of its latest round. alter: what is done to a
    draft before it is verified, for planted faults."""

    def __init__(self, rule: Rule, alter: Callable[[Draft], Draft] = lambda draft: draft) -> None:
        self._rule, self._alter = rule, alter
        self.name, self.lossless, self.selections = rule.name, rule.lossless, rule.selections
        self.trees, self.coupled = rule.trees, rule.coupled
        self.text_follows_seed = rule.text_follows_seed
        self.latest: tuple[Draft, Verdict] | None = None

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        draft = self._alter(draft)
        verdict = self._rule.verify(draft, target_laws, chance)
        self.latest = draft, verdict
        return verdict


class OurEngine:
    """A decoder of ours under audit. rule: what its rounds are held against; None: the decoder's
    own."""

    def __init__(self, decoder: SpeculativeDecoder, rule: Rule | None = None) -> None:
        if decoder.drafter is None:
            raise UsageError(
                "this decoder drafts nothing (method 'none'), so it has no rounds to look into"
            )
        self.rule = rule or decoder.rule
        if not self.rule.lossless:
            raise UsageError(
                f"rule {self.rule.name!r} changes the target's law by design: there is "
                "nothing to audit"
            )
        self.name = f"draftproof {__version__}, {decoder.drafter.name} with {self.rule.name}"
        self._recording = RecordingRule(decoder.rule)
        self._decoder = decoder.with_rule(self._recording)

    def rounds(self, prompt: Sequence[int], params: SamplingParams) -> Iterator[RecordedRound]:
        """The rounds of one text, which goes on to max_tokens."""
        context, found = tuple(prompt), list[RecordedRound]()

        def heard(record: Round) -> None:
            nonlocal context
            assert self._recording.latest is not None
            draft, verdict = self._recording.latest
            cut = len(record.tokens) <= record.num_accepted_tokens
            seen = RecordedRound(tuple(prompt), context, draft, verdict.path, record.tokens, cut)
            context = (*context, *record.tokens)
            self.heard(seen)
            found.append(seen)

        for _ in self._decoder.stream(
            list(prompt), replace(params, ignore_eos=True), on_round=heard
        ):
            yield from found
            found.clear()
        yield from found

    def heard(self, seen: RecordedRound) -> None:
        """Called with each round as it ends, before the next begins."""
