"""Hidden states kept on disk, for those who ask: several passes over the same texts then cost the
target one.

    cache.json              which target and which layers
    KEY-HASH.npy            of one text: its hidden states [tokens, layers * width] in float16, one
                            layer after another, then
                            [rows, 3] in float64: after the positions prompt .. length - 2, the
                            target's likeliest token and the logarithm of its law's normaliser at
                            temperature 1 and at the text's own

The law itself is made again from the last hidden state through the target's output layer, on the
draft vocabulary alone, which is all that training looks at. float16 has 11 bits: states and laws
differ from fresh ones in the fourth digit. The sizes are known before anything is written, and a
folder that would grow beyond its limit is refused.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftproof.errors import UsageError
from draftproof.heads.target import TargetView
from draftproof.models.protocol import LanguageModel
from draftproof.train.states import COLDEST, States, heats, read_texts_by
from draftproof.train.store import Text

FORMAT = 1
TEXTS_A_PASS = 4
LARGEST_DEPARTURE = 0.05
"""Of a logit made from the kept last state, against the model's own: rounding stays well below,
another formula does not."""


@dataclass
class StateCache:
    """A folder of states of `target` at `layers`, a `StateSource`. draft_ids: as for
    `show_states`."""

    folder: Path
    target: LanguageModel
    view: TargetView
    layers: tuple[int, ...]
    draft_ids: Tensor | None = None

    def __post_init__(self) -> None:
        self.kept = tuple(dict.fromkeys((*self.layers, self.view.num_layers)))
        self._weight, self._bias = self.view.output_weight.float(), self.view.output_bias
        if self.draft_ids is not None:
            self._weight = self._weight[self.draft_ids]
            self._bias = None if self._bias is None else self._bias[self.draft_ids]

    def missing(self, texts: Sequence[Text]) -> list[Text]:
        """The texts whose states are not there yet."""
        return [text for text in texts if not self._path(text).exists()]

    def size(self, texts: Sequence[Text]) -> int:
        """Bytes the states of `texts` take."""
        return sum(
            len(text.tokens) * len(self.kept) * self.view.width * 2 + text.answer * 24
            for text in texts
        )

    def fill(
        self,
        texts: Sequence[Text],
        limit: int,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Make and write what is missing. limit: bytes the folder may hold in all; UsageError
        before the first is written when it, or the disk, has no room, and for a folder of another
        target or other layers."""
        self._claim()
        missing = self.missing(texts)
        held = sum(file.stat().st_size for file in self.folder.glob("*.npy"))
        needed, free = self.size(missing), shutil.disk_usage(self.folder).free
        if held + needed > limit or needed > free:
            room = (
                f"the limit is {limit / 1e9:.2f} GB"
                if held + needed > limit
                else f"the disk has {free / 1e9:.2f} GB"
            )
            raise UsageError(
                f"the states of these texts take {(held + needed) / 1e9:.2f} GB in "
                f"{self.folder}; {room}"
            )
        missing.sort(key=lambda text: len(text.tokens))
        for first in range(0, len(missing), TEXTS_A_PASS):
            self._write(missing[first : first + TEXTS_A_PASS])
            tell(min(first + TEXTS_A_PASS, len(missing)), len(missing))

    def __call__(self, texts: Sequence[Text], temperature: float | None) -> States:
        """The states of texts that were filled in; UsageError names one that was not. temperature:
        1, or None for each text's own: the two that are kept."""
        if temperature not in (1.0, None):
            raise UsageError(
                f"{self.folder} keeps laws at temperature 1 and each text's own, not at "
                f"{temperature}"
            )
        warmth = heats(texts, temperature)
        hidden: dict[int, list[Tensor]] = {layer: [] for layer in self.layers}
        laws, best = [], []
        for text, heat in zip(texts, warmth, strict=True):
            states, facts = self._read(text)
            for layer in hidden:
                hidden[layer].append(states[self.kept.index(layer)])
            last = states[self.kept.index(self.view.num_layers)][text.prompt : len(text.tokens) - 1]
            best.append(facts[:, 0].long())
            laws.append(
                self._log_law(
                    last, best[-1], facts[:, 1 if temperature is not None else 2].float(), heat
                )
            )
        return States(
            tuple(texts),
            {layer: tuple(v) for layer, v in hidden.items()},
            tuple(laws),
            tuple(best),
            tuple(warmth),
        )

    def _log_law(self, last: Tensor, best: Tensor, norm: Tensor, heat: float) -> Tensor:
        if heat > COLDEST:
            return torch.nn.functional.linear(last, self._weight, self._bias) / heat - norm[:, None]
        ids = (
            torch.arange(self.view.vocab_size, device=best.device)
            if self.draft_ids is None
            else self.draft_ids
        )
        return torch.where(ids == best[:, None], 0.0, -torch.inf)

    def _read(self, text: Text) -> tuple[list[Tensor], Tensor]:
        path = self._path(text)
        try:
            with path.open("rb") as file:
                states, facts = np.load(file), np.load(file)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} cannot be read ({error}): remove it and it is made again"
            ) from error
        tensor = torch.from_numpy(states).to(self.view.device).float()
        return list(tensor.split(self.view.width, dim=1)), torch.from_numpy(facts).to(
            self.view.device
        )

    def _write(self, texts: Sequence[Text]) -> None:
        hidden, logits = read_texts_by(self.target, texts, self.kept)
        for i, text in enumerate(texts):
            rows = max(0, text.answer - 1)
            scores, heat = logits[i][:rows], max(heats([text], None)[0], COLDEST)
            last = hidden[self.view.num_layers][i][text.prompt :][:rows].half().float()
            again = self._checked(scores, last)
            norms = [again.logsumexp(-1), (again / heat).logsumexp(-1)]
            facts = torch.stack(
                [scores.argmax(-1).double(), *(norm.double() for norm in norms)], dim=1
            )
            states = torch.cat([hidden[layer][i] for layer in self.kept], dim=1)
            if float(states.abs().max()) > torch.finfo(torch.float16).max:
                raise UsageError(
                    f"hidden states of {self.target.name} outgrow float16: train without "
                    "keeping them on disk"
                )
            part = self.folder / "text.part"
            with part.open("wb") as file:
                np.save(file, states.half().cpu().numpy())
                np.save(file, facts.cpu().numpy())
            part.replace(self._path(text))

    def _checked(self, scores: Tensor, last: Tensor) -> Tensor:
        """The logits that the kept states give. Refuses a target whose own are not its output layer
        on its last hidden state (some scale or cap them)."""
        again = self.view.output(last.to(self.view.dtype)).float()
        if len(scores) and float((again - scores).abs().mean()) > LARGEST_DEPARTURE * float(
            scores.std()
        ):
            raise UsageError(
                f"the laws of {self.target.name} are not its output layer on its last "
                "hidden state: train without --cache"
            )
        return again

    def _claim(self) -> None:
        about: dict[str, Any] = {
            "format": FORMAT,
            "target": self.view.name,
            "fingerprint": self.view.fingerprint,
            "layers": list(self.kept),
        }
        path = self.folder / "cache.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(
                f"{path} cannot be read ({error}): remove its folder, and the states are made again"
            ) from error
        if wrong := [name for name in about if before.get(name) != about[name]]:
            raise UsageError(
                f"{self.folder} holds states of another {', '.join(wrong)}; name another folder"
            )

    def _path(self, text: Text) -> Path:
        digest = hashlib.sha256(np.asarray(text.tokens, "<u4").tobytes()).hexdigest()[:12]
        return self.folder / f"{text.key}-{digest}.npy"
