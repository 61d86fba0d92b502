"""PyTorch's modules as ONNX models. PyTorch is imported here only, when a module is compiled."""

from __future__ import annotations

import inspect
import io
import warnings
from typing import Any

from megrez._native import Error


def examples(module: Any, example_input: Any) -> tuple[Any, ...]:
    """The example inputs of a module, checked."""
    try:
        import torch
    except ImportError as error:
        raise Error(
            f"a model is a path, bytes, or a torch.nn.Module, not {type(module).__name__}; "
            "PyTorch is not installed"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise Error(f"a model is a path, bytes, or a torch.nn.Module, not {type(module).__name__}")
    given = example_input if isinstance(example_input, tuple) else (example_input,)
    if not given or not all(isinstance(t, torch.Tensor) and t.dim() > 0 for t in given):
        raise Error(
            "a module says no shapes: give example_input=, such as torch.zeros(1, 3, 32, 32), or a tuple"
        )
    return given


def export(module: Any, given: tuple[Any, ...]) -> bytes:
    """The module in evaluation mode as an ONNX model with a free batch dimension."""
    import torch

    names = ["input"] if len(given) == 1 else [f"input{i}" for i in range(len(given))]
    buffer: Any = io.BytesIO()  # which the exporter takes, whatever its types say
    options: dict[str, Any] = {
        "input_names": names,
        "opset_version": 17,
        "dynamic_axes": {name: {0: "batch"} for name in names},
    }
    # The exporter of TorchScript needs no package besides `onnx`; old releases of PyTorch have no other.
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, given, buffer, **options)
    except Exception as error:
        raise Error(f"PyTorch could not export the module: {error}") from error
    finally:
        module.train(training)
    return bytes(buffer.getvalue())
