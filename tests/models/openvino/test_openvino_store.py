"""Conversions are kept whole or not at all, and read only when they are what was written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections import namedtuple

import pytest
import torch

from draftproof.errors import MissingExtraError, UnsupportedModelError, UsageError
from draftproof.models.engine import load_engine
from draftproof.models.openvino import load as loading
from draftproof.models.openvino import store
from draftproof.models.openvino.load import load_openvino
from draftproof.models.protocol import Step, extend
from tiny import fresh_logits, gpt2, llama, word_tokenizer


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    return store.conversions()


@pytest.fixture
def folder(tmp_path):
    llama().save_pretrained(tmp_path / "model")
    word_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def traces(monkeypatch):
    """How often something was converted."""
    made = []
    make = loading._make

    def counting(*given):
        made.append(given)
        return make(*given)

    monkeypatch.setattr(loading, "_make", counting)
    return made


def conversion_of(kept):
    (found,) = [entry for entry in kept.iterdir() if not entry.name.startswith(".")]
    return found


def test_a_model_is_converted_once_and_says_what_it_takes(kept, folder, traces, capsys):
    model = load_openvino(folder, dtype="float32")
    told = capsys.readouterr().err
    assert "of memory" in told and "GiB in" in told and "is converted" in told
    expected = fresh_logits(llama(), [1, 2, 3])
    torch.testing.assert_close(
        extend(Step(model.open(), [1, 2, 3])).logits, expected, rtol=0, atol=5e-4
    )
    assert (
        model.rows == "identical" and model.tokenizer is not None and model.dtype == torch.float32
    )
    again = load_openvino(folder, dtype="float32")
    assert len(traces) == 1 and capsys.readouterr().err == ""
    assert torch.equal(
        extend(Step(model.open(), [5, 6])).logits, extend(Step(again.open(), [5, 6])).logits
    )


def test_other_weights_are_another_conversion(kept, folder, traces):
    load_openvino(folder, check=False)
    llama(seed=1).save_pretrained(folder)
    other = load_openvino(folder, dtype="float32", check=False)
    assert len(traces) == 2
    expected = fresh_logits(llama(seed=1), [1, 2, 3])
    torch.testing.assert_close(
        extend(Step(other.open(), [1, 2, 3])).logits, expected, rtol=0, atol=5e-4
    )


@pytest.mark.parametrize("damage", ["weights", "description", "a file is gone", "older format"])
def test_a_damaged_or_older_conversion_is_made_again(
    kept, folder, traces, damage, capsys, monkeypatch
):
    load_openvino(folder, check=False)
    place = conversion_of(kept)
    if damage == "weights":
        content = bytearray((place / "graph.bin").read_bytes())
        content[100] ^= 1
        (place / "graph.bin").write_bytes(content)
    elif damage == "description":
        (place / "about.json").write_text("{")
    elif damage == "a file is gone":
        (place / "graph.xml").unlink()
    else:
        monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    capsys.readouterr()
    load_openvino(folder, check=False)
    assert len(traces) == 2
    assert ("is damaged and" in capsys.readouterr().err) == (damage != "older format")


@pytest.mark.parametrize("older", ["format", "versions", "newer versions", "other weights"])
def test_what_older_versions_made_is_removed(kept, folder, capsys, older):
    load_openvino(folder, check=False)
    place = conversion_of(kept)
    about = json.loads((place / "about.json").read_text())
    if older == "format":
        about = {key: about[key] for key in ("layers", "sha256")} | {"format": 1}
    elif older == "versions":
        about["versions"]["openvino"] = "2026.3.9"
    elif older == "newer versions":
        about["versions"]["openvino"] = "2126.4.1"
    else:
        about["checkpoint"] = "0" * 64
    (place / "about.json").write_text(json.dumps(about))
    place.rename(kept / "another")
    capsys.readouterr()
    load_openvino(folder, check=False)
    gone = older in ("format", "versions")
    assert (kept / "another").exists() != gone and place.exists()
    assert ("an older conversion is removed" in capsys.readouterr().err) == gone


def test_an_interrupted_conversion_leaves_nothing(kept, folder, monkeypatch):
    write = store._write

    def interrupted(*given):
        write(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_openvino(folder, check=False)
    assert list(kept.iterdir()) == []


def test_what_a_killed_process_left_is_removed(kept, folder):
    place = store.Source(store.fingerprint(folder), None).place
    left = kept / f".{place.name}-killed"
    left.mkdir(parents=True)
    (left / "graph.bin").write_bytes(b"half")
    load_openvino(folder, check=False)
    assert [entry.name for entry in kept.iterdir()] == [place.name]


@pytest.mark.parametrize("what", ["disk", "memory"])
def test_no_room_is_said_before_anything_is_made(kept, folder, traces, monkeypatch, what):
    if what == "disk":
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 0))
    else:
        monkeypatch.setattr(store, "free_memory", lambda: 1000)
    with pytest.raises(UsageError, match="0.0 GiB are free"):
        load_openvino(folder)
    assert traces == [] and list(kept.iterdir()) == []


def test_two_processes_make_one_conversion(kept, folder, tmp_path):
    script = textwrap.dedent(
        f"""
        import sys
        from draftproof.models.openvino.load import load_openvino
        from draftproof.models.protocol import Step, extend
        model = load_openvino({str(folder)!r}, dtype="float32", check=False)
        print(extend(Step(model.open(), [1, 2, 3])).logits.sum().item())
        """
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in "ab"
    ]
    results = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert sum("is converted" in err for _, err in results) == 1
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_rounded_weights_are_another_model_and_say_so(kept, tmp_path, quantization):
    module = llama(hidden_size=64, intermediate_size=128)
    module.save_pretrained(tmp_path / "model")
    model = load_openvino(tmp_path / "model", dtype="float32", quantization=quantization)
    assert (
        model.quantization == quantization
        and quantization in model.name
        and model.rows == "identical"
    )
    tokens = [3, 1, 4, 1, 5]
    found, whole = extend(Step(model.open(), tokens)).logits, fresh_logits(module, tokens)
    error = float((found - whole).square().mean().sqrt() / whole.std())
    assert 1e-4 < error < {"int8": 0.1, "int4": 0.8}[quantization]


def test_what_cannot_be_carried_over_is_refused_by_name(kept, tmp_path):
    from transformers import MambaConfig, MambaForCausalLM

    mamba = MambaForCausalLM(
        MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2)
    )
    mamba.save_pretrained(tmp_path / "mamba")
    with pytest.raises(UnsupportedModelError, match="layer 0 of MambaConfig is recurrent state"):
        load_openvino(tmp_path / "mamba")
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    llama(rope_parameters=rope).save_pretrained(tmp_path / "rope")
    with pytest.raises(UnsupportedModelError, match="by the length of the text"):
        load_openvino(tmp_path / "rope")
    assert not kept.exists() or list(kept.iterdir()) == []


def test_a_graph_that_gives_other_logits_is_not_kept(kept, folder, monkeypatch):
    from draftproof.models.openvino import graph

    trace = graph.trace

    def wrong(module, kinds):
        traced, layers = trace(module, kinds)
        return traced, [graph.Attention(**{**layer.as_dict(), "scale": 3.0}) for layer in layers]

    monkeypatch.setattr(graph, "trace", wrong)
    with pytest.raises(UnsupportedModelError, match="other logits"):
        load_openvino(folder)
    assert list(kept.iterdir()) == []


def test_the_engine_is_chosen_or_refused(kept, folder, monkeypatch, capsys):
    from draftproof.models import engine

    assert load_engine(folder, engine="openvino").engine == "openvino"
    assert load_engine(folder, engine="torch").engine == "torch"
    monkeypatch.setenv(engine.VARIABLE, "torch")
    assert load_engine(folder).engine == "torch"
    monkeypatch.setenv(engine.VARIABLE, "onnx")
    with pytest.raises(UsageError, match="DRAFTPROOF_ENGINE is 'onnx'; use auto, torch, openvino"):
        load_engine(folder)
    monkeypatch.delenv(engine.VARIABLE)
    assert load_engine(folder).engine == "openvino"
    assert load_engine(folder, dtype="float64").engine == "torch"
    monkeypatch.setattr(engine, "find_spec", lambda _: None)
    assert load_engine(folder).engine == "torch"


def test_auto_takes_torch_with_a_note_where_a_model_does_not_convert(
    kept, tmp_path, monkeypatch, capsys
):
    from draftproof.models import engine

    gpt2().save_pretrained(tmp_path / "model")
    monkeypatch.delenv(engine.VARIABLE)

    def refuse(*_, **__):
        raise UnsupportedModelError("layer 0 of GPT2Config is something else")

    monkeypatch.setattr(loading, "load_openvino", refuse)
    assert load_engine(tmp_path / "model").engine == "torch"
    assert "layer 0 of GPT2Config" in capsys.readouterr().err
    with pytest.raises(UnsupportedModelError, match="layer 0"):
        load_engine(tmp_path / "model", engine="openvino")
    monkeypatch.setattr(loading, "load_openvino", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a fault of ours is not hidden behind torch
        load_engine(tmp_path / "model")


def test_auto_takes_torch_where_there_is_no_room(kept, folder, traces, monkeypatch, capsys):
    from draftproof.models import engine

    monkeypatch.delenv(engine.VARIABLE)
    monkeypatch.setattr(store, "free_memory", lambda: 1000)
    assert load_engine(folder).engine == "torch" and traces == []
    assert "takes about 1.0 GiB of memory, and 0.0 GiB are free" in capsys.readouterr().err


BAD = [
    ({"engine": "onnx"}, "engine 'onnx' is not known; use auto, torch, openvino"),
    ({"quantization": "int2"}, "quantization 'int2' is not known; use int8 or int4"),
    ({"engine": "torch", "quantization": "int8"}, "engine is 'torch'"),
    ({"engine": "openvino", "dtype": "float64"}, "not in float64"),
    ({"engine": "openvino", "device_map": "auto"}, "device_map is an option of engine 'torch'"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_choices_are_refused_in_a_sentence(kept, folder, given, message):
    with pytest.raises(UsageError, match=message):
        load_engine(folder, **given)


def test_without_the_extra_the_install_line_is_said(kept, folder, monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[openvino\]'"):
        load_engine(folder, engine="openvino")


def test_the_description_is_plain_json(kept, folder):
    load_openvino(folder, check=False)
    about = json.loads((conversion_of(kept) / "about.json").read_text())
    assert about["layers"][0] == {
        "heads": 2,
        "key_width": 8,
        "value_width": 8,
        "scale": 8**-0.5,
        "window": 0,
    }
