"""From a checked request to one text of it, ready to be generated: the one place where a generation
is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from draftproof.core.chance import stream_key
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.decode.generation import Generation
from draftproof.decode.plain import PlainGeneration
from draftproof.decode.request import GenerationRequest
from draftproof.decode.speculation import Speculation, chance_of
from draftproof.decode.stopping import Stopper
from draftproof.decode.text import Detokenizer
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.models.protocol import LanguageModel, Session

OpenDrafter = Callable[[Drafter, Request], DraftSession]
"""How a text comes by its drafter's session, where that is kept from one text to the next."""


def open_generation(
    target: LanguageModel,
    session: Session,
    request: GenerationRequest,
    index: int,
    stopper: Stopper,
    speculation: Speculation | None = None,
    *,
    coupled: bool = False,
    open_drafter: OpenDrafter | None = None,
) -> Generation | PlainGeneration:
    """Text `index` of a request over `session`, which has read a prefix of the prompt or nothing.

    speculation: None decodes with the target alone; coupled: such texts are then drawn as under the
    rule `gumbel`. open_drafter: by default the drafter's session is opened for this text and ends
    with it."""
    ids, params = request.prompt_token_ids, request.params
    if index > 0:
        params = replace(params, prompt_logprobs=None)
    session.rollback(min(session.length, len(ids) - 1))
    pipeline = LawPipeline(
        params,
        num_prompt_tokens=len(ids),
        vocab_size=target.vocab_size,
        eos_token_ids=target.eos_token_ids,
    )
    number = request.first_index + index
    if speculation is None:
        stream = stream_key(request.seed, number, prompt=ids)
        return PlainGeneration(
            session, list(ids), params, pipeline, stopper, chance_of(stream, coupled=coupled)
        )
    drafter, drafting = speculation.drafter_for(params), None
    if drafter is not None:
        asked = Request(ids, params, pipeline.for_drafter(), target, number)
        drafting = drafter.open(asked) if open_drafter is None else open_drafter(drafter, asked)
    return Generation(
        session=session,
        context=list(ids),
        params=params,
        pipeline=pipeline,
        stopper=stopper,
        rule=speculation.rule_for(params),
        chance_at=speculation.chance_of(ids, params, number),
        drafting=drafting,
        owns_drafting=open_drafter is None,
        wants=drafter.wants if drafter else Generation.wants,
        num_speculative_tokens=speculation.draft_length(params),
        max_nodes=speculation.max_nodes,
        length=speculation.length_controller(params),
    )


def make_stopper(
    target: LanguageModel,
    tokenizer: Any,
    num_prompt_tokens: int,
    params: SamplingParams,
    *,
    streams: bool = False,
) -> Stopper:
    """What ends a text. streams: its text is wanted while it comes."""
    room = None if target.max_length is None else target.max_length - num_prompt_tokens
    limit = min(n for n in (params.max_tokens, room) if n is not None)
    detokenizer = None
    if tokenizer is not None and (streams or params.stop):
        skip, watched = params.skip_special_tokens, bool(params.stop)
        detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip, keeps_written=watched)
    return Stopper(params, eos_token_ids=target.eos_token_ids, limit=limit, detokenizer=detokenizer)
