"""From a name to a model: folders, GGUF files, short names and hub ids, each failing in one
sentence."""

from __future__ import annotations

import os
import shutil
import threading
import time

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config

from draftproof.errors import MissingExtraError, UnsupportedModelError, UsageError
from draftproof.models import convert, load
from draftproof.models.convert import converted_gguf
from draftproof.models.hf import HFModel
from draftproof.models.place import locate
from draftproof.models.pull import pulled_folder
from tiny import fresh_logits, llama, word_tokenizer
from tiny_gguf import CHAT_TEMPLATE, write_gguf


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", no_network)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)


def no_network(*_, **__):
    raise ConnectionError("Name or service not known")


def saved(folder, module, tokenizer=None):
    module.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_gives_the_model_with_its_tokenizer(tmp_path):
    module = llama(eos_token_id=[3, 7])
    model = HFModel.from_pretrained(saved(tmp_path / "m", module, word_tokenizer()), device="cpu")
    assert model.name == str(tmp_path / "m")
    assert model.tokenizer("w3 w5").input_ids == [3, 5]
    assert model.eos_token_ids == (3, 7) and model.max_length == 128 and model.vocab_size == 64
    torch.testing.assert_close(fresh_logits(model.module, [1, 2]), fresh_logits(module, [1, 2]))


def test_a_folder_without_tokenizer_is_noted(tmp_path, capsys):
    model = load.load_model(saved(tmp_path / "m", llama()), device="cpu", max_length=50)
    assert model.tokenizer is None and model.max_length == 50
    assert "no tokenizer" in capsys.readouterr().err


def test_dtypes_are_honoured_or_chosen(tmp_path):
    half = saved(tmp_path / "half", llama(torch.bfloat16))
    full = saved(tmp_path / "full", llama())
    expected = torch.bfloat16 if load.has_native_bfloat16(torch.device("cpu")) else torch.float32
    assert load.load_model(half, device="cpu").dtype == expected
    assert load.load_model(half, device="cpu", dtype="bfloat16").dtype == torch.bfloat16
    assert load.load_model(full, device="cpu").dtype == torch.float32
    assert load.load_model(full, device="cpu", dtype=torch.float64).dtype == torch.float64


def test_a_device_map_is_handed_on_and_needs_its_extra(tmp_path, monkeypatch):
    folder = saved(tmp_path / "m", llama())
    assert HFModel.from_pretrained(folder, device_map={"": "cpu"}).device == torch.device("cpu")
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[device-map\]'"):
        load.load_model(folder, device_map="auto")


@pytest.mark.parametrize(
    ("device", "native", "checkpoint", "chosen"),
    [
        ("cuda", True, torch.bfloat16, torch.bfloat16),
        ("cuda", True, torch.float16, torch.bfloat16),
        ("cuda", False, torch.bfloat16, torch.float16),
        ("cpu", True, torch.float16, torch.bfloat16),
        ("cpu", False, torch.bfloat16, torch.float32),
        ("cuda", True, torch.float32, torch.float32),
    ],
)
def test_auto_dtype_follows_the_hardware(monkeypatch, device, native, checkpoint, chosen):
    monkeypatch.setattr(load, "has_native_bfloat16", lambda _: native)
    assert load.choose_dtype("auto", torch.device(device), checkpoint) == chosen


def test_unknown_dtypes_and_devices_are_refused():
    for dtype in ("int8", "float17", torch.int64):
        with pytest.raises(UsageError, match="use auto, bfloat16"):
            load.choose_dtype(dtype, torch.device("cpu"), torch.float32)
    assert load.choose_dtype("bf16", torch.device("cpu"), torch.float32) == torch.bfloat16
    with pytest.raises(UsageError, match="not one torch knows"):
        load.choose_device("gpu")


def test_asking_for_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="sees no GPU"):
        load.choose_device("cuda")
    assert load.choose_device() == torch.device("cpu")


def test_a_gguf_file_is_converted_once(tmp_path, capsys):
    file, module = tmp_path / "tiny.gguf", llama(tie_word_embeddings=True)
    write_gguf(file, module)  # carries the tied output layer as a second tensor
    model = load.load_model(file, device="cpu", dtype="float32")
    told = capsys.readouterr().err
    assert "converting tiny.gguf" in told
    assert len(told.splitlines()) == 1 and "%|" not in told, "transformers' own bar beside ours"
    folder = converted_gguf(file)
    assert capsys.readouterr().err == "", "the second time it is there"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], (
        "nothing half-made is left"
    )
    assert model.module.get_output_embeddings().weight is model.module.get_input_embeddings().weight
    assert model.eos_token_ids == (2,) and model.tokenizer.chat_template == CHAT_TEMPLATE
    assert model.tokenizer.decode([3, 4]) == "ab"
    own = fresh_logits(module, [5, 6, 7])
    # float32 stays float32
    torch.testing.assert_close(fresh_logits(model.module, [5, 6, 7]), own, rtol=0, atol=1e-4)


def test_a_part_of_a_split_gguf_and_a_file_that_lacks_tensors_are_refused(tmp_path):
    part = tmp_path / "tiny-00001-of-00002.gguf"
    write_gguf(part, llama())
    with pytest.raises(
        UsageError, match="part 1 of 2 of a split GGUF file.*llama-gguf-split --merge"
    ):
        load.load_model(part)
    file, module = tmp_path / "tiny.gguf", llama()
    del module.model.layers[1].mlp.up_proj
    write_gguf(file, module)
    for _ in range(2):  # nothing was kept that would load the second time
        with pytest.raises(
            UsageError,
            match=r"tiny\.gguf is not a whole model: "
            r"it lacks model\.layers\.1\.mlp\.up_proj\.weight",
        ):
            load.load_model(file)


def test_a_folder_that_lacks_tensors_is_refused(tmp_path):
    llama().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"it lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        load.load_model(tmp_path)


def test_another_file_under_the_same_name_is_converted_anew(tmp_path):
    file = tmp_path / "tiny.gguf"
    write_gguf(file, llama(seed=0))
    first = converted_gguf(file)
    write_gguf(file, llama(seed=1, num_hidden_layers=1))
    assert converted_gguf(file) != first


def test_a_file_that_is_no_gguf_leaves_nothing_behind(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"<html>")
    with pytest.raises(UsageError, match="not a GGUF file"):
        load.load_model(file)
    file.write_bytes(b"GGUF" + b"\0" * 20)
    with pytest.raises(UsageError, match="cannot be converted"):
        load.load_model(file)
    assert not list((tmp_path / "cache").glob("converted/*"))


def test_wrong_names_get_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    cases = {
        str(tmp_path / "empty"): "has no config.json",
        str(tmp_path / "notes.txt"): "not a .gguf file",
        str(tmp_path / "nowhere"): "there is no file or folder",
        "nowhere.gguf": "there is no file or folder",
        "no such name!": "there is no file or folder",
        "some-owner/some-model": "model hub cannot be reached; name a local folder or a .gguf file",
        "smollm2-135m-instruct": "run: draftproof pull smollm2-135m-instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct": "run: draftproof pull smollm2-135m-instruct",
    }
    for name, message in cases.items():
        with pytest.raises(UsageError, match=message) as caught:
            load.load_model(name)
        assert "\n" not in str(caught.value)


def test_a_pulled_model_is_found_by_both_its_names(tmp_path):
    saved(pulled_folder("smollm2-135m-instruct"), llama(), word_tokenizer())
    for name in (
        "smollm2-135m-instruct",
        "SmolLM2-135M-Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    ):
        assert load.load_model(name, device="cpu").vocab_size == 64


def test_a_model_downloaded_before_is_used_without_the_hub(monkeypatch):
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "/cache/config.json"
    )
    assert locate("some-owner/some-model") == ("some-owner/some-model", True)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: "here")
    assert locate("some-owner/some-model") == ("some-owner/some-model", False)


def test_a_broken_folder_and_an_unsuitable_model_are_refused(tmp_path):
    broken = saved(tmp_path / "broken", llama())
    (broken / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="cannot be loaded"):
        load.load_model(broken, device="cpu")
    (broken / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load.load_model(broken, device="cpu")
    T5Config().save_pretrained(tmp_path / "t5")
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        load.load_model(tmp_path / "t5", device="cpu")


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path, capsys):
    """And only then: while another process converts, this one waits, and takes what the other has
    made."""
    file = tmp_path / "tiny.gguf"
    write_gguf(file, llama())
    folder = converted_gguf(file)
    left, other = (folder.parent / name for name in (f".{folder.name}-abcd", ".another-model-abcd"))
    for place in (left, other):
        place.mkdir()
        (place / "model.safetensors").write_bytes(b"half")
    whole = folder.rename(tmp_path / "kept")
    running = convert._locked(folder.parent)
    waiting = threading.Thread(target=converted_gguf, args=(file,))
    waiting.start()
    while "waiting for another process" not in capsys.readouterr().err:
        time.sleep(0.01)
    assert left.is_dir(), "it may be the other process's"
    whole.rename(folder)
    os.close(running)
    waiting.join()
    assert left.is_dir() and "converting" not in capsys.readouterr().err, (
        "the other one has made it"
    )
    shutil.rmtree(folder)
    assert converted_gguf(file) == folder
    assert sorted(place.name for place in folder.parent.iterdir()) == sorted(
        [other.name, folder.name]
    )


def test_a_device_that_is_not_there_or_has_no_float64_is_refused():
    with pytest.raises(UsageError, match="device 'mps' cannot be used here: .*; use cpu"):
        load.choose_device("mps")
