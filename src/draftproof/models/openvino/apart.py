"""Products of an MLP kept apart, where the compiler's joint operation for them cannot run.

On a CPU with AMX, OpenVINO 2026.4 joins the three products of an MLP in bf16 into one operation,
which divides by zero when it is to run on a single thread: the process ends, and nothing can be
caught. A factor of one that the compiler does not know keeps them apart and changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np

ONE = "one"


def keep_apart(graph: Any) -> dict[str, Any]:
    """Put the input `one` [] as a factor on every product of two matrices' results that goes into a
    third, in place; the value to feed it with, where there is one."""
    import openvino
    from openvino import opset13

    one = opset13.parameter(openvino.PartialShape([]), openvino.Type.f32, name=ONE)
    one.output(0).get_tensor().set_names({ONE})
    joined = False
    for node in graph.get_ordered_ops():
        if node.get_type_name() == "MatMul" and _is_product(node.input_value(0).get_node()):
            product = opset13.multiply(node.input_value(0), one)
            node.input(0).replace_source_output(product.output(0))
            joined = True
    if not joined:
        return {}
    graph.add_parameters([one])
    graph.validate_nodes_and_infer_types()
    return {ONE: np.array(1, np.float32)}


def _is_product(node: Any) -> bool:
    """Whether `node` multiplies by what a matrix gave."""
    if node.get_type_name() != "Multiply":
        return False
    return any(_is_of_matrix(value.get_node()) for value in node.input_values())


def _is_of_matrix(node: Any) -> bool:
    kinds = [value.get_node().get_type_name() for value in node.input_values()]
    biased = node.get_type_name() == "Add" and set(kinds) == {"MatMul", "Constant"}
    return biased or node.get_type_name() == "MatMul"
