"""What a machine must have for OpenVINO's passes."""

from __future__ import annotations

import torch

from draftproof.models.openvino import passes


def test_one_thread_is_refused_where_it_would_end_the_process(monkeypatch):
    """OpenVINO 2026.4 divides by zero there."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(passes, "_CAPABILITIES", {"float32": "FP32", "bfloat16": "FP32"})
    assert "needs two threads for bfloat16" in str(passes.lacking("bfloat16"))
    assert passes.lacking("float32") is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(passes.os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert "needs two threads for bfloat16" in str(passes.lacking("bfloat16"))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert passes.lacking("bfloat16") is None
