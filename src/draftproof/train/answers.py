"""Self-distillation: the target answers the prompts itself, many at a time, and what it writes is
what a head trains on.

Every answer has its own seed and temperature, both from its prompt's key: the same text comes out
whatever stands in the batch beside it, and after any interruption. It is plain decoding, so its law
is the one that a head will be verified against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.decode.template import TemplateOptions, render
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.train.prompts import TrainPrompt
from draftproof.train.store import Text, TextWriter

Progress = Callable[[int, int, int], None]
"""Told after each answer: answers written, answers in all, tokens written by this call."""


@dataclass(frozen=True)
class Writing:
    """How answers are written. temperatures: one of them for each answer, by its key. max_tokens:
    of an answer. max_prompt_tokens: longer prompts are left out. seed: mixed with every key.
    batch_size: answers at a time."""

    temperatures: tuple[float, ...] = (0.0, 0.7, 0.7, 1.0)
    max_tokens: int = 256
    max_prompt_tokens: int = 512
    seed: int = 0
    batch_size: int = 32

    def params(self, key: str) -> SamplingParams:
        """The parameters of the answer to the prompt named `key`."""
        number = int(key, 16)
        temperature = self.temperatures[number % len(self.temperatures)]
        return SamplingParams(
            temperature=temperature,
            max_tokens=self.max_tokens,
            seed=(self.seed ^ number) & (1 << 63) - 1,
        )

    def about(self, target: LanguageModel) -> dict[str, object]:
        """What all answers written this way share, for the folder they lie in."""
        return {
            "target": target.name,
            "temperatures": list(self.temperatures),
            "max_tokens": self.max_tokens,
            "max_prompt_tokens": self.max_prompt_tokens,
            "seed": self.seed,
        }


def write_answers(
    target: LanguageModel,
    tokenizer: Any,
    prompts: Sequence[TrainPrompt],
    writer: TextWriter,
    how: Writing,
    progress: Progress = lambda done, total, tokens: None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> int:
    """Answer what is not answered yet and append it; the number of answers written now. warn: told
    of prompts that failed.

    Prompts that bring an answer are tokenized as the model's template shows them, and written.
    UsageError, with the line, for a chat that the template cannot render; or when no prompt
    fits."""
    asked = [(prompt, _question(prompt, tokenizer)) for prompt in prompts]
    fitting = [(prompt, ids) for prompt, ids in asked if len(ids) <= how.max_prompt_tokens]
    if not fitting:
        raise UsageError(
            f"no prompt has at most {how.max_prompt_tokens} tokens; raise --max-prompt-tokens"
        )
    missing = [(prompt, ids) for prompt, ids in fitting if prompt.key not in writer.done]
    tokens = 0
    given = [
        _own_text(prompt, ids, tokenizer, target)
        for prompt, ids in missing
        if prompt.answered is not None
    ]
    for text in given:
        writer.append(text)
    open_ones = [(prompt, ids) for prompt, ids in missing if prompt.answered is None]
    params = [how.params(prompt.key) for prompt, _ in open_ones]
    if not open_ones:
        return len(given)
    decoder = PlainDecoder(target)
    answers = decoder.as_finished([ids for _, ids in open_ones], params, batch_size=how.batch_size)
    written, failed = len(given), list[str]()
    for index, result in answers:
        if result.error is not None:
            failed.append(result.error)
            continue
        written += 1
        prompt, ids = open_ones[index]
        text = Text(
            key=prompt.key,
            source=prompt.source,
            tokens=(*ids, *result.token_ids),
            prompt=len(ids),
            temperature=params[index].temperature,
            seed=params[index].seed,
            finish=result.finish_reason,
        )
        writer.append(text)
        tokens += text.answer
        progress(len(fitting) - len(missing) + written, len(fitting), tokens)
    if failed:
        warn(
            f"{len(failed)} of {len(params)} prompts were not answered ({failed[0]}): "
            "the same command tries them again"
        )
    return written


def _question(prompt: TrainPrompt, tokenizer: Any) -> list[int]:
    """The ids up to where the answer begins."""
    return list(tokenizer.encode(_shown(prompt, tokenizer)[0], add_special_tokens=False))


def _own_text(
    prompt: TrainPrompt, ids: Sequence[int], tokenizer: Any, target: LanguageModel
) -> Text:
    """The prompt with the answer it brings, up to the last end token that the template puts behind
    it."""
    answer = list(tokenizer.encode(_shown(prompt, tokenizer)[1], add_special_tokens=False))
    ends = [place for place, token in enumerate(answer) if token in target.eos_token_ids]
    return Text(
        prompt.key, prompt.source, (*ids, *(answer[: ends[-1] + 1] if ends else answer)), len(ids)
    )


def _shown(prompt: TrainPrompt, tokenizer: Any) -> tuple[str, str]:
    """The chat as the model's template shows it: before the answer, and the answer a prompt brings
    with what ends it."""
    options, chat = TemplateOptions.of(prompt.chat), prompt.answered
    try:
        if chat is None:
            return render(prompt.messages, tokenizer, options), ""
        before = render(chat[:-1], tokenizer, options)
        whole = render(chat, tokenizer, replace(options, add_generation_prompt=False))
        if not whole.startswith(before):
            raise UsageError(
                "the model's chat template does not show this answer where the model would write it"
            )
    except UsageError as error:
        raise UsageError(f"{prompt.where}: {error}" if prompt.where else str(error)) from error
    return before, whole[len(before) :]
