"""A pair on two devices, and a model spread over two: everything is moved where it has to be, and
only there.

The devices are pretended (see `pretended_devices`): tensors that raise when mixed. No real
accelerator has run this."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module

from cache_families import FAMILIES
from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.drafters.protocol import Drafter, DraftSession
from draftproof.errors import InvalidLogitsError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Output, Step, extend
from draftproof.models.session import HFSession
from pretended_devices import FIRST, HOST, SECOND, place, pretended, where
from tiny import llama

BLOCKS = re.compile(
    r"(model\.layers|transformer\.h)\.\d+|(model\.|transformer\.)?(embed_tokens|wte|wpe|norm|ln_f|lm_head)"
)
GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 1.0, "seed": 4}
CUT = {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.3, "seed": 3, "logprobs": 2}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@cache
def on(device: torch.device, family: str = "llama", seed: int = 0) -> HFModel:
    """A tiny model of the family, all of it on `device`."""
    module = FAMILIES[family].make(torch.float64, seed)
    return HFModel(
        module if device == HOST else place(module, lambda name: device),
        name=f"{family} on {device}",
    )


def spread(family: str) -> HFModel:
    """The embeddings and the first layer on one device, all else on another, with the hooks that
    `device_map` puts there."""
    module = FAMILIES[family].make(torch.float64)
    place(module, device_of)
    for name, part in module.named_modules():
        if BLOCKS.fullmatch(name):
            add_hook_to_module(part, AlignDevicesHook(execution_device=device_of(name)))
    add_hook_to_module(module, AlignDevicesHook(execution_device=FIRST, io_same_device=True))
    return HFModel(module, name=f"{family} on two devices")


def device_of(name: str) -> torch.device:
    late = re.match(
        r"model\.layers\.[1-9]|transformer\.h\.[1-9]|model\.norm|transformer\.ln_f|lm_head", name
    )
    return SECOND if late else FIRST


def test_pretended_devices_are_not_mixed():
    with pretended():
        near, far = torch.ones(2, device=FIRST), torch.tensor([1.0, 2.0], device=SECOND)
        for other in (far, torch.ones(2)):
            with pytest.raises(RuntimeError, match="tensors on"):
                near + other
        with pytest.raises(RuntimeError, match="tensors on"):
            near[torch.tensor([1], device=SECOND)]
        with pytest.raises(TypeError, match="no NumPy view"):
            near.numpy()
        assert (near + far.to(FIRST)).tolist() == [2.0, 3.0]
        assert where(near[torch.tensor([1])]) == where(near * 2) == FIRST


@pytest.mark.parametrize(
    ("target", "draft", "settings"),
    [(HOST, FIRST, SAMPLED), (FIRST, HOST, GREEDY), (FIRST, SECOND, SAMPLED), (FIRST, SECOND, CUT)],
)
def test_a_pair_on_two_devices_writes_what_it_writes_on_one(target, draft, settings):
    params = SamplingParams(max_tokens=8, ignore_eos=True, **settings)
    config = {"num_speculative_tokens": 3}
    expected = SpeculativeDecoder(
        on(HOST, "llama", 1), on(HOST), speculative_config=config
    ).generate([1, 2, 3], params)
    with pretended():
        decoder = SpeculativeDecoder(on(draft, "llama", 1), on(target), speculative_config=config)
        assert decoder.drafter.model.output_device == target
        alone = decoder.generate([1, 2, 3], params)
        beside = decoder.generate([[1, 2, 3], [4, 5]], params)[0]
    for result in (alone, beside):
        assert result.token_ids == expected.token_ids
        assert [r.draft_tokens for r in result.rounds] == [r.draft_tokens for r in expected.rounds]


@pytest.mark.parametrize("family", ["gemma3", "deepseek_v3", "qwen3_next"])
def test_drafts_of_every_cache_from_another_device(family):
    params = SamplingParams(max_tokens=8, temperature=0)
    config = {"num_speculative_tokens": 3}
    expected = SpeculativeDecoder(on(HOST, family), on(HOST), speculative_config=config).generate(
        [1, 2, 3], params
    )
    with pretended():
        result = SpeculativeDecoder(
            on(FIRST, family), on(HOST), speculative_config=config
        ).generate([1, 2, 3], params)
    assert result.token_ids == expected.token_ids
    assert [r.draft_tokens for r in result.rounds] == [r.draft_tokens for r in expected.rounds]


def read(model: HFModel) -> tuple[list[Output], HFSession]:
    """Some passes: alone and together, with hidden states, and one after a rejected draft."""
    one, other = model.open(), model.open()
    outputs = [
        extend(Step(one, [5, 4, 3, 2, 1], hidden=(1,))),
        extend(Step(other, [1, 2, 3], hidden=(1,))),
    ]
    outputs += model.extend_many(
        [Step(one, [5, 4, 3, 2, 1], rows=[4, 1]), Step(other, [1, 2, 3], rows=[2])]
    )
    one.keep([0, 1])
    return [*outputs, extend(Step(one, [7]))], one


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "qwen3_next"])
def test_a_model_spread_over_two_devices(family):
    """Keys lie where their layer does; rows are picked where the last layer is; what is handed out
    lies on the first."""
    whole = on(HOST, family)
    expected, _ = read(whole)
    with pretended():
        model = spread(family)
        found, session = read(model)
        for output in found:
            assert where(output.logits) == model.device == FIRST
        assert where(found[0].hidden[1]) == FIRST
        layers = [
            layer for layer in session.cache.layers if getattr(layer, "keys", None) is not None
        ]
        assert where(layers[-1].keys) == SECOND
        moved = [output.logits.to(HOST) for output in found]
    for mine, other in zip(moved, expected, strict=True):
        torch.testing.assert_close(mine, other.logits, rtol=0, atol=1e-9)


def test_what_a_draft_model_gives_is_moved_once():
    """One row a draft step leaves the draft's device, and nothing leaves the target's."""
    target, draft = HFModel(llama(), name="target"), HFModel(llama(seed=1), name="draft")
    with pretended():
        draft.deliver_to(FIRST)
        output = extend(Step(draft.open(), [1, 2, 3], rows=[2], hidden=(1,)))
        assert where(output.logits) == where(output.hidden[1]) == FIRST
        assert draft.device == target.output_device == HOST, "the model itself stays"
        output.logits[0, 0] = 1.0  # still writable


class Insists(Drafter, DraftSession):
    """Drafts token 9, which the processor below forbids and after which it allows nothing, and goes
    on from there."""

    name, selections, memories = "insists", frozenset({"fixed"}), ()

    def open(self, request):
        return self

    def propose(self, context, draft):
        for token in (9, 1, 2)[: draft.room]:
            draft.guess(token)

    def state_key(self):
        return ()

    def fork(self):
        return self


def grammar(input_ids, scores):
    """No continuation after token 9, which itself is not allowed."""
    if input_ids.tolist()[0][-1] == 9:
        return torch.full_like(scores, -torch.inf)
    scores = scores.clone()
    scores[:, 9] = -torch.inf
    return scores


@pytest.mark.parametrize(
    "settings", [GREEDY, SAMPLED, {"temperature": 0.8, "top_p": 0.9, "seed": 3}]
)
@pytest.mark.parametrize("rule", ["match", "token", "block"])
def test_a_row_without_a_law_counts_only_where_the_text_goes(rule, settings):
    """Rows behind a rejected draft may have no law; on an accelerator all rows are made at once,
    and only those on the way may complain."""
    params = SamplingParams(max_tokens=6, logits_processors=[grammar], **settings)
    config = {"num_speculative_tokens": 3, "rule": rule}
    expected = SpeculativeDecoder(Insists(), on(HOST), speculative_config=config).generate(
        [1, 2, 3], params
    )
    with pretended():
        result = SpeculativeDecoder(Insists(), on(FIRST), speculative_config=config).generate(
            [1, 2, 3], params
        )
        with pytest.raises(InvalidLogitsError):
            SpeculativeDecoder(Insists(), on(FIRST), speculative_config=config).generate(
                [1, 2, 9], params
            )
    assert result.token_ids == expected.token_ids
    assert result.stats.num_draft_tokens > 0
