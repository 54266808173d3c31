"""The training of a head: batches in an order fixed by the seed, a schedule fixed by the number of
steps, checkpoints.

Everything that happens at a step follows from the settings and the step's number, besides the
weights and the optimiser's moments. A run that was interrupted and goes on from its checkpoint
therefore has the same losses as one that was not."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.costs.round_costs import RoundCosts
from draftproof.errors import UsageError
from draftproof.train.heldout import Acceptance
from draftproof.train.losses import LOSSES
from draftproof.train.store import Text
from draftproof.train.task import Aim, Task

CHECKPOINT, HISTORY = "checkpoint.pt", "history.jsonl"
ENOUGH_TOKENS = 300_000
"""Answer tokens below which a run warns: 33,000 of them left a head with .34 of overlap held out
against .47 in training."""


@dataclass(frozen=True)
class Settings:
    """steps: optimiser steps. batch_size: texts a step. unroll: positions ahead that are trained
    (7: the training-time test). early_unroll: in the first two thirds of the steps, when a first
    guess is what is learned; None for the same. decay: weight of each position against the one
    before. loss: a name in LOSSES. feature_weight: of EAGLE's feature loss, the other then weighing
    0.1. temperature: of the laws that the loss compares; None: each text's own. learning_rate,
    warmup, clip: AdamW's, linear warm-up steps, gradient norm. evaluate_every: steps between looks
    at the held-out texts and checkpoints. patience: looks without improvement before it stops, 0
    for never. average_start: end with the mean of the weights the run began and ended with
    (Wortsman et al. 2203.05482, 2109.01903)."""

    steps: int = 2000
    batch_size: int = 4
    unroll: int = 7
    early_unroll: int | None = None
    decay: float = 0.8
    loss: str = "cross_entropy"
    feature_weight: float = 1.0
    temperature: float | None = 1.0
    learning_rate: float = 1e-3
    warmup: int = 50
    clip: float = 0.5
    evaluate_every: int = 100
    patience: int = 5
    average_start: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UsageError(f"loss {self.loss!r} is unknown; allowed: {', '.join(LOSSES)}")
        for name in ("steps", "batch_size", "unroll", "evaluate_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: a whole number from 1")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise UsageError(
                f"the loss's temperature is {self.temperature}; allowed: a number above "
                "0, or each text's own"
            )

    def aim(self, step: int) -> Aim:
        """What the loss of one step is made of."""
        early = (
            self.early_unroll
            if self.early_unroll is not None and 3 * step < 2 * self.steps
            else self.unroll
        )
        return Aim(
            min(early, self.unroll), self.decay, self.loss, self.feature_weight, self.temperature
        )


@dataclass
class Look:
    """What one look at the held-out texts showed. loss: the mean of the training loss since the
    look before. length, speedup: the draft length that promises most at this moment and the speedup
    there, where costs were timed."""

    step: int
    loss: float
    acceptance: Acceptance
    length: int | None = None
    speedup: float | None = None


@dataclass
class Training:
    """One run. held_out: texts it never trains on. folder: for checkpoint and history, None to keep
    nothing. costs: of drafting and verifying, for the speedup a look foretells. tell: told of every
    look; warn: told, once, what is wrong with the data."""

    task: Task
    texts: Sequence[Text]
    held_out: Sequence[Text]
    settings: Settings = Settings()
    folder: Path | None = None
    costs: RoundCosts | None = None
    tell: Callable[[Look], None] = lambda look: None
    warn: Callable[[str], None] = lambda sentence: None
    losses: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    stopped_early: bool = False

    def __post_init__(self) -> None:
        self.texts, self.held_out = usable(self.texts, self.held_out)
        self.module = self.task.module
        parameters = [weight for weight in self.module.parameters() if weight.requires_grad]
        rate = self.settings.learning_rate
        self._optimizer = torch.optim.AdamW(
            parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        self._step = 0
        self._best: dict[str, Any] | None = None
        self._begun = self._weights() if self.settings.average_start else None

    def run(self, until: int | None = None) -> None:
        """Train to the end, or until a step is reached; goes on from the folder's checkpoint if
        there is one. A run that stops early ends with the weights of its best look."""
        self._warn_about_data()
        self._resume()
        last = min(self.settings.steps, until if until is not None else self.settings.steps)
        self.module.train()
        while self._step < last and not self.stopped_early:
            self.losses.append(self._one_step())
            self._step += 1
            if self._step % self.settings.evaluate_every == 0 or self._step == self.settings.steps:
                self._look()
                self.save()
        if self.stopped_early and self._best is not None:
            self.module.load_state_dict(self._best)
        if self._step == self.settings.steps or self.stopped_early:
            self._average()
        self.module.eval()

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.module.state_dict().items()}

    def _average(self) -> None:
        """Once, at the end and after the last checkpoint: a finished run that is opened again is
        averaged again."""
        begun, self._begun = self._begun, None
        if begun is not None:
            ended = self.module.state_dict()
            mean = {
                name: torch.lerp(w, ended[name], 0.5) if w.is_floating_point() else w
                for name, w in begun.items()
            }
            self.module.load_state_dict(mean)

    def _one_step(self) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self._rate(self._step)
        loss = self.task.loss(self._batch(self._step), self.settings.aim(self._step))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip)
        self._optimizer.step()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise UsageError(f"the loss is {value} at step {self._step}: lower --learning-rate")
        return value

    def _batch(self, step: int) -> list[Text]:
        """The texts of a step: an epoch goes through all of them in an order of its own."""
        size, count = self.settings.batch_size, len(self.texts)
        chosen = []
        for place in range(step * size, (step + 1) * size):
            epoch, index = divmod(place, count)
            chosen.append(self.texts[_order(count, self.settings.seed, epoch)[index]])
        return chosen

    def _rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to a tenth."""
        if step < self.settings.warmup:
            return (step + 1) / self.settings.warmup
        done = (step - self.settings.warmup) / max(1, self.settings.steps - self.settings.warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(done, 1.0)))

    def evaluate(self) -> Acceptance:
        """Acceptance on the held-out texts, each at its own temperature."""
        steps = min(self.settings.unroll, self.task.positions or self.settings.unroll)
        self.module.eval()
        with torch.no_grad():
            found = self.task.acceptance(self.held_out, steps, self.settings.batch_size)
        self.module.train()
        return found

    def _look(self) -> None:
        since = self.losses[self.looks[-1].step if self.looks else 0 :]
        look = Look(self._step, sum(since) / len(since), self.evaluate())
        if self.costs is not None:
            look.length, look.speedup = self.costs.best(look.acceptance.marginal)
        self.looks.append(look)
        self.tell(look)
        lengths = [look.acceptance.mean_acceptance_length for look in self.looks]
        behind = len(lengths) - 1 - lengths.index(max(lengths))
        if self.settings.patience > 0 and behind == 0:
            self._best = self._weights()
        self.stopped_early = 0 < self.settings.patience <= behind

    def _warn_about_data(self) -> None:
        tokens = sum(text.answer for text in self.texts)
        if tokens < ENOUGH_TOKENS:
            self.warn(
                f"{tokens} answer tokens from {len(self.texts)} texts are few: below "
                f"{ENOUGH_TOKENS} a head learns its texts "
                "rather than the target; held-out acceptance tells"
            )

    def save(self) -> None:
        """Write the checkpoint, whole or not at all, and the history."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / (CHECKPOINT + ".part")
        torch.save(
            {
                "settings": asdict(self.settings),
                "step": self._step,
                "texts": self._texts_key(),
                "head": self.module.state_dict(),
                "best": self._best,
                "optimizer": self._optimizer.state_dict(),
                "losses": self.losses,
                "looks": [asdict(look) for look in self.looks],
                "stopped_early": self.stopped_early,
            },
            part,
        )
        part.replace(self.folder / CHECKPOINT)
        lines = [json.dumps(asdict(look)) for look in self.looks]
        (self.folder / HISTORY).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _texts_key(self) -> str:
        """Tells the texts of this run from any other's."""
        keys = [
            [(text.key, len(text.tokens)) for text in some] for some in (self.texts, self.held_out)
        ]
        return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]

    def _resume(self) -> None:
        if self._step > 0 or self.folder is None or not (self.folder / CHECKPOINT).exists():
            return
        kept: dict[str, Any] = torch.load(
            self.folder / CHECKPOINT, map_location="cpu", weights_only=True
        )
        if kept["settings"] != asdict(self.settings):
            changed = [
                name
                for name, value in asdict(self.settings).items()
                if kept["settings"].get(name) != value
            ]
            raise UsageError(
                f"{self.folder} holds a run with other settings ({', '.join(changed)}): "
                "go on with the same, or name another folder"
            )
        if kept.get("texts", self._texts_key()) != self._texts_key():
            raise UsageError(
                f"{self.folder} holds a run on other texts: go on with the same, or name "
                "another folder"
            )
        try:
            self.module.load_state_dict(kept["head"])
            self._optimizer.load_state_dict(kept["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"{self.folder} holds a run of a model of another shape: name another folder"
            ) from error
        self._best = kept.get("best")
        self._step, self.losses = kept["step"], list(kept["losses"])
        self.stopped_early = kept["stopped_early"]
        self.looks = [
            Look(**{**look, "acceptance": _acceptance(look["acceptance"])})
            for look in kept["looks"]
        ]


def usable(texts: Sequence[Text], held_out: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """Those with a draft in their answer, to train on and held out. UsageError when either are
    none."""
    found = tuple([text for text in some if text.answer >= 2] for some in (texts, held_out))
    if not all(found):
        raise UsageError(
            "there are too few texts with an answer of two tokens or more "
            f"({len(found[0]) + len(found[1])}): some to train "
            "on, some to hold out; give more prompts"
        )
    return found[0], found[1]


def split(
    texts: Sequence[Text], share: float = 0.05, most: int = 200
) -> tuple[list[Text], list[Text]]:
    """(to train on, held out): by prompt, so that no prompt is in both; the same for any order or
    number of texts."""
    held = [text for text in texts if _unit(text.key) < share][:most]
    kept = {text.key for text in held}
    return [text for text in texts if text.key not in kept], held


def frequent_ids(
    texts: Sequence[Text], size: int, vocab_size: int, *, known: Sequence[int] = ()
) -> list[int]:
    """`size` ids in ascending order, a draft vocabulary: those of `known`, then what answers use
    most, ties by id. Filled up with the lowest ids where too few occur."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for text in texts:
        counts += torch.bincount(
            torch.tensor(text.tokens[text.prompt :], dtype=torch.long), minlength=vocab_size
        )
    counts[torch.tensor(known, dtype=torch.long)] = counts.max() + 1
    order = torch.sort(counts, descending=True, stable=True).indices
    return sorted(order[: min(size, vocab_size)].tolist())


def _unit(key: str) -> float:
    """A number in [0, 1) from a key, hashed anew: texts are written in the order of their keys, so
    early ones share digits."""
    return int(hashlib.sha256(f"split {key}".encode()).hexdigest()[:8], 16) / 16**8


def _order(count: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return list(torch.randperm(count, generator=generator).tolist())


def _acceptance(entries: dict[str, Any]) -> Acceptance:
    return Acceptance(**{name: tuple(values) for name, values in entries.items()})
