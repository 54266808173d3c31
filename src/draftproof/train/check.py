"""Two checks at the end of a training, because a head that validates well and drafts badly has
happened to everyone.

The hidden states it trained on must be those a generation shows it, and the acceptance foretold on
held-out texts must be what a generation then measures on their prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.drafters.eagle import Eagle as EagleDrafter
from draftproof.drafters.medusa import Medusa as MedusaDrafter
from draftproof.drafters.protocol import Drafter
from draftproof.heads.folder import method_of
from draftproof.heads.medusa import Medusa
from draftproof.models.protocol import LanguageModel, Step
from draftproof.train.states import show_states
from draftproof.train.store import Text
from draftproof.train.unroll import Head

LARGEST_DIFFERENCE = 1e-5
POINTS = 0.05
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Measured:
    """Acceptance by position as generation found it: marginal[i] over `drafts` drafts of full
    length."""

    marginal: tuple[float, ...]
    drafts: int

    def departs_from(self, foretold: Sequence[float]) -> list[int]:
        """Positions (from 1) whose measured acceptance is more than 5 points from what was
        foretold, and by more than chance."""
        far = []
        for place, (found, expected) in enumerate(zip(self.marginal, foretold, strict=False), 1):
            error = (max(expected * (1 - expected), 1e-4) / max(self.drafts, 1)) ** 0.5
            if abs(found - expected) > max(POINTS, STANDARD_ERRORS * error):
                far.append(place)
        return far


def drafter_of(head: Head) -> Drafter:
    """The drafter that runs a head: chains, sampled where the head can be sampled from."""
    return (
        MedusaDrafter(head)
        if isinstance(head, Medusa)
        else EagleDrafter(head, name=method_of(head))
    )


def measured_acceptance(
    target: LanguageModel, drafter: Drafter, texts: Sequence[Text], length: int, max_tokens: int
) -> Measured:
    """Generate from the prompts of `texts`, each at its own temperature, with drafts of `length`
    tokens, and count."""
    decoder = SpeculativeDecoder(
        drafter, target, speculative_config={"num_speculative_tokens": length}
    )
    accepted, drafts = [0] * length, 0
    for text in texts:
        temperature = 1.0 if text.temperature is None else text.temperature
        params = SamplingParams(
            max_tokens=max_tokens, temperature=temperature, seed=(text.seed or 0) + 1
        )
        for record in decoder.generate(list(text.tokens[: text.prompt]), params).rounds:
            if len(record.draft_tokens) == length:
                drafts += 1
                for place in range(record.num_accepted_tokens):
                    accepted[place] += 1
    return Measured(tuple(count / max(drafts, 1) for count in accepted), drafts)


def acceptance_faults(measured: Measured, foretold: Sequence[float]) -> tuple[str, ...]:
    """A sentence for every position whose measured acceptance departs from what was foretold, or
    where nothing was seen."""
    if measured.drafts == 0:
        return (
            (
                f"generation made no draft of {len(measured.marginal)} tokens, so acceptance "
                "was not checked"
            ),
        )
    return tuple(
        f"position {place}: generation accepted {measured.marginal[place - 1]:.3f}, "
        f"held-out texts foretold {foretold[place - 1]:.3f}"
        for place in measured.departs_from(foretold)
    )


def largest_difference(target: LanguageModel, text: Text, layers: Sequence[int]) -> float:
    """Between the hidden states that training sees and those a generation shows, which reads the
    prompt and then token by token: the largest, relative to the largest state of its layer."""
    layers = tuple(dict.fromkeys(layers))  # a shallow target has one layer fused twice
    trained = show_states(target, [text], layers).hidden
    session = target.open()
    shown: dict[int, list[torch.Tensor]] = {layer: [] for layer in layers}
    try:
        pieces = [text.tokens[: text.prompt], *([token] for token in text.tokens[text.prompt :])]
        for piece in pieces:
            output = target.extend_many(
                [Step(session, tuple(piece), rows=(len(piece) - 1,), hidden=layers)]
            )[0]
            for layer in layers:
                shown[layer].append(torch.as_tensor(output.hidden[layer]).float())
    finally:
        session.close()
    worst = 0.0
    for layer in layers:
        one, other = trained[layer][0], torch.cat(shown[layer])
        worst = max(worst, float((one - other).abs().max() / one.abs().max().clamp_min(1e-12)))
    return worst
