"""/tokenize and /detokenize: what the server would read, and what ids stand for. vLLM's fields."""

from __future__ import annotations

from typing import Any

from draftproof.decode.text import decode_all
from draftproof.serve.errors import refuse
from draftproof.serve.messages import chat_prompt
from draftproof.serve.schemas import DetokenizeBody, TokenizeBody
from draftproof.serve.service import Service

CHAT_ONLY = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools")


def tokenize(body: TokenizeBody, service: Service) -> dict[str, Any]:
    """The ids of a prompt or of a chat."""
    if (body.prompt is None) == (body.messages is None):
        refuse("prompt", "give either prompt or messages")
    if body.prompt is not None:
        idle = next((name for name in CHAT_ONLY if getattr(body, name) is not None), None)
        if idle is not None:
            refuse(idle, f"{idle} is of a chat, and there are no messages")
        ids = service.encode(body.prompt, body.add_special_tokens is not False)
    else:
        if body.add_special_tokens:
            refuse(
                "add_special_tokens",
                "a chat's special tokens are its template's: leave add_special_tokens out",
            )
        ids = chat_prompt(body, body.tools, service.tokenizer)
    found = {"count": len(ids), "max_model_len": service.target.max_length, "tokens": ids}
    return (
        found | {"token_strs": [service.tokens.text(token) for token in ids]}
        if body.return_token_strs
        else found
    )


def detokenize(body: DetokenizeBody, service: Service) -> dict[str, Any]:
    """The text of ids, special tokens included."""
    beyond = next(
        (token for token in body.tokens if not 0 <= token < service.target.vocab_size), None
    )
    if beyond is not None:
        refuse(
            "tokens",
            f"tokens holds {str(beyond)[:40]}; ids go from 0 to {service.target.vocab_size - 1}",
        )
    return {"prompt": decode_all(service.tokenizer, body.tokens, skip_special_tokens=False)}
