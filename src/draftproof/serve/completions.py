"""/v1/completions: a body checked and turned into prompts, and what is written after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.result import Update
from draftproof.decode.text import decode_all
from draftproof.serve.answers import Choice
from draftproof.serve.errors import refuse
from draftproof.serve.params import check_logprobs, completion_tokens
from draftproof.serve.rounds import RoundsShown, joined
from draftproof.serve.schemas import CompletionBody
from draftproof.serve.service import Prompt, Service


@dataclass(frozen=True)
class Checked:
    """What a body asks for. texts: of its prompts, where they are to be echoed."""

    body: CompletionBody
    prompts: tuple[Prompt, ...]
    texts: tuple[str, ...]
    num_logprobs: int | None


def check(body: CompletionBody, service: Service) -> Checked:
    """ApiError for whatever cannot be honoured."""
    logprobs, scored = check_logprobs(body, service.settings.max_logprobs), body.prompt_logprobs
    if body.echo and logprobs is not None:
        scored = max(logprobs, scored or 0)
    given = _given(body)
    service.check_count(1 if body.n is None else body.n, len(given))
    read = [_ids(prompt, body, service) for prompt in given]
    limit = completion_tokens(body)
    prompts = [
        service.prompt(ids, "prompt", body, limit, logprobs=logprobs, prompt_logprobs=scored)
        for ids in read
    ]
    texts = [_text(prompt, service) for prompt in given] if body.echo else []
    return Checked(body, tuple(prompts), tuple(texts), logprobs)


class CompletionWriter:
    """The choices of all prompts, those of one prompt beside each other."""

    prefix, whole, part = "cmpl-", "text_completion", "text_completion"

    def __init__(self, asked: Checked, service: Service) -> None:
        self._asked, self._body, self._tokens = asked, asked.body, service.tokens
        self._offsets: dict[int, int] = {}
        self._rounds = RoundsShown(service.tokenizer, asked.body.return_rounds)

    def opening(self) -> Iterator[Choice]:
        return iter(())

    def parts(self, number: int, update: Update) -> Iterator[Choice]:
        """Before the first words of a prompt's first text: what is said of the prompt, in every
        text's choice."""
        prompt = self._asked.prompts[number]
        first = number * prompt.params.n
        if update.index == 0 and first not in self._offsets:
            for index in range(first, first + prompt.params.n):
                yield from self._prompt(index, number, update)
        done = update.completion
        yield self._choice(
            first + update.index,
            update.text,
            self._scored(first + update.index, update.token_ids, update.logprobs),
            finish_reason=None if done is None else done.finish_reason,
            stop_reason=None if done is None else done.stop_reason,
            **({"token_ids": list(update.token_ids)} if self._body.return_token_ids else {}),
            **self._rounds.of(first + update.index, update, len(prompt.ids)),
        )

    def join(self, parts: list[Choice]) -> Choice:
        whole = parts[-1] | {"text": "".join(part["text"] for part in parts)}
        for part in parts:
            whole |= {
                key: part[key] for key in ("prompt_token_ids", "prompt_logprobs") if key in part
            }
        whole |= joined(parts)
        if self._body.return_token_ids:
            whole["token_ids"] = [token for part in parts for token in part.get("token_ids", ())]
        scored = [part["logprobs"] for part in parts if part["logprobs"] is not None]
        if scored:
            whole["logprobs"] = {
                key: [each for one in scored for each in one[key]] for key in scored[0]
            }
        return whole

    def about_prompt(self) -> dict[str, Any]:
        return {}

    def _prompt(self, index: int, number: int, update: Update) -> Iterator[Choice]:
        """The echo, and what else was asked about the prompt."""
        ids, more = self._asked.prompts[number].ids, dict[str, Any]()
        self._offsets[index] = 0
        if self._body.return_token_ids:
            more["prompt_token_ids"] = list(ids)
        if self._body.prompt_logprobs is not None and update.prompt_logprobs is not None:
            more["prompt_logprobs"] = self._tokens.prompt_logprobs(
                update.prompt_logprobs, self._body.prompt_logprobs
            )
        if self._body.echo or more:
            scored = self._scored(index, ids, update.prompt_logprobs) if self._body.echo else None
            text = self._asked.texts[number] if self._body.echo else ""
            yield self._choice(index, text, scored, finish_reason=None, stop_reason=None, **more)

    def _choice(
        self, index: int, text: str, logprobs: dict[str, Any] | None, **more: Any
    ) -> Choice:
        return {"index": index, "text": text, "logprobs": logprobs} | more

    def _scored(
        self, index: int, ids: tuple[int, ...], scored: tuple[TokenLogprobs | None, ...] | None
    ) -> dict[str, Any] | None:
        wanted = self._asked.num_logprobs
        if wanted is None or scored is None:
            return None
        record = self._tokens.completion_logprobs(ids, scored, wanted, self._offsets[index])
        self._offsets[index] += sum(map(len, record["tokens"]))
        return record


def _given(body: CompletionBody) -> list[str | list[int]]:
    """The prompts, one or several."""
    prompt = body.prompt
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt]
    if not prompt:
        refuse("prompt", "prompt is an empty list; give a string, token ids, or a list of either")
    return list(prompt)  # type: ignore[arg-type]


def _ids(prompt: str | list[int], body: CompletionBody, service: Service) -> list[int]:
    """Ids as they are; a text with what the tokenizer puts before and after one, unless
    add_special_tokens is false."""
    return (
        service.encode(prompt, body.add_special_tokens is not False)
        if isinstance(prompt, str)
        else prompt
    )


def _text(prompt: str | list[int], service: Service) -> str:
    return (
        prompt
        if isinstance(prompt, str)
        else decode_all(service.tokenizer, prompt, skip_special_tokens=False)
    )
