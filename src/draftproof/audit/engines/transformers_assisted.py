"""transformers' own assisted generation and prompt lookup, their rounds recorded through public
hooks.

Drafts are what the target's forward pass is given (a module's forward pre-hook), emitted tokens
what the streamer is given, round by round. The law a draft model's tokens claim to come from is the
softmax of the scores its `generate` returns, the array that transformers puts into the acceptance
ratio: the assistant is of a subclass whose `generate` keeps what it returns."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from draftproof.audit.engines.rounds import RecordedRound
from draftproof.bench.hf_arms import HFArm, check_params, quiet
from draftproof.core.params import SamplingParams
from draftproof.core.records import Draft
from draftproof.core.rules import RULES
from draftproof.errors import UsageError

Kind = Literal["assisted", "lookup"]
NO_TOKEN = -1
"""The id that ends no text."""


class TransformersEngine:
    """target, draft: HFModels; without a draft prompt lookup drafts. length: drafts a round, at
    most: a draft model stops earlier where it is unsure, by transformers' own default."""

    def __init__(self, target: Any, draft: Any = None, length: int = 5) -> None:
        from transformers import __version__

        self.kind: Kind = "lookup" if draft is None else "assisted"
        if length < 1:
            raise UsageError(f"the draft length is {length}; allowed: 1 or more")
        self._arm = HFArm(self.kind, target, draft=draft, length=length)
        self._assistant = None if draft is None else recorded(draft.module, length)
        self.target = target
        self.rule = RULES["match" if draft is None else "token"]
        what = "prompt lookup" if draft is None else "assisted generation"
        self.name = f"transformers {__version__}, {what}"

    def rounds(self, prompt: Sequence[int], params: SamplingParams) -> Iterator[RecordedRound]:
        """The rounds of one text, which goes on to max_tokens; recorded while it is written, given
        afterwards."""
        import torch

        check_params(params)
        arguments = self._arm.arguments(params, len(prompt))
        # None would be filled in from the model
        arguments["generation_config"].eos_token_id = [NO_TOKEN]
        arguments["generation_config"].min_new_tokens = None
        if self._assistant is not None:
            arguments["assistant_model"] = self._assistant
        module, device = self.target.module, self.target.device
        recorder = _Recorder(tuple(prompt), params.max_tokens or 0, self._assistant)
        hook = module.register_forward_pre_hook(recorder.before_pass, with_kwargs=True)
        torch.manual_seed(params.seed or 0)
        tokens = torch.tensor([list(prompt)], device=device)
        try:
            with torch.inference_mode(), quiet():
                module.generate(
                    tokens, attention_mask=torch.ones_like(tokens), streamer=recorder, **arguments
                )
        finally:
            hook.remove()
        yield from recorder.rounds


class _Recorder:
    """Streamer and hook of one text."""

    def __init__(self, prompt: tuple[int, ...], max_tokens: int, assistant: Any) -> None:
        self.prompt, self.context, self.assistant = prompt, prompt, assistant
        self.limit = len(prompt) + max_tokens
        self.rounds: list[RecordedRound] = []
        self._passed: list[int] = []
        self._prompt_seen = False

    def before_pass(self, module: Any, args: Any, kwargs: Any) -> None:
        """The target is about to read: all of the text on its first pass, else the pending token;
        and the drafts behind it."""
        given = (kwargs["input_ids"] if kwargs.get("input_ids") is not None else args[0])[
            0
        ].tolist()
        self._passed = given[len(self.context) :] if not self.rounds else given[1:]

    def put(self, tokens: Any) -> None:
        """The tokens of one round; the prompt comes first."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        emitted = tuple(tokens.reshape(-1).tolist())
        draft = self._draft()
        cut = len(draft) > self.limit - len(self.context) - 1
        accepted = len(emitted) - 1
        if cut:
            pairs = zip(emitted, draft.tokens, strict=False)
            accepted = next(
                (i for i, (one, other) in enumerate(pairs) if one != other),
                min(len(emitted), len(draft)),
            )
        self.rounds.append(
            RecordedRound(self.prompt, self.context, draft, tuple(range(accepted)), emitted, cut)
        )
        self.context = (*self.context, *emitted)

    def end(self) -> None:
        """Nothing is held back."""

    def _draft(self) -> Draft:
        tokens = tuple(self._passed)
        parents = tuple(range(-1, len(tokens) - 1))
        if self.assistant is None or not tokens:
            return Draft(tokens, parents)
        scores = self.assistant.kept[-1]
        laws = {place - 1: score[0].float().softmax(-1) for place, score in enumerate(scores)}
        self.assistant.kept.clear()
        return Draft(tokens, parents, laws, "iid")


def recorded(module: Any, length: int) -> Any:
    """A draft model over the same weights, of a subclass whose `generate` keeps the scores it
    returns in `kept`, with a generation config of its own that drafts `length` tokens."""
    kind = type(module)

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def generate(self, *args: Any, **kwargs: Any) -> Any:
            output = super().generate(*args, **kwargs)
            self.kept.append(output.scores)
            return output

    Recorded.__name__ = kind.__name__  # transformers looks at it
    made = copy.copy(module)
    made.__class__ = Recorded
    made.kept = []
    made.generation_config = copy.deepcopy(module.generation_config)
    made.generation_config.num_assistant_tokens = length
    made.generation_config.num_assistant_tokens_schedule = "constant"
    return made
