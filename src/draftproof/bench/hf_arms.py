"""transformers' own generation as arms: plain, assisted by a draft model, and prompt lookup, with a
constant draft length.

Forwards are timed by hooks on the modules, tokens as the streamer receives them. On a GPU every
hook waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter
from typing import Any

from draftproof.bench.arms import peak_memory
from draftproof.bench.runs import Chunk, Run
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError
from draftproof.models.steps import wait_for

KINDS = ("plain", "assisted", "lookup")
_UNDERSTOOD = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "seed",
)
_WITHOUT_EFFECT = ("skip_special_tokens", "n")


@dataclass
class _Forward:
    """Seconds and number of one module's forwards; the first one's apart, because it reads the
    prompt."""

    now: Callable[[], float]
    first: float = 0.0
    later: float = 0.0
    count: int = 0
    _began: float = field(default=0.0, repr=False)

    def before(self, *_: Any) -> None:
        self._began = self.now()

    def after(self, *_: Any) -> None:
        taken = self.now() - self._began
        if self.count == 0:
            self.first = taken
        else:
            self.later += taken
        self.count += 1


class _Arrivals:
    """A streamer: when how many tokens came. The prompt, which `generate` puts first, is left
    out."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.chunks, self._began, self._prompt_seen = now, list[Chunk](), now(), False

    def put(self, tokens: Any) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.chunks.append(Chunk(self.now() - self._began, int(tokens.numel())))

    def end(self) -> None:
        """Nothing is held back."""


class HFArm:
    """kind: one of KINDS. target: an HFModel. draft: an HFModel for "assisted". length: drafts a
    round, constant."""

    remembers = False
    lossless = True
    rule: str | None = None

    def __init__(self, kind: str, target: Any, *, draft: Any = None, length: int = 0) -> None:
        if kind not in KINDS:
            raise UsageError(f"there is no transformers arm {kind!r}; allowed: {', '.join(KINDS)}")
        if kind == "assisted" and draft is None:
            raise UsageError("the arm transformers assisted needs a draft model")
        if target.module is None:
            raise UsageError(
                f"{target.name} is not a transformers model, which the transformers arms need"
            )
        self.kind, self.target, self.draft, self.length = kind, target, draft, length
        self.name = (
            "transformers "
            + {
                "plain": "plain",
                "assisted": f"assisted k={length}",
                "lookup": f"lookup k={length}",
            }[kind]
        )
        self.method = {"plain": "none", "assisted": "draft_model", "lookup": "ngram"}[kind]

    def must_equal_plain(self, params: SamplingParams) -> bool:
        return params.temperature == 0

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        import torch

        check_params(params)
        device = self.target.device
        now = _clock(device)
        torch.manual_seed(params.seed or 0)
        tokens = torch.tensor([ids], device=device)
        modules = [m.module for m in (self.target, self.draft) if m is not None]
        arrivals = _Arrivals(now)
        silence, settings = quiet(), self._draft_settings()
        with (
            peak_memory(self.target) as peak,
            _hooks(modules, now) as forwards,
            torch.inference_mode(),
            silence,
            settings,
        ):
            began = now()
            arguments = self.arguments(params, len(ids))
            output = self.target.module.generate(
                tokens, attention_mask=torch.ones_like(tokens), streamer=arrivals, **arguments
            )
            seconds = now() - began
        new = output[0, len(ids) :].tolist()
        chunks = _reconciled(arrivals.chunks, len(new), seconds)
        tokenizer = self.target.tokenizer
        return Run(
            token_ids=tuple(new),
            text=""
            if tokenizer is None
            else tokenizer.decode(new, skip_special_tokens=params.skip_special_tokens),
            seconds=seconds,
            chunks=chunks,
            num_rounds=forwards[0].count,
            parts=self._parts(forwards, chunks, seconds),
            peak_memory_bytes=peak(),
        )

    def _parts(
        self, forwards: list[_Forward], chunks: tuple[Chunk, ...], seconds: float
    ) -> dict[str, float]:
        draft = forwards[1].later if len(forwards) > 1 else 0.0
        drafting_prompt = forwards[1].first if len(forwards) > 1 else 0.0
        rest = seconds - draft - drafting_prompt - forwards[0].first - forwards[0].later
        return {"draft": draft, "verify": forwards[0].later, "rest": rest, "outside_forwards": rest}

    def arguments(self, params: SamplingParams, num_prompt_tokens: int) -> dict[str, Any]:
        """`generate`'s arguments; everything sampling could depend on is said, so that no model
        default comes in."""
        module = self.target.module
        eos = None if params.ignore_eos else list(self.target.eos_token_ids) or None
        config = type(module.generation_config)(
            max_new_tokens=params.max_tokens,
            min_new_tokens=params.max_tokens if params.ignore_eos else params.min_tokens or None,
            do_sample=params.temperature > 0,
            repetition_penalty=params.repetition_penalty,
            eos_token_id=eos,
            pad_token_id=(self.target.eos_token_ids or (0,))[0],
        )
        if params.temperature > 0:
            config.temperature, config.top_p = params.temperature, params.top_p
            config.min_p = params.min_p or None
            config.top_k = max(params.top_k, 0)
        if self.kind == "lookup":
            config.prompt_lookup_num_tokens = self.length
        arguments: dict[str, Any] = {"generation_config": config}
        if self.kind == "assisted":
            arguments["assistant_model"] = self.draft.module
        return arguments

    @contextmanager
    def _draft_settings(self) -> Iterator[None]:
        """transformers reads the draft length from the assistant's own generation config; it is put
        back afterwards."""
        if self.kind != "assisted":
            yield
            return
        config = self.draft.module.generation_config
        wanted = {
            "num_assistant_tokens": self.length,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
        before = {name: getattr(config, name, None) for name in wanted}
        for name, value in wanted.items():
            setattr(config, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(config, name, value)


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' advice about the arguments that its own assisted generation passes
    on."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def check_params(params: SamplingParams) -> None:
    """UsageError for a parameter that transformers' arms would not honour as draftproof does."""
    plain = SamplingParams()
    for spec in fields(params):
        if spec.name in (*_UNDERSTOOD, *_WITHOUT_EFFECT):
            continue
        if getattr(params, spec.name) != getattr(plain, spec.name):
            raise UsageError(
                f"the transformers arms do not take {spec.name}; leave it out or leave "
                "those arms out"
            )


def _clock(device: Any) -> Callable[[], float]:
    def waiting() -> float:
        wait_for(device)
        return perf_counter()

    return waiting


@contextmanager
def _hooks(modules: list[Any], now: Callable[[], float]) -> Iterator[list[_Forward]]:
    forwards = [_Forward(now) for _ in modules]
    handles = []
    for module, forward in zip(modules, forwards, strict=True):
        handles.append(module.register_forward_pre_hook(forward.before))
        handles.append(module.register_forward_hook(forward.after))
    try:
        yield forwards
    finally:
        for handle in handles:
            handle.remove()


def _reconciled(chunks: list[Chunk], num_tokens: int, seconds: float) -> tuple[Chunk, ...]:
    """The chunks, cut to the tokens that came out: a last round may put more than the limit lets
    through."""
    kept, left = [], num_tokens
    for chunk in chunks:
        kept.append(Chunk(chunk.seconds, min(chunk.num_tokens, left)))
        left -= kept[-1].num_tokens
    if left:
        kept.append(Chunk(seconds, left))
    return tuple(kept)
