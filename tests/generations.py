"""One text of a decoder, to be driven round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof import SamplingParams
from draftproof.decode.request import GenerationRequest
from draftproof.decode.sequences import make_stopper, open_generation


def generation_of(decoder: Any, session: Any, prompt: Sequence[int], params: SamplingParams) -> Any:
    """What `decoder` would run over `session` for this prompt."""
    stopper = make_stopper(decoder.target, decoder.tokenizer, len(prompt), params)
    return open_generation(
        decoder.target,
        session,
        GenerationRequest(tuple(prompt), params),
        0,
        stopper,
        decoder.speculation,
    )
