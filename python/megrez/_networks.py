"""Perceptrons as ONNX models, with weights to begin training with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from megrez._native import Error


def perceptron(widths: Sequence[int], random: np.random.RandomState | None) -> bytes:
    """Layers `fc1`, `fc2`, ... from `widths[0]` features to `widths[-1]` outputs, a ReLU between each two.

    Weights are uniform within ±√(6 / (inputs + outputs)) and biases 0; without `random` all are 0, from
    where one layer learns as well as from anywhere.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise Error("what writes models is missing: pip install 'megrez[sklearn]'") from error
    nodes: list[Any] = []
    constants: list[Any] = []
    of = "x"
    for number, (inputs, outputs) in enumerate(pairwise(widths), 1):
        name = f"fc{number}"
        bound = np.sqrt(6 / (inputs + outputs))
        shape = (outputs, inputs)
        weights = np.zeros(shape) if random is None else random.uniform(-bound, bound, shape)
        for what, values in (("weight", weights), ("bias", np.zeros(outputs))):
            constants.append(numpy_helper.from_array(values.astype(np.float32), f"{name}.{what}"))
        last = number == len(widths) - 1
        to = "y" if last else name
        nodes.append(
            helper.make_node("Gemm", [of, f"{name}.weight", f"{name}.bias"], [to], name=name, transB=1)
        )
        if not last:
            of = f"relu{number}"
            nodes.append(helper.make_node("Relu", [to], [of], name=of))
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", widths[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", widths[-1]])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
