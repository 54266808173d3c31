"""The bodies of requests: OpenAI's fields and vLLM's beside them, each with its type. Ranges are
checked where they are known.

A field that is not here is refused by name: `REFUSED` says why, of those that other servers take.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftproof.serve.errors import ApiError

RENAMED = "say it with structured_outputs, or with response_format"

REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "suffix": (("",), "text is written after a prompt only"),
    "use_beam_search": ((False,), "texts are sampled or greedy; there is no beam search"),
    "length_penalty": ((1, 1.0), "it belongs to beam search, which there is none of"),
    "early_stopping": ((False,), "it belongs to beam search, which there is none of"),
    "functions": ((), "it was replaced by tools"),
    "function_call": ((), "it was replaced by tool_choice"),
    "guided_json": ((), RENAMED),
    "guided_regex": ((), RENAMED),
    "guided_choice": ((), RENAMED),
    "guided_grammar": ((), RENAMED),
    "web_search_options": ((), "the model searches nothing"),
    "audio": ((), "the model writes text only"),
    "chat_template": ((), "a template is a program; the model's own is used"),
    "documents": (
        (),
        "give documents through chat_template_kwargs where the model's template reads them",
    ),
    "priority": ((0,), "requests are taken in the order they arrive"),
    "truncate_prompt_tokens": ((), "a prompt is read whole or refused"),
    "logits_processors": ((), "a server runs no code of its clients"),
    "spaces_between_special_tokens": (
        (True,),
        "special tokens are shown as the tokenizer writes them",
    ),
    "detokenize": (
        (True,),
        "text is always written out; ask for ids beside it with return_token_ids",
    ),
    "verbosity": (("medium",), "the model has no such setting"),
}
"""Fields of OpenAI's reference and vLLM's that cannot be honoured here: values that change nothing,
and why no other."""


class Part(BaseModel):
    """Strict types, no unknown fields, no infinities. Unset is what was left out; null stands for
    it."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Named(Part):
    """A body that may say which model it is for."""

    model: str | None = None


class StreamOptions(Part):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class TextPart(Part):
    type: Literal["text"]
    text: str


class Prediction(Part):
    """OpenAI's Predicted Outputs."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], Field(min_length=1, fail_fast=True)]


class JsonSchema(Part):
    """The grammar holds every answer to the schema, whether `strict` asks for it or not."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] | bool = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Part):
    """OpenAI's form of structured output."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


Ids = Annotated[list[int], Field(fail_fast=True)]
Strings = Annotated[list[str], Field(fail_fast=True)]
Messages = Annotated[list["Message"], Field(min_length=1, fail_fast=True)]
Tools = Annotated[list["Tool"], Field(fail_fast=True)]

WITH_PLACES = (
    *("messages", "tools", "tool_choice"),
    *("response_format", "prediction", "stream_options"),
)
"""Fields with an inside: a fault there is named by its path."""
TEXT_ONLY = "the model reads text, no images, sound or files"

MOST_FAULTS = 1000
"""A body with more of them is refused without naming each."""


class Sampled(Named):
    """What completions and chats have in common."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    bad_words: Strings | None = None
    allowed_token_ids: Ids | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | Strings | None = None
    stop_token_ids: Ids | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    seed: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_rounds: bool | None = None
    add_special_tokens: bool | None = None
    prediction: str | Prediction | None = None
    speculative_config: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    user: str | None = None
    request_id: Annotated[str, Field(max_length=128)] | None = None


class CompletionBody(Sampled):
    """POST /v1/completions."""

    prompt: str | Ids | Strings | Annotated[list[Ids], Field(fail_fast=True)]
    echo: bool | None = None
    logprobs: int | None = None


class FunctionCall(Part):
    name: str
    arguments: str


class ToolCall(Part):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Part):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None


class Function(BaseModel):
    """What templates make of further keys is the model's affair."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: str


class Tool(Part):
    type: Literal["function"]
    function: Function


class NamedFunction(Part):
    name: str


class NamedTool(Part):
    type: Literal["function"]
    function: NamedFunction


class ChatBody(Sampled):
    """POST /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    reasoning_effort: str | None = None
    modalities: list[Literal["text"]] | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class TokenizeBody(Named):
    """POST /tokenize: a prompt or a chat."""

    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None


class DetokenizeBody(Named):
    """POST /detokenize."""

    tokens: Ids


Body = TypeVar("Body", bound=Named)


def read(kind: type[Body], given: dict[str, Any]) -> Body:
    """A `kind` from a JSON object, or an ApiError that names the field that is wrong."""
    for name in given:
        if name not in kind.model_fields and not _changes_nothing(name, given[name]):
            raise ApiError(f"{name[:80]!r} is not taken here: {_why(kind, name)}", name[:80])
    try:
        return kind.model_validate(
            {name: value for name, value in given.items() if name in kind.model_fields}
        )
    except ValidationError as error:
        raise _complaint(error, given) from error


def _complaint(error: ValidationError, given: dict[str, Any]) -> ApiError:
    """The first field that is wrong; where it may have several forms, by the one that fits the
    furthest."""
    if error.error_count() > MOST_FAULTS:
        return ApiError(f"the body has {error.error_count()} faults")
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    field = problems[0]["loc"][0]
    found = [
        (
            _place(each["loc"], given, each["type"] == "missing")
            if field in WITH_PLACES
            else (field,),
            each["msg"],
        )
        for each in problems
        if each["loc"][0] == field
    ]
    place = max((place for place, _ in found), key=len)
    said = dict.fromkeys(message for where, message in found if where == place)
    param = ".".join(map(str, place))[:120]
    why = f"; {TEXT_ONLY}" if _is_part(place) else ""
    return ApiError(f"{param}: {'; or '.join(list(said)[:4])}{why}", param)


def _place(loc: tuple[int | str, ...], given: Any, is_missing: bool) -> tuple[int | str, ...]:
    """The path to a fault without the names of the forms that were tried on the way. is_missing:
    its last step is not there."""
    path: list[int | str] = []
    for step in loc:
        try:
            given = given[step]
        except (KeyError, IndexError, TypeError):
            if not (is_missing and step == loc[-1]):
                continue  # the name of a form
        path.append(step)
    return tuple(path)


def _is_part(place: tuple[int | str, ...]) -> bool:
    """Whether the fault is the kind of a part of a message."""
    return place[0] == "messages" and len(place) == 5 and place[2:5:2] == ("content", "type")


def _changes_nothing(name: str, value: Any) -> bool:
    """Whether a field that cannot be honoured says what is done without it."""
    return name in REFUSED and (
        value is None or any(value == one and type(value) is type(one) for one in REFUSED[name][0])
    )


def _why(kind: type[Named], name: str) -> str:
    if name in REFUSED:
        return REFUSED[name][1]
    near = difflib.get_close_matches(name[:80], list(kind.model_fields), 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else "no such field is known"
