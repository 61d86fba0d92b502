"""Small ONNX models for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    output: str,
    others: tuple[str, ...] | list[str] = (),
    **weights: Any,
) -> bytes:
    """The bytes of a model with these nodes, inputs by shape, an output and others, and constants by name."""
    shapes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    named = [output, *others]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in named]
    constants = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "test", shapes, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    """One node, named like its output."""
    return helper.make_node(op, inputs, [output], name=output, **attributes)


def reference(source: str | bytes, **inputs: Any) -> Any:
    """What onnxruntime computes: the first output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


__all__ = ["model", "node", "onnx", "reference"]
