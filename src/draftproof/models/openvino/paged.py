"""The graph of `graph.py` with attention over a paged cache in the place of its joints.

OpenVINO's PagedAttention writes the keys and values of every token of a pass into pages and lets
every token attend to its own sequence, wherever its pages lie. The pages are inputs that this
package owns: nothing is copied in or out, a rollback is a shorter length, and sequences, or the
ways down a tree, that begin alike may name the same pages. The operation cannot be written to a
file, which is why it is put in when a graph is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from draftproof.models.openvino.graph import Attention

PAGE = 32
"""Tokens of a page: the only size that the CPU's operation knows."""

SEQUENCES = ("past_lens", "begins", "pages", "page_begins")


def put_attention(graph: Any, layers: Sequence[Attention], dtype: Any) -> None:
    """Replace every joint of `graph` in place. dtype: the `openvino.Type` of the cache.

    New inputs: `past_lens` [s], tokens each of s sequences has read; `begins` [s + 1], where its
    tokens begin in the pass; `pages`, the pages of all sequences in turn; `page_begins` [s + 1];
    `longest` [], the greatest length after the pass; and `keys.i` and `values.i` [pages, heads,
    PAGE, width] of every layer."""
    import openvino
    from openvino.op import _PagedAttentionExtension

    added: list[Any] = []

    def parameter(name: str, shape: list[int], kind: Any = openvino.Type.i32) -> Any:
        found = openvino.opset13.parameter(openvino.PartialShape(shape), kind, name=name)
        found.output(0).get_tensor().set_names({name})
        added.append(found)
        return found.output(0)

    sequences = [parameter(name, [-1]) for name in SEQUENCES]
    longest = parameter("longest", [])
    joints = {node.get_friendly_name(): node for node in graph.get_ordered_ops()}
    for number, layer in enumerate(layers):
        joint = joints[f"attention.{number}"]
        caches = [
            parameter(f"keys.{number}", [-1, layer.heads, PAGE, layer.key_width], dtype),
            parameter(f"values.{number}", [-1, layer.heads, PAGE, layer.value_width], dtype),
        ]
        states = [joint.input_value(index) for index in range(3)]
        attention = _PagedAttentionExtension(
            [*states, *caches, *sequences, *_settings(layer, longest)]
        )
        facts = attention.get_rt_info()
        facts["num_k_heads"] = facts["num_v_heads"] = layer.heads
        facts["k_head_size"], facts["v_head_size"] = layer.key_width, layer.value_width
        for cut in [reader.get_node() for reader in joint.output(0).get_target_inputs()]:
            for reader in list(cut.output(0).get_target_inputs()):
                reader.replace_source_output(attention.output(0))
    graph.add_parameters(added)
    graph.validate_nodes_and_infer_types()


def _settings(layer: Attention, longest: Any) -> list[Any]:
    """The inputs after the sequences, in the operation's order: what a layer's attention is; empty:
    what it is not."""
    from openvino import opset13

    def constant(kind: Any, shape: Iterable[int], value: float = 0) -> Any:
        return opset13.constant(np.full(tuple(shape), value, kind)).output(0)

    whole, real = np.int32, np.float32
    return [
        constant(real, (), layer.scale),
        constant(whole, (), layer.window),
        constant(real, (0,)),  # slopes of a bias by distance
        longest,
        constant(whole, (0,)),  # aggregation of scores
        constant(whole, (0,)),  # rotation of pages: which, by how much, the table of it
        constant(whole, (0, 1)),
        constant(real, (0,)),
        constant(real, (0,)),  # sparse attention: threshold, block, stride
        constant(whole, (), 128),
        constant(whole, (), 16),
        constant(real, (0, 0, 0, 0)),  # sinks
        constant(whole, (), 0),  # eviction: start, sizes, sets and where they begin
        constant(whole, (0,)),
        constant(whole, (0,)),
        constant(whole, (0,)),
        constant(whole, (0,)),  # kinds of tokens
        constant(np.uint8, (0,)),  # masks among the tokens of a pass, and where they begin
        constant(whole, (0,)),
    ]


def keep_outputs(graph: Any, names: Sequence[str]) -> None:
    """Leave only these outputs, in this order."""
    outputs = {name: output for output in graph.outputs for name in output.get_names()}
    for name, output in outputs.items():
        if name not in names:
            graph.remove_result(output.get_node())
