"""Training heads and drafts: prompts, answers the target writes itself, hidden states, losses, and
the held-out truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.train.answers import Writing as Writing
    from draftproof.train.answers import write_answers as write_answers
    from draftproof.train.distil import DraftRecipe as DraftRecipe
    from draftproof.train.distil import train_draft as train_draft
    from draftproof.train.invented import Inventing as Inventing
    from draftproof.train.invented import invent as invent
    from draftproof.train.loop import Settings as Settings
    from draftproof.train.mixture import gather as gather
    from draftproof.train.prompts import TrainPrompt as TrainPrompt
    from draftproof.train.prompts import read_prompts as read_prompts
    from draftproof.train.run import Recipe as Recipe
    from draftproof.train.run import train_head as train_head
    from draftproof.train.store import TextWriter as TextWriter
    from draftproof.train.store import read_texts as read_texts

__all__ = [
    "DraftRecipe",
    "Inventing",
    "Recipe",
    "Settings",
    "TextWriter",
    "TrainPrompt",
    "Writing",
    "gather",
    "invent",
    "read_prompts",
    "read_texts",
    "train_draft",
    "train_head",
    "write_answers",
]

_HOMES = {
    "DraftRecipe": "draftproof.train.distil",
    "Inventing": "draftproof.train.invented",
    "Recipe": "draftproof.train.run",
    "Settings": "draftproof.train.loop",
    "TextWriter": "draftproof.train.store",
    "TrainPrompt": "draftproof.train.prompts",
    "Writing": "draftproof.train.answers",
    "gather": "draftproof.train.mixture",
    "invent": "draftproof.train.invented",
    "read_prompts": "draftproof.train.prompts",
    "read_texts": "draftproof.train.store",
    "train_draft": "draftproof.train.distil",
    "train_head": "draftproof.train.run",
    "write_answers": "draftproof.train.answers",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
