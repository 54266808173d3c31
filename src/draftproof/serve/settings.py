"""What whoever runs a server decides: its name, its key, and the limits of what it takes on."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """model: the name under which requests ask for the target. api_key: what a client must show;
    None asks for nothing.

    max_num_seqs: texts that run at a time. max_queue: requests that may wait beside them; a further
    one is answered 429. prompt_piece: most tokens of prompts read in one round. prefix_cache_bytes:
    what prompts and answers already read may take; 0 keeps none. max_body_bytes: of a request.
    max_texts: texts of one request, all its prompts together. max_logprobs: most likely tokens
    reported beside each. request_timeout: seconds from a request's arrival to its end, waiting
    included; None for no limit. io_timeout: seconds that a client may take to send its request, or
    to take the next part of an answer. tool_call_parser: a name in `tools.PARSERS`; None goes by
    the model's chat template. lossless: refuse rules that change the target's law."""

    model: str
    api_key: str | None = None
    max_num_seqs: int = 16
    max_queue: int = 256
    prompt_piece: int = 512
    prefix_cache_bytes: int = 2**30
    max_body_bytes: int = 8 * 2**20
    max_texts: int = 128
    max_logprobs: int = 20
    request_timeout: float | None = None
    io_timeout: float = 60.0
    tool_call_parser: str | None = None
    lossless: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "prompt_piece", "max_body_bytes", "max_texts"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: a whole number from 1")
        for name in ("max_queue", "prefix_cache_bytes", "max_logprobs"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: a whole number from 0")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise UsageError(
                "api_key is empty or holds characters that no header can carry; allowed: "
                "letters of ASCII"
            )
        if self.io_timeout <= 0 or (self.request_timeout is not None and self.request_timeout <= 0):
            raise UsageError("a timeout is a number of seconds above 0")
