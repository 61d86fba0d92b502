"""Run cases through the Python package or through the command, as `onnx_cases` does through the library.

A range that cannot be proven is calibrated on the data, or else assumed, if a check of the data holds it.
Declared ranges are those of the data: of each input in Python, of all together in the command, which takes
one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

if TYPE_CHECKING:
    from megrez import Cluster

Array = np.ndarray[Any, Any]
Outcome = tuple[str, str]
Data = dict[str, Array]
TOLERANCE = 1 / 256
# Protocols that compute in float32, and know no ranges.
FLOATS = ("secfloat", "mizar-float")
# Nothing in the tests of a node takes this long.
SECONDS = 300


class RefusalError(Exception):
    """What the face said instead of running."""


def arrays(folder: Path, what: str) -> Iterator[Array]:
    """The arrays of a folder whose files begin with `what`."""
    for i in count():
        path = folder / f"{what}_{i}.npy"
        if not path.exists():
            return
        yield np.load(path)


def constants(folder: Path) -> dict[str, Path]:
    """The files of inputs that are constants, by name."""
    names = [value.name for value in onnx.load(folder / "model.onnx").graph.input]
    places = {name: folder / f"constant_{i}.npy" for i, name in enumerate(names)}
    return {name: path for name, path in places.items() if path.exists()}


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What megrez refuses, as a refusal."""
    import megrez

    try:
        yield
    except megrez.Error as error:
        raise RefusalError(str(error)) from error


def through_python(cluster: Cluster, folder: Path, data: Data) -> list[Array]:
    """The outputs of `megrez.compile` and `Cluster.run`."""
    import megrez

    ranges = {name: (float(x.min()), float(x.max())) for name, x in data.items()}
    shapes = {name: x.shape for name, x in data.items()}
    fixed = {name: np.load(file) for name, file in constants(folder).items()}
    made: Any = {"shapes": shapes, "input_range": ranges, "constants": fixed}
    path = folder / "model.onnx"
    if cluster.protocol in FLOATS:
        with refusals():
            model = megrez.compile(path, shapes=shapes, constants=fixed, numbers="float32")
            return list(cluster.run(model, data).outputs.values())
    made["activations"] = "fine"

    def compiled() -> megrez.Model:
        with contextlib.suppress(megrez.Error):
            return megrez.compile(path, **made)
        assumed = megrez.compile(path, ranges="assume", **made)
        with contextlib.suppress(megrez.Error):
            measured = assumed.calibrate(data)
            return megrez.compile(path, ranges="calibrated", calibration=measured, **made)
        if not cluster.check(assumed, data).ok:
            raise RefusalError("the data leaves an assumed range")
        return assumed

    with refusals():
        return list(cluster.run(compiled(), data).outputs.values())


def through_command(protocol: str, folder: Path, data: Data) -> list[Array]:
    """The outputs of `megrez infer`."""
    model = folder / "model.onnx"
    names = [output.name for output in onnx.load(model).graph.output]
    low, high = min(float(x.min()) for x in data.values()), max(float(x.max()) for x in data.values())
    given = [f"{name}={folder / f'input_{i}.npy'}" for i, name in enumerate(data)]
    fixed = [f"--constant={name}={path}" for name, path in constants(folder).items()]
    how = [f"--input={entry}" for entry in given] + [f"--input-range={low},{high}", *fixed]
    how += ["--protocol", protocol, "--insecure", "--parties", "thread", "--activations", "fine"]

    def command(*arguments: str) -> None:
        program = [sys.executable, "-m", "megrez", *arguments, "--model", str(model)]
        ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=SECONDS)
        # 1 is the verdict of `megrez check`: the data leaves an assumed range.
        if ended.returncode in (1, 2):
            raise RefusalError(ended.stderr.strip())
        if ended.returncode != 0:
            raise RuntimeError(f"exit code {ended.returncode}: {ended.stderr}")

    def infer(place: Path, *ranges: str) -> list[Array]:
        outputs = [place / f"{i}.npy" for i in range(len(names))]
        written = [f"--output={name}={path}" for name, path in zip(names, outputs, strict=True)]
        command("infer", *how, *written, *ranges)
        return [np.load(path) for path in outputs]

    with tempfile.TemporaryDirectory() as folder_name:
        place = Path(folder_name)
        with contextlib.suppress(RefusalError):
            return infer(place)
        with contextlib.suppress(RefusalError):
            measured = str(place / "calibration.json")
            command("calibrate", *(f"--data={entry}" for entry in given), *fixed, "--output", measured)
            return infer(place, "--range", "calibrated", "--calibration", measured)
        command("check", *how, "--range", "assume")
        return infer(place, "--range", "assume")


def difference(found: list[Array], expected: list[Array]) -> tuple[str, float]:
    """How results differ from what they should be, empty if they do not; and the largest error of a number.

    The error is absolute where the number is below 1, and else relative.
    """
    if len(found) != len(expected):
        return "another number of outputs", 0.0
    largest = 0.0
    for i, (got, exact) in enumerate(zip(found, expected, strict=True)):
        if got.shape != exact.shape:
            return f"output {i} has the shape {got.shape}, not {exact.shape}", 0.0
        want = exact.astype(np.float64)
        if not np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE):
            return f"output {i} is off by {np.abs(got - want).max()}", 0.0
        finite = np.isfinite(want)
        errors = np.abs(got - want)[finite] / np.maximum(1, np.abs(want))[finite]
        largest = max(largest, float(errors.max(initial=0)))
    return "", largest


def case(folder: Path, run: Callable[[Path, Data], list[Array]]) -> Outcome:
    """What happened to a case, and why."""
    names = [value.name for value in onnx.load(folder / "model.onnx").graph.input]
    left = [name for name in names if name not in constants(folder)]
    data = dict(zip(left, arrays(folder, "input"), strict=True))
    if any(x.size == 0 for x in data.values()):
        return "unsupported", "an input without elements has no range"
    try:
        found = run(folder, data)
    except RefusalError as refusal:
        return "unsupported", str(refusal)
    except (ValueError, RuntimeError, subprocess.TimeoutExpired) as failure:
        return "crash", str(failure)
    what, error = difference(found, list(arrays(folder, "output")))
    return ("wrong", what) if what else ("passed", f"{error:.1e}")


def attempt(face: str, protocol: str, folders: Sequence[Path]) -> dict[str, Outcome]:
    """What happened in each folder through `python` or `command`, and why."""
    if face == "command":
        return {str(f): case(f, lambda *given: through_command(protocol, *given)) for f in folders}
    import megrez

    with megrez.local(protocol=protocol, insecure=True, parties="thread") as cluster:
        return {str(f): case(f, lambda *given: through_python(cluster, *given)) for f in folders}
