"""Run the node tests of ONNX through `megrez infer`, and count what is right, refused, wrong and broken.

    pip install "onnx==1.17.0" numpy     # a release whose wheel holds the tests
    python scripts/onnx_nodes.py --protocol clear --insecure
    python scripts/onnx_nodes.py --protocol mizar --freeze

Every test is a model of one operator with data for its inputs and outputs. A refusal is an error with exit
code 2; wrong is a number, a shape or an output that differs; broken is a panic, another exit code or a
time-out. Neither may ever be: then this ends with 1.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

TESTS = Path(onnx.__file__).parent / "backend/test/data/node"
# Fixed point of 16 fraction bits, and splines for what is smooth.
ABSOLUTE, RELATIVE = 0.01, 0.01
SECONDS = 120

Array = np.ndarray[Any, Any]


def tensor(path: Path) -> Array | None:
    """The array in a file, or None where it holds a sequence or nothing, or a type that NumPy lacks."""
    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(path.read_bytes())
        array = numpy_helper.to_array(proto)
    except Exception:  # every release of onnx fails in its own way on what is no tensor
        return None
    return array if array.dtype.isbuiltin and array.dtype.kind in "fiub" else None


def freeze(model: onnx.ModelProto, arrays: dict[str, Array]) -> None:
    """Make these inputs of the model weights."""
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        model.graph.input.remove(next(value for value in model.graph.input if value.name == name))


def difference(got: Array, want: Array | None) -> str | None:
    """How an output differs from what it should be."""
    if want is None:
        return "is no array of numbers, and there is one"
    if got.shape != want.shape:
        return f"has the shape {got.shape}, not {want.shape}"
    far = ~np.isclose(got, want.astype(np.float64), atol=ABSOLUTE, rtol=RELATIVE, equal_nan=True)
    for place in np.argwhere(far):
        at = tuple(int(index) for index in place)
        return f"is {got[at]} at {list(at)}, not {want[at]}"
    return None


def run(test: Path, arguments: argparse.Namespace) -> tuple[str, str]:
    """What happened to a test, and why."""
    model = onnx.load(test / "model.onnx", load_external_data=False)
    weights = {weight.name for weight in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    data = test / "test_data_set_0"
    given = {name: tensor(data / f"input_{i}.pb") for i, name in enumerate(names)}
    arrays = {name: array for name, array in given.items() if array is not None}
    if len(arrays) < len(names):
        return "skipped", "inputs that are no arrays of numbers"
    if arguments.freeze:
        freeze(model, {name: arrays.pop(name) for name in names[1:]})
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/model.onnx")
        command = [arguments.megrez, "infer", "--parties", "thread", "--model", f"{folder}/model.onnx"]
        command += ["--protocol", arguments.protocol, *(["--insecure"] if arguments.insecure else [])]
        largest = 1.0
        for i, (name, array) in enumerate(arrays.items()):
            np.save(f"{folder}/input{i}.npy", array)
            command += ["--input", f"{name}={folder}/input{i}.npy"]
            if array.size and np.isfinite(array).all():
                largest = max(largest, float(np.abs(array.astype(np.float64)).max()))
        for i, value in enumerate(model.graph.output):
            command += ["--output", f"{value.name}={folder}/output{i}.npy"]
        if arguments.protocol != "secfloat":
            command += ["--input-range", repr(math.ceil(largest))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "broken", f"took more than {SECONDS} s"
        if done.returncode not in (0, 2) or "panicked" in done.stderr:
            return "broken", f"exit code {done.returncode}: {done.stderr.strip()}"
        if done.returncode == 2:
            return "refused", done.stderr.strip()
        outputs = [np.load(f"{folder}/output{i}.npy") for i in range(len(model.graph.output))]
    differences = (difference(got, tensor(data / f"output_{i}.pb")) for i, got in enumerate(outputs))
    wrong = [f"output {i} {what}" for i, what in enumerate(differences) if what]
    return ("wrong", "; ".join(wrong)) if wrong else ("right", "")


def main() -> int:
    """Run all tests and print how many went how."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megrez", default="target/release/megrez", help="the command")
    parser.add_argument("--protocol", default="clear")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--freeze", action="store_true", help="make weights of all inputs but the first")
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print why tests were refused, too")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    tests = sorted(path for path in TESTS.glob("test_*") if arguments.only in path.name)
    if not tests:
        sys.exit(f"no tests in {TESTS}: install a release of onnx whose wheel holds them, such as 1.17.0")
    count: collections.Counter[str] = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for test, (what, why) in zip(tests, pool.map(lambda test: run(test, arguments), tests), strict=True):
            count[what] += 1
            if what in ("wrong", "broken") or (arguments.verbose and what == "refused"):
                print(f"{what}: {test.name}: {why}", flush=True)
    print(", ".join(f"{count[what]} {what}" for what in ("right", "refused", "wrong", "broken", "skipped")))
    return 1 if count["wrong"] or count["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
