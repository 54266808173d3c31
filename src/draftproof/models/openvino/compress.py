"""Weights rounded to eight or four bits by NNCF: another model than the one it came from, decoded
as exactly as any."""

from __future__ import annotations

import logging
from typing import Any


def compressed(graph: Any, quantization: str) -> Any:
    """`graph` with its weights in `quantization`: "int8", or "int4" in groups of 64 (narrower
    layers in eight bits)."""
    import nncf

    mode = nncf.CompressWeightsMode
    logging.getLogger("nncf").setLevel(logging.ERROR)
    if quantization == "int8":
        return nncf.compress_weights(graph, mode=mode.INT8_ASYM)
    fallback = nncf.AdvancedCompressionParameters(
        group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
    )
    return nncf.compress_weights(
        graph, mode=mode.INT4_SYM, group_size=64, ratio=1.0, advanced_parameters=fallback
    )
