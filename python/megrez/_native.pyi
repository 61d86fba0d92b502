"""The native module; its documentation is in crates/megrez-py."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.float32]
_Path = str | PathLike[str]
_Ran = tuple[list[tuple[str, _Array]], str, str]

RELEASE: str

class Error(RuntimeError): ...

class _Options(TypedDict):
    batch: int
    shapes: dict[str, list[int]]
    ring: int
    frac: int | None
    input_range: tuple[float, float]
    input_ranges: dict[str, tuple[float, float]]
    assume: bool
    list: str
    widths: Sequence[int] | None
    bits: int | None
    cut: int
    fit: bool
    calibration: str | None
    form: str
    protocol: str
    net: str

class Model:
    @staticmethod
    def compile(onnx: bytes | _Path, options: _Options) -> Model: ...
    @property
    def batch(self) -> int: ...
    def describe(self) -> str: ...
    def plain(self, data: Sequence[_Array]) -> list[tuple[str, _Array]]: ...
    def calibrate(self, data: Sequence[_Array], margin: float) -> str: ...

class Cluster:
    @staticmethod
    def processes(
        protocol: str, net: str, insecure: bool, path: _Path, arguments: Sequence[str]
    ) -> Cluster: ...
    @staticmethod
    def threads(protocol: str, net: str, insecure: bool) -> Cluster: ...
    @staticmethod
    def connect(
        config: _Path, certs: _Path, client: str, protocol: str, net: str, insecure: bool
    ) -> Cluster: ...
    @property
    def protocol(self) -> str: ...
    @property
    def client(self) -> str: ...
    def info(self) -> str: ...
    def run(self, model: Model, data: Sequence[_Array], progress: Callable[[int], Any] | None) -> _Ran: ...
    def run_stored(
        self, name: str, batch: int, data: Sequence[_Array], progress: Callable[[int], Any] | None
    ) -> _Ran: ...
    def stored_inputs(self, name: str, batch: int) -> list[str]: ...
    def upload(self, model: Model, name: str, allow: Sequence[str], batches: Sequence[int]) -> None: ...
    def check(self, model: Model, data: Sequence[_Array]) -> tuple[str, str]: ...
    def close(self) -> None: ...

def protocols() -> str: ...
def serve_embedded() -> None: ...
def command(argv: Sequence[str], path: _Path, arguments: Sequence[str]) -> int: ...
