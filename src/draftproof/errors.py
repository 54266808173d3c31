"""Everything draftproof raises on purpose.

DraftproofError
├── UsageError (also ValueError)    a value the caller gave is wrong; exit code 2 of the command
│   ├── UnsupportedModelError       this model cannot be used, with the layer or class in the way
│   ├── VocabularyMismatchError     draft and target do not mean the same tokens
│   └── MissingExtraError           an optional dependency is absent; says how to install it
├── InvalidLogitsError              the target produced NaN or a row without any allowed token
└── KeyRepeatedError                a random key was used twice on one path, says the enumerator
"""


class DraftproofError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(DraftproofError, ValueError):
    """A value given by the caller is wrong. The message says what was wrong and what is allowed."""


class UnsupportedModelError(UsageError):
    """The model cannot be decoded exactly here; the message names the layer or class."""


class VocabularyMismatchError(UsageError):
    """Draft and target disagree on what token ids mean; the message names ids."""


class MissingExtraError(UsageError):
    """An optional dependency is missing; the message is the exact install line."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}: pip install 'draftproof[{extra}]'")


class InvalidLogitsError(DraftproofError):
    """The target's logits hold NaN, or no token is allowed after processing. fault: what is wrong,
    without the place, so that the same fault at many places can be counted."""

    def __init__(self, message: str, fault: str | None = None) -> None:
        super().__init__(message)
        self.fault = message if fault is None else fault


class KeyRepeatedError(DraftproofError):
    """A key of chance was consumed twice along one path, so two draws would not be independent."""
