"""Run machine-learning models on data that nobody in the computation may see.

A model is compiled once, and a cluster of two or three parties runs it on shares of the data:

    import megrez, numpy as np

    model = megrez.compile("examples/digits/lenet.onnx", batch=60)
    images = np.load("examples/digits/test_images.npy")
    with megrez.local(protocol="mizar") as cluster:
        result = cluster.run(model, images)
    print(result.output.argmax(axis=1))
    print(result.report)
"""

from typing import TYPE_CHECKING

from megrez import _native
from megrez._native import (
    BusyError,
    DamagedFileError,
    Error,
    InternalError,
    InvalidError,
    NotPermittedError,
    OutOfRangeError,
    PeerLostError,
    TimedOutError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from megrez._cluster import Cluster, connect, local
    from megrez._disclosure import Disclosure
    from megrez._model import Layer, Model, compile
    from megrez._protocols import Protocol, protocols
    from megrez._results import Check, FloatLayerCheck, Forecast, Generated, LayerCheck, Report, Result
    from megrez._stored import Stored
    from megrez._training import Training
else:
    # The command is this package's too. It needs none of these and not NumPy, whose import would take
    # longer than the rest of a command's start: they are imported when they are first asked for.
    _PLACES = {
        "_cluster": ["Cluster", "connect", "local"],
        "_disclosure": ["Disclosure"],
        "_model": ["Layer", "Model", "compile"],
        "_protocols": ["Protocol", "protocols"],
        "_results": ["Check", "FloatLayerCheck", "Forecast", "Generated", "LayerCheck", "Report", "Result"],
        "_stored": ["Stored"],
        "_training": ["Training"],
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for place, names in _PLACES.items():
            if name in names:
                found = getattr(import_module(f"megrez.{place}"), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module 'megrez' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__version__ = _native.RELEASE

__all__ = [
    "BusyError",
    "Check",
    "Cluster",
    "DamagedFileError",
    "Disclosure",
    "Error",
    "FloatLayerCheck",
    "Forecast",
    "Generated",
    "InternalError",
    "InvalidError",
    "Layer",
    "LayerCheck",
    "Model",
    "NotPermittedError",
    "OutOfRangeError",
    "PeerLostError",
    "Protocol",
    "Report",
    "Result",
    "Stored",
    "TimedOutError",
    "Training",
    "UnsupportedError",
    "__version__",
    "compile",
    "connect",
    "local",
    "protocols",
]
