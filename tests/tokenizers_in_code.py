"""Small tokenizers made in code: byte-level ones, and SentencePiece's kind with byte tokens, a BOS
and no unknown token."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

TEXT = (
    "The quick brown fox jumps over the lazy dog. A stitch in time saves nine, and the "
    "early bird catches the worm.\n"
    "def add(one, other):\n    return one + other\n\tprint(add(1, 2))\n"
    "Caf\u00e9, na\u00efve, \u65e5\u672c\u8a9e, \U0001f600 and more words, so that "
    "letters are merged again and again.\n"
)
HARD = (
    "Two  spaces,\ta tab,\na newline, caf\u00e9, \u65e5\u672c and \U0001f600 <|end|> the quick dog"
)


@cache
def byte_level(size: int = 300, end: str = "<|end|>") -> PreTrainedTokenizerFast:
    """GPT-2's kind: letters for bytes, no unknown token, nothing in front."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([TEXT * 3], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end)


@cache
def sentencepiece(size: int = 420) -> PreTrainedTokenizerFast:
    """Llama 2's kind: a space in front of every text, byte tokens for what is unknown, and a BOS
    that is added."""
    inner = Tokenizer(models.BPE(byte_fallback=True))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted(
        {letter for letter in "\u2581" + TEXT if letter.isascii() and letter not in " \t"}
        | {"\u2581"}
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    inner.train_from_iterator(["".join(letter for letter in TEXT if letter.isascii()) * 3], trainer)
    plain = _with_ordinary_byte_tokens(inner)
    plain.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    plain.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", plain.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>")


def _with_ordinary_byte_tokens(inner: Any) -> Any:
    """The same tokenizer with byte tokens that are entries of the vocabulary, not special
    tokens."""
    import json

    rules = json.loads(inner.to_str())
    rules["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(rules))


def plain_words(
    size: int = 64, swapped: Mapping[int, int] | None = None
) -> PreTrainedTokenizerFast:
    """Words w0, w1, ...; unlike `tiny`'s, none of them is a special token, which a text would not
    show."""
    ids = {f"w{i}": (swapped or {}).get(i, i) for i in range(size)}
    inner = Tokenizer(models.WordLevel(ids, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner)
