"""A folder with a PEFT adapter stands for its base model with the adapter merged; what cannot be
merged is refused by name."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.errors import MissingExtraError, UnsupportedModelError, UsageError
from draftproof.models import adapters
from draftproof.models.hf import HFModel
from draftproof.models.load import load_model
from draftproof.models.protocol import Step, extend
from tiny import fresh_logits, llama, word_tokenizer


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))

    def refuse(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    llama().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


def adapter_folder(tmp_path, base, **settings):
    """A LoRA adapter of rank 2 on every query projection, in PEFT's file format."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": str(base), **settings})
    )
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(2, 32, generator=generator)
        tensors[f"{name}.lora_B.weight"] = torch.randn(32, 2, generator=generator)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder, tensors


def merged_by_hand(tensors):
    module = llama()
    with torch.no_grad():
        for layer in range(2):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
            change = tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"] * (4 / 2)
            module.model.layers[layer].self_attn.q_proj.weight += change
    return module


class FakePeft(ModuleType):
    """As much of peft as is called, with the arithmetic of LoRA."""

    class PeftModel:
        @classmethod
        def from_pretrained(cls, module, folder, is_trainable):
            assert not is_trainable
            adapted = cls()
            adapted.module, adapted.folder = module, folder
            return adapted

        def get_base_model(self):
            return self.module

        def merge_and_unload(self, safe_merge):
            from safetensors.torch import load_file

            assert safe_merge
            tensors = load_file(f"{self.folder}/adapter_model.safetensors")
            self.module.load_state_dict(merged_by_hand(tensors).state_dict())
            return self.module


@pytest.fixture
def fake_peft(monkeypatch):
    peft = FakePeft("peft")
    peft.__spec__ = ModuleSpec("peft", None)
    monkeypatch.setitem(sys.modules, "peft", peft)
    monkeypatch.setattr(adapters, "find_spec", lambda name: object())


def test_the_base_is_loaded_and_the_adapter_merged(tmp_path, base, fake_peft):
    folder, tensors = adapter_folder(tmp_path, base)
    model = load_model(folder, device="cpu")
    assert model.name == str(folder) and model.tokenizer("w3").input_ids == [3]
    expected = fresh_logits(merged_by_hand(tensors), [1, 2, 3])
    torch.testing.assert_close(fresh_logits(model.module, [1, 2, 3]), expected)
    assert not torch.allclose(expected, fresh_logits(llama(), [1, 2, 3]))


def test_an_adapters_own_tokenizer_goes_first_and_more_tokens_make_room(
    tmp_path, base, monkeypatch
):
    folder, _ = adapter_folder(tmp_path, base)
    word_tokenizer(70).save_pretrained(folder)
    seen = []

    class Peft(FakePeft):
        class PeftModel(FakePeft.PeftModel):
            def merge_and_unload(self, safe_merge):
                seen.append(self.module.get_input_embeddings().weight.shape[0])
                return self.module

    peft = Peft("peft")
    peft.__spec__ = ModuleSpec("peft", None)
    monkeypatch.setitem(sys.modules, "peft", peft)
    monkeypatch.setattr(adapters, "find_spec", lambda name: object())
    model = load_model(folder, device="cpu")
    assert seen == [70] and model.vocab_size == 70 and model.tokenizer("w69").input_ids == [69]


def test_a_base_beside_the_adapter_is_found(tmp_path, base, fake_peft):
    folder, _ = adapter_folder(tmp_path, "../base")
    assert load_model(folder, device="cpu").num_layers == 2


def test_without_peft_the_install_line(tmp_path, base, monkeypatch):
    folder, _ = adapter_folder(tmp_path, base)
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[adapters\]'"):
        load_model(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"peft_type": "PREFIX_TUNING"},
            "PREFIX_TUNING adapter, which puts learned tokens before the text",
        ),
        ({"peft_type": "PROMPT_TUNING"}, "PROMPT_TUNING adapter"),
        ({"alora_invocation_tokens": [1, 2]}, "activated LoRA"),
    ],
)
def test_adapters_that_cannot_be_merged_are_refused(tmp_path, base, settings, message):
    folder, _ = adapter_folder(tmp_path, base, **settings)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(folder)


def test_an_adapter_of_nothing_is_refused(tmp_path):
    folder, _ = adapter_folder(tmp_path, "", base_model_name_or_path=None)
    with pytest.raises(UsageError, match="does not name its base model"):
        load_model(folder)


@pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # peft calls what transformers is about to rename
def test_peft_itself_gives_the_same(tmp_path, base):
    pytest.importorskip("peft", reason="the extra `adapters` is not installed")
    folder, tensors = adapter_folder(tmp_path, base)
    model = load_model(folder, device="cpu")
    torch.testing.assert_close(
        fresh_logits(model.module, [1, 2, 3]),
        fresh_logits(merged_by_hand(tensors), [1, 2, 3]),
        rtol=0,
        atol=1e-4,
    )


KINDS = {
    "lora": (
        "LoraConfig",
        {"r": 2, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False},
    ),
    "dora": (
        "LoraConfig",
        {"r": 2, "target_modules": ["q_proj"], "use_dora": True, "init_lora_weights": False},
    ),
    "a whole head": (
        "LoraConfig",
        {
            "r": 2,
            "target_modules": ["q_proj"],
            "modules_to_save": ["lm_head"],
            "init_lora_weights": False,
        },
    ),
    "embeddings": (
        "LoraConfig",
        {"r": 2, "target_modules": ["embed_tokens"], "init_lora_weights": False},
    ),
    "ia3": (
        "IA3Config",
        {
            "target_modules": ["k_proj", "down_proj"],
            "feedforward_modules": ["down_proj"],
            "init_ia3_weights": False,
        },
    ),
    "loha": ("LoHaConfig", {"r": 2, "target_modules": ["q_proj"], "init_weights": False}),
}


@pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # peft calls what transformers is about to rename
@pytest.mark.parametrize("kind", KINDS)
def test_what_peft_saves_is_loaded_and_its_base_can_draft_for_it(tmp_path, base, kind):
    """The logits are those of peft's own, unmerged; greedily drafted by the base, the text is plain
    decoding's."""
    peft = pytest.importorskip("peft", reason="the extra `adapters` is not installed")
    name, settings = KINDS[kind]
    torch.manual_seed(2)
    adapted = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), getattr(peft, name)(**settings)
    ).eval()
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=kind == "embeddings")
    model = load_model(tmp_path / "adapter", device="cpu")
    with torch.no_grad():
        expected = adapted(torch.tensor([[1, 2, 3]])).logits[0]
    live = HFModel(adapted)
    torch.testing.assert_close(
        extend(Step(live.open(), [1, 2, 3])).logits, expected, rtol=0, atol=1e-4
    )
    torch.testing.assert_close(fresh_logits(model.module, [1, 2, 3]), expected, rtol=0, atol=1e-4)
    assert not torch.allclose(expected, fresh_logits(llama(), [1, 2, 3]), atol=0.1)
    decoder = SpeculativeDecoder(
        load_model(base, device="cpu"), model, speculative_config={"num_speculative_tokens": 3}
    )
    params = SamplingParams(temperature=0, max_tokens=16)
    assert (
        decoder.generate([1, 2, 3], params).token_ids
        == decoder.plain.generate([1, 2, 3], params).token_ids
    )


@pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # peft calls what transformers is about to rename
def test_a_live_module_with_learned_tokens_is_refused():
    peft = pytest.importorskip("peft", reason="the extra `adapters` is not installed")
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(UnsupportedModelError, match="the module is a PROMPT_TUNING adapter"):
        HFModel(peft.get_peft_model(llama(), settings))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
@pytest.mark.parametrize(
    "wrap", [torch.compile, torch.nn.DataParallel], ids=["compile", "DataParallel"]
)
def test_a_wrapped_module_is_read_as_the_module_inside(wrap):
    module = llama()
    decoder = SpeculativeDecoder(
        wrap(llama(seed=1)), wrap(module), speculative_config={"num_speculative_tokens": 3}
    )
    params = SamplingParams(temperature=0, max_tokens=12)
    assert decoder.target.module is module
    wanted = SpeculativeDecoder(None, module).plain.generate([1, 2, 3], params)
    assert decoder.generate([1, 2, 3], params).token_ids == wanted.token_ids
