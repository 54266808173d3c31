"""Faults of training: which rows are trained on what, the losses, held-out acceptance, checkpoints,
costs."""

from __future__ import annotations

from mutants.fault import Fault

LOOP = ("train/test_loop.py",)
DATA = ("train/test_data.py",)
DISTIL = ("train/test_distil.py",)
CACHE = ("train/test_cache.py",)
TASK = ("train/test_task.py",)
LANGUAGE = ("train/test_toy_language.py",)

TRAIN: tuple[Fault, ...] = (
    Fault(
        "train/alignment.py",
        "return range(max(prompt - 1, 0), max(length - 1 - ahead, max(prompt - 1, 0)))",
        "return range(prompt, max(length - 1 - ahead, prompt))",
        "the first draft after a prompt is never trained",
        (*LOOP, *TASK, *DATA),
    ),
    Fault(
        "train/alignment.py",
        "return range(max(prompt - 1, 0), max(length - 1 - ahead, max(prompt - 1, 0)))",
        "return range(max(prompt - 1, 0), max(length - 2 - ahead, max(prompt - 1, 0)))",
        "the last draft of a text is never trained",
        (*LOOP, *TASK, *DATA),
    ),
    Fault(
        "train/losses.py",
        "return torch.minimum(target_log_law.exp(), torch.softmax(draft_logits, dim=-1)).sum(-1)",
        "return torch.maximum(target_log_law.exp(), torch.softmax(draft_logits, dim=-1)).sum(-1)",
        "acceptance is the mass of the larger law",
        LOOP,
    ),
    Fault(
        "train/losses.py",
        "weights = torch.softmax(target_log_law, dim=-1)",
        "weights = target_log_law.exp()",
        "cross-entropy is not renormalised on the draft vocabulary",
        LOOP,
    ),
    Fault(
        "train/losses.py",
        'return functional.smooth_l1_loss(predicted, true, reduction="none").mean(-1)',
        'return functional.smooth_l1_loss(predicted, true, reduction="none").sum(-1)',
        "the loss on features grows with their width",
        LOOP,
    ),
    Fault(
        "train/heldout.py",
        "ratio = step if ratio is None else ratio * step",
        "ratio = step",
        "held-out acceptance forgets the drafts before the last",
        TASK,
    ),
    Fault(
        "train/heldout.py",
        "draft = torch.nn.functional.one_hot(draft.argmax(-1), draft.shape[-1]).to(draft.dtype)",
        "draft = draft.clone()",
        "Medusa's guesses are judged as if drawn",
        (*TASK, *LANGUAGE),
    ),
    Fault(
        "train/heldout.py",
        "(q / p.clamp_min(1e-30)).clamp_max(1.0)",
        "(q / p.clamp_min(1e-30))",
        "a draft is accepted with more than certainty",
        (*TASK, *LANGUAGE),
    ),
    Fault(
        "train/unroll.py",
        "features[None], places[None] + step, attend\n",
        "features[None], places[None], attend\n",
        "later steps stand at the first step's positions",
        LOOP,
    ),
    Fault(
        "train/unroll.py",
        "dtype=torch.bool, device=queries.device).tril(\n            rows.start\n",
        "dtype=torch.bool, device=queries.device).tril(\n            rows.start + 1\n",
        "a drafted row sees a true row that drafting does not have",
        LOOP,
    ),
    Fault(
        "train/unroll.py",
        "out = out + weights[..., true_keys.shape[1] + i, None] * v",
        "out = out + weights[..., true_keys.shape[1], None] * v",
        "every drafted row is weighed as the first",
        LOOP,
    ),
    Fault(
        "train/states.py",
        "            ahead + rows.start - text.prompt\n",
        "            ahead - 1 + rows.start - text.prompt + 1 * (ahead == 1)\n",
        "labels of later steps are one position early",
        (*LOOP, *TASK),
    ),
    Fault(
        "train/states.py",
        "return self.tokens(self.rows(ahead), 1 + ahead)",
        "return self.tokens(self.rows(ahead), ahead)",
        "the token a row guesses is the one it has read",
        (*LOOP, *TASK, *LANGUAGE),
    ),
    Fault(
        "train/loop.py",
        "done = (step - self.settings.warmup) / max(1, self.settings.steps - self.settings.warmup)",
        "done = step / max(1, self.settings.steps)",
        "the rate falls during warm-up already",
        LOOP,
    ),
    Fault(
        "train/loop.py",
        "chosen.append(self.texts[_order(count, self.settings.seed, epoch)[index]])",
        "chosen.append(self.texts[_order(count, self.settings.seed, 0)[index]])",
        "every epoch has the first one's order",
        LOOP,
    ),
    Fault(
        "train/loop.py",
        '                "optimizer": self._optimizer.state_dict(),\n',
        '                "optimizer": {**self._optimizer.state_dict(), "state": {}},\n',
        "a resumed run forgets the optimizer's averages",
        LOOP,
    ),
    Fault(
        "train/loop.py",
        "        if self.stopped_early and self._best is not None:\n",
        "        if False and self._best is not None:\n",
        "a run that stops early ends with its last weights",
        LOOP,
    ),
    Fault(
        "train/loop.py",
        "torch.lerp(w, ended[name], 0.5)",
        "torch.lerp(w, ended[name], 1.0)",
        "the mean with the beginning is the end",
        LOOP,
    ),
    Fault(
        "train/loop.py",
        "self.stopped_early = 0 < self.settings.patience <= behind",
        "self.stopped_early = 0 < self.settings.patience < behind",
        "patience lasts a look too long",
        LOOP,
    ),
    Fault(
        "train/distil.py",
        "0, text.prompt - 1 :, : self.target.vocab_size",
        "0, text.prompt :, : self.target.vocab_size",
        "a draft model is not trained on an answer's first token",
        DISTIL,
    ),
    Fault(
        "train/distil.py",
        "reached = reached * ratio[place : place + drafts]",
        "reached = reached * ratio[:drafts]",
        "later drafts are reached as the first is",
        DISTIL,
    ),
    Fault(
        "train/distil.py",
        "module = unpack_linears(copy.deepcopy(sliced)).float()",
        "module = unpack_linears(sliced).float()",
        "a draft of the target's layers trains the target",
        DISTIL,
    ),
    Fault(
        "train/cache.py",
        "if held + needed > limit or needed > free:",
        "if needed > limit or needed > free:",
        "what the folder holds already is not counted",
        CACHE,
    ),
    Fault(
        "train/cache.py",
        "facts[:, 1 if temperature is not None else 2].float()",
        "facts[:, 1].float()",
        "laws at a text's own temperature are normalised as at 1",
        CACHE,
    ),
    Fault(
        "train/cache.py",
        "if wrong := [name for name in about if before.get(name) != about[name]]:",
        "if wrong := [name for name in about if name not in before]:",
        "states of another target are taken",
        CACHE,
    ),
    Fault(
        "costs/round_costs.py",
        "(1 + sum(marginal[:drafts])) / self.round(drafts)",
        "(1 + sum(marginal[:drafts])) / self.round(drafts, 1)",
        "all steps of a draft cost one",
        ("train/test_speedup.py",),
    ),
    Fault(
        "costs/round_costs.py",
        "(1 + sum(marginal[:drafts])) / self.round(drafts)",
        "sum(marginal[:drafts]) / self.round(drafts)",
        "the bonus is left out of the speedup",
        ("train/test_speedup.py",),
    ),
    Fault(
        "train/mixture.py",
        (
            "unique = {prompt.key: prompt for prompt in found}\n    return [unique[key] for "
            "key in sorted(unique)][:limit]"
        ),
        "return sorted(found, key=lambda prompt: prompt.key)[:limit]",
        "prompts come twice",
        ("train/test_data.py", "train/test_invented.py"),
    ),
    Fault(
        "train/store.py",
        " if text.prompt + 1 < length\n",
        "\n",
        "texts that are all prompt are kept",
        (*DATA, *LOOP),
    ),
)
