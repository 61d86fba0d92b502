"""PyTorch's modules as ONNX models. PyTorch is imported here only, when a module is compiled."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from megrez._native import Error

# The newest operator set that PyTorch's older exporter writes whole, and the newer one's.
_OPSET = 17
_NEWER_OPSET = 23


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
    """The module in evaluation mode as an ONNX model with a free batch dimension.

    PyTorch has two exporters, and each has modules that the other lacks: what TorchScript cannot write goes
    through `torch.export`, where that is installed.
    """
    import torch

    names = ["input"] if len(given) == 1 else [f"input{i}" for i in range(len(given))]
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), _plainly(), _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return _by_script(module, given, names)
            except Exception as error:
                first = error
            try:
                return _by_graph(module, given, names)
            except ImportError as error:
                hint = "; pip install onnxscript, and PyTorch can try its newer exporter"
                raise Error(f"PyTorch could not export the module: {first}{hint}") from error
            except Exception as error:
                why = f"{first}\nand by torch.export: {error}"
                raise Error(f"PyTorch could not export the module: {why}") from error
    finally:
        module.train(training)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Switches off fast paths that are one operator, which no exporter knows."""
    import torch

    mha: Any = getattr(torch.backends, "mha", None)
    if mha is None or not hasattr(mha, "set_fastpath_enabled"):
        yield
        return
    fast = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(fast)


def _by_script(module: Any, given: tuple[Any, ...], names: list[str]) -> bytes:
    """Through TorchScript, which needs no package besides `onnx`; old releases have no other way."""
    import torch

    buffer: Any = io.BytesIO()  # which the exporter takes, whatever its types say
    options: dict[str, Any] = {
        "input_names": names,
        "opset_version": _OPSET,
        "dynamic_axes": {name: {0: "batch"} for name in names},
    }
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    torch.onnx.export(module, given, buffer, **options)
    return bytes(buffer.getvalue())


def _by_graph(module: Any, given: tuple[Any, ...], names: list[str]) -> bytes:
    """Through `torch.export`, which takes modules apart into smaller operators."""
    import onnxscript  # noqa: F401  (PyTorch says less clearly that it is missing)
    import torch

    options: dict[str, Any] = {"input_names": names, "dynamo": True, "external_data": False, "verbose": False}
    free: Any = torch.export.Dim.AUTO  # a batch where the module allows it
    options["dynamic_shapes"] = tuple({0: free} for _ in given)
    # The newest set that this release can write is the one with most operators.
    last: Exception | None = None
    for opset in (_NEWER_OPSET, 20, 18):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            try:
                torch.onnx.export(module, given, path, opset_version=opset, **options)
                return path.read_bytes()
            except Exception as error:
                last = error
    raise last or RuntimeError("there is no operator set to write")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporters from telling their progress, and what they could not do."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
