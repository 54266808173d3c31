"""From the fields of a body to `SamplingParams`: the one place that knows both names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.core.parameters import server_fields
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError
from draftproof.serve.errors import ApiError, of_usage, refuse
from draftproof.serve.schemas import ChatBody, CompletionBody, Prediction, Sampled

OF_ANOTHER_FORM = {"max_tokens", "logit_bias", "logprobs", "structured_outputs", "prediction"}
"""Fields whose values a body writes otherwise than `SamplingParams` does."""
SAME_NAME = tuple(name for name in server_fields() if name not in OF_ANOTHER_FORM)
"""Fields that are taken over as they are."""

DEFAULT_COMPLETION_TOKENS = 16
"""max_tokens of a completion that says none, in OpenAI's reference as in vLLM; a chat's answer ends
by itself."""

SCHEMA = "response_format.json_schema.schema"
"""Where OpenAI's form has its schema."""

MOST_BIAS = 100
MOST_STOPS = 64


def asked(body: Sampled) -> dict[str, Any]:
    """What the body says, by the name in `SamplingParams`; null is what was left out."""
    found = {name: value for name in SAME_NAME if (value := getattr(body, name)) is not None}
    if body.logit_bias is not None:
        found["logit_bias"] = _biases(body.logit_bias)
    if prediction_text(body):
        found["prediction"] = prediction_text(body)
    bound = structure(body)
    if bound is not None:
        found["structured_outputs"] = bound
    if isinstance(body.stop, list) and len(body.stop) > MOST_STOPS:
        refuse("stop", f"stop has {len(body.stop)} strings; allowed: up to {MOST_STOPS}")
    if body.stop in ("", [""]) or (isinstance(body.stop, list) and "" in body.stop):
        refuse("stop", "stop holds an empty string, which would end every text")
    return found


def completion_tokens(body: CompletionBody) -> tuple[str, int | None]:
    """The field that limits the text, and the limit."""
    return "max_tokens", DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens


def chat_tokens(body: ChatBody) -> tuple[str, int | None]:
    """The same for a chat, where OpenAI has two names for it."""
    if (
        None not in (body.max_tokens, body.max_completion_tokens)
        and body.max_tokens != body.max_completion_tokens
    ):
        refuse(
            "max_tokens",
            "max_tokens and max_completion_tokens say different things: leave one of them out",
        )
    if body.max_completion_tokens is not None:
        return "max_completion_tokens", body.max_completion_tokens
    return "max_tokens", body.max_tokens


def sampling_params(
    given: Mapping[str, Any],
    max_tokens: int | None,
    config: Any,
    num_prompt_tokens: int,
    vocab_size: int,
) -> SamplingParams:
    """Complete parameters: what was asked, over what the model's generation config says, at
    temperature 1 unless one of them names another. ApiError, with the field, for what cannot be
    honoured."""
    for name, value in given.items():
        try:
            SamplingParams(**{name: value})
        except UsageError as error:
            if name not in ("n", "min_tokens"):  # judged beside the temperature and max_tokens
                raise of_usage(error, name) from error
    values = {**given, "max_tokens": max_tokens}
    values.setdefault("temperature", getattr(config, "temperature", None) or 1.0)
    try:
        if config is None:
            return SamplingParams(**values)
        if getattr(config, "top_k", None) is None:
            values.setdefault("top_k", 0)  # transformers' silent 50: nobody has said it
        return SamplingParams.from_generation_config(
            config, num_prompt_tokens=num_prompt_tokens, vocab_size=vocab_size, **values
        )
    except UsageError as error:
        named = next((name for name in values if str(error).startswith(f"{name} ")), None)
        raise of_usage(error, named) from error


def structure(body: Sampled) -> dict[str, Any] | None:
    """The grammar that the text keeps to, in vLLM's form; None where it is free."""
    form = body.response_format
    if form is not None and (form.type == "json_schema") != (form.json_schema is not None):
        refuse(
            SCHEMA.rpartition(".")[0],
            "response_format has a json_schema where its type is json_schema, and nowhere else",
        )
    if form is None or form.type == "text":
        return body.structured_outputs
    if body.structured_outputs is not None:
        refuse(
            "structured_outputs",
            "structured_outputs and response_format both bind the text: leave one of them out",
        )
    return {"json_object": True} if form.json_schema is None else {"json": form.json_schema.schema_}


def check_best_of(body: Sampled) -> None:
    """ApiError where more texts are to be made than are returned."""
    if body.best_of is not None and body.best_of != (1 if body.n is None else body.n):
        refuse(
            "best_of",
            (
                f"best_of is {str(body.best_of)[:40]}: every text that is made is returned, "
                "so it can only be n"
            ),
        )


def _biases(given: Mapping[str, Any]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for name, bias in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10) or int(name) in biases:
            refuse(
                "logit_bias", f"logit_bias has the key {name[:40]!r}; keys are token ids, each once"
            )
        if (
            isinstance(bias, bool)
            or not isinstance(bias, (int, float))
            or not -MOST_BIAS <= bias <= MOST_BIAS
        ):
            refuse(
                "logit_bias",
                (
                    f"logit_bias of token {name} is {str(bias)[:40]}; allowed: -{MOST_BIAS} "
                    f"to {MOST_BIAS}"
                ),
            )
        biases[int(name)] = float(bias)
    return biases


def prediction_text(body: Sampled) -> str:
    """What the request expects the text to be; an empty prediction is none, as OpenAI's reference
    allows an empty string and says nothing of it."""
    prediction: str | Prediction | None = body.prediction
    if prediction is None or isinstance(prediction, str):
        return prediction or ""
    content = prediction.content
    return content if isinstance(content, str) else "".join(part.text for part in content)


def check_logprobs(body: CompletionBody | ChatBody, most: int) -> int | None:
    """How many likely tokens to report beside each, or None; 0 reports the token alone."""
    name = "logprobs" if isinstance(body, CompletionBody) else "top_logprobs"
    wanted = body.logprobs if isinstance(body, CompletionBody) else body.top_logprobs
    if isinstance(body, ChatBody):
        if not body.logprobs and wanted is not None:
            refuse("top_logprobs", "top_logprobs are reported where logprobs is true")
        wanted = (wanted or 0) if body.logprobs else None
    for field, value in ((name, wanted), ("prompt_logprobs", body.prompt_logprobs)):
        if value is not None and not 0 <= value <= most:
            raise ApiError(f"{field} is {value}; allowed: 0 to {most}", field)
    return wanted
