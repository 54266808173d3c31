"""Faults of chance, sampling parameters and formulas."""

from __future__ import annotations

from mutants.fault import Fault

CHANCE = ("core/test_chance.py", "core/test_device_chance.py")
PARAMETERS = ("core/test_penalties.py", "core/test_pipeline.py", "core/test_pipeline_rounds.py")

CORE: tuple[Fault, ...] = (
    Fault(
        "core/chance.py",
        "_hashed((seed, sample, opening, *prompt))",
        "_hashed((seed & MASK, sample, opening, *prompt))",
        "a seed is cut to 32 bits",
        ("core/test_chance.py",),
    ),
    Fault(
        "core/chance.py",
        "_hashed((seed, sample, opening, *prompt))",
        "_hashed((seed, sample, opening))",
        "prompts of one seed share coins",
        ("core/test_chance.py",),
    ),
    Fault(
        "core/chance.py",
        "_hashed((seed, sample, opening, *prompt))",
        "_hashed((seed, sample, *prompt))",
        "requests over one memory share coins",
        ("core/test_chance.py",),
    ),
    Fault(
        "core/chance.py",
        "(base & MASK, (purpose << 24) | tail)",
        "(base & 0xFFF, (purpose << 24) | tail)",
        "coins come again after 4,096 tokens",
        ("core/test_chance.py",),
    ),
    Fault(
        "core/chance.py",
        "(base & MASK, (purpose << 24) | tail)",
        "(base & MASK, (purpose << 24) | (tail & 63))",
        "coins come again after 64 nodes",
        ("core/test_chance.py",),
    ),
    Fault(
        "core/chance.py",
        "places = xp.arange(probabilities.shape[0] + 1, device=device(probabilities))",
        "places = xp.arange(probabilities.shape[0] + 1, device=device(probabilities)) - 1",
        "on a device the last success is one too early",
        CHANCE,
    ),
    Fault(
        "core/chance.py",
        "return xp.max(xp.where(xp.concat([start, successes]), places, xp.zeros_like(places)))",
        (
            "return xp.sum(xp.where(xp.concat([start, successes]), xp.ones_like(places), "
            "xp.zeros_like(places))) - 1"
        ),
        "on a device the last success is the number of successes",
        CHANCE,
    ),
    Fault(
        "core/chance.py",
        "end = xp.ones(1, dtype=xp.bool, device=device(probabilities))",
        "end = xp.zeros(1, dtype=xp.bool, device=device(probabilities))",
        "on a device trials that all pass count as none",
        CHANCE,
    ),
    Fault(
        "core/chance.py",
        "for i in reversed(range(len(values)))",
        "for i in range(len(values))",
        "the first success is taken for the last",
        CHANCE,
    ),
    Fault(
        "core/chance.py",
        "return self.uniform(purpose, node) < float(probability)",
        "return self.uniform(purpose, node) <= float(probability)",
        "a trial of probability 0 succeeds with a uniform of 0",
        (*CHANCE, "core/test_rules.py"),
    ),
    Fault(
        "core/chance.py",
        "if r % 4 == 3:",
        "if r % 4 == 2:",
        "keys are injected after the wrong rounds of the generator",
        CHANCE,
    ),
    Fault(
        "core/coupled.py",
        "return (xp.astype(whole, xp.float64) + 0.5) / 4503599627370496.0",
        "return xp.astype(whole, xp.float64) / 4503599627370496.0",
        "shared noise may be 0, whose logarithm is none",
        ("core/test_coupled.py",),
    ),
    Fault(
        "core/coupled.py",
        "return tokens[xp.argmax(xp.astype(law[tokens], xp.float64) / exponentials)]",
        "return tokens[xp.argmax(xp.astype(law[tokens], xp.float64) * exponentials)]",
        "the coupled draw is no longer Gumbel's",
        ("core/test_coupled.py", "core/test_device_chance.py"),
    ),
    # processed laws
    Fault(
        "core/truncate.py",
        "top_k = params.top_k if 0 < params.top_k < vocab_size else 0",
        "top_k = params.top_k + 1 if 0 < params.top_k < vocab_size else 0",
        "top-k keeps one too many",
        ("core/test_truncate.py", *PARAMETERS),
    ),
    Fault(
        "core/truncate.py",
        "removable = (1 - top_p) * total",
        "removable = (1 - top_p)",
        "top-p removes a share of 1, not of the mass",
        ("core/test_truncate.py", *PARAMETERS),
    ),
    Fault(
        "core/truncate.py",
        "kept[np.flatnonzero(mass == least)[-num_tied:]] = True",
        "kept[np.flatnonzero(mass == least)[:num_tied]] = True",
        "of tied tokens top-p keeps the lower ids",
        ("core/test_truncate.py",),
    ),
    Fault(
        "core/truncate.py",
        "ids, mass = _chosen(ids, mass, mass >= truncation.min_p)",
        "ids, mass = _chosen(ids, mass, mass > truncation.min_p)",
        "min-p drops a token that is just likely enough",
        ("core/test_pipeline_transformers.py",),
    ),
    Fault(
        "core/penalties.py",
        "drafted = [\n            (i, t, generated.get(t, 0) + path.count(t))",
        "drafted = [\n            (i, t, generated.get(t, 0) + 1)",
        "a token drafted twice is counted once",
        PARAMETERS,
    ),
    Fault(
        "core/penalties.py",
        "for t in set(path)\n            if t not in seen",
        "for t in set(path[:-1])\n            if t not in seen",
        "the newest drafted token is not penalised",
        PARAMETERS,
    ),
    Fault(
        "core/penalties.py",
        "xp.where(scores < 0, scores * self._repetition, scores / self._repetition)",
        "xp.where(scores < 0, scores / self._repetition, scores / self._repetition)",
        "repeating an unlikely token is made likelier",
        PARAMETERS,
    ),
    Fault(
        "core/bans.py",
        "if tail[-len(before) :] == before:",
        "if tail[-1:] == before[-1:]:",
        "a bad word of three tokens is banned after its second alone",
        PARAMETERS,
    ),
    Fault(
        "core/bans.py",
        "if len(context) + len(path) - self._num_prompt_tokens < self._min_tokens:",
        "if len(context) - self._num_prompt_tokens < self._min_tokens:",
        "min_tokens does not count what is drafted",
        PARAMETERS,
    ),
    # formulas and trees
    Fault(
        "core/tree.py",
        "if not smallest <= parent < node:",
        "if not smallest <= parent <= node:",
        "a node may hang under itself",
        ("core/test_tree.py",),
    ),
)
