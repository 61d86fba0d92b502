"""Run the node tests of ONNX through megrez, and count what passes, is refused, is wrong and crashes.

    pip install "onnx==1.23.2" numpy
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/onnx_nodes.py --write docs/coverage.md

Every test is a model of one operator, or of its decomposition into others, with data for its inputs and
outputs. Tests on floating-point numbers count: all inputs and outputs are arrays of real numbers, integers
or booleans, at least one input is of real numbers, and the operator's domain is no preview.

A test is tried with all inputs secret, and where that is refused again with only the first input secret and
the others constants of the model, as exporters write them. `passed` needs every number of every output
within 2^-8 absolute plus 2^-8 relative of the expected one. This ends with 1 if any result is wrong or any
test crashes.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from faces import Array, Outcome
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from runs import attempt, finish, options, save

FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
WHOLE = {getattr(onnx.TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)}
KINDS = FLOATS | WHOLE | {onnx.TensorProto.BOOL}
MARKER = "<!-- table -->"

Case = tuple[str, onnx.ModelProto, list[Array], list[Array]]


def load_array(path: Path) -> Array:
    """The array in a file of the tests."""
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def element_types(values: Any) -> list[int]:
    """The element types of a graph's inputs or outputs; 0 for what is no tensor."""
    return [v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else 0 for v in values]


def counts(model: onnx.ModelProto, real: str = "input") -> bool:
    """Whether a test is one on floating-point numbers: an `input` or an `output` is real."""
    inputs, outputs = element_types(model.graph.input), element_types(model.graph.output)
    sides = {"input": inputs, "output": outputs}
    preview = any("preview" in node.domain for node in model.graph.node)
    return set(inputs + outputs) <= KINDS and bool(FLOATS & set(sides[real])) and not preview


def cases(only: str) -> list[Case]:
    """All tests on floating-point numbers, by name."""
    found = []
    for test in load_model_tests(kind="node"):
        folder = Path(test.model_dir) if test.model_dir else None
        model = onnx.load(folder / "model.onnx") if folder else test.model
        if model is None or only not in test.name or not counts(model):
            continue
        if folder:
            data = folder / "test_data_set_0"
            inputs = [load_array(data / f"input_{i}.pb") for i in range(len(model.graph.input))]
            outputs = [load_array(data / f"output_{i}.pb") for i in range(len(model.graph.output))]
        else:
            given, expected = (test.data_sets or [([], [])])[0]
            inputs, outputs = [np.asarray(x) for x in given], [np.asarray(x) for x in expected]
        # Newer releases hold some data in messages of their own.
        if all(array.dtype.kind in "fiub" for array in inputs + outputs):
            found.append((test.name, model, inputs, outputs))
    return sorted(found, key=lambda case: case[0])


def write(folder: Path, case: Case, *, frozen: bool) -> None:
    """One attempt at a test as a folder; `frozen` makes constants of all inputs but the first."""
    _, original, inputs, outputs = case
    model = onnx.ModelProto()
    model.CopyFrom(original)
    secret = list(inputs)
    if frozen:
        for value, array in list(zip(original.graph.input, inputs, strict=True))[1:]:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(next(v for v in model.graph.input if v.name == value.name))
        secret = secret[:1]
    save(folder, model.SerializeToString(), secret, outputs)


def results(arguments: argparse.Namespace, tests: list[Case]) -> dict[str, Outcome]:
    """What happened to each test by name, and why: with all inputs secret, or else with the first one."""
    with tempfile.TemporaryDirectory() as place:
        secret, frozen = Path(place) / "secret", Path(place) / "frozen"
        for case in tests:
            write(secret / case[0], case, frozen=False)
        found = {Path(f).name: r for f, r in attempt(arguments, sorted(secret.iterdir())).items()}
        refused = [case for case in tests if found[case[0]][0] == "unsupported" and len(case[2]) > 1]
        for case in refused:
            write(frozen / case[0], case, frozen=True)
        again = attempt(arguments, sorted(frozen.iterdir())) if refused else {}
        for folder, (what, why) in again.items():
            found[Path(folder).name] = ("passed with constants" if what == "passed" else what, why)
    return found


def table(count: collections.Counter[str], operators: dict[str, collections.Counter[str]]) -> str:
    """The figures in Markdown."""
    total = sum(count.values())
    lines = [
        f"onnx {onnx.__version__}: {total} tests on floating-point numbers.",
        "",
        "| outcome | tests |",
        "| --- | --- |",
        f"| passed, all inputs secret | {count['passed']} |",
        f"| passed, the first input secret and the others constants | {count['passed with constants']} |",
        f"| refused | {count['unsupported']} |",
        f"| wrong | {count['wrong']} |",
        f"| crashed | {count['crash']} |",
        "",
        "| operator | passed | refused |",
        "| --- | --- | --- |",
    ]
    for operator, outcomes in sorted(operators.items()):
        passed = outcomes["passed"] + outcomes["passed with constants"]
        lines.append(f"| {operator} | {passed} | {sum(outcomes.values()) - passed} |")
    return "\n".join(lines)


def main() -> int:
    """Run all tests and print how many went how."""
    parser = options(__doc__)
    parser.add_argument("--verbose", action="store_true", help="print why tests are refused, too")
    arguments = parser.parse_args()
    tests = cases(arguments.only)
    count: collections.Counter[str] = collections.Counter()
    operators: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    found = results(arguments, tests)
    for name, model, _, _ in tests:
        what, why = found[name]
        nodes = {node.op_type for node in model.graph.node}
        operator = nodes.pop() if len(nodes) == 1 else "(several)"
        count[what] += 1
        operators[operator][what] += 1
        if what in ("wrong", "crash") or (arguments.verbose and what == "unsupported"):
            print(f"{what}: {name}: {why}", flush=True)
    text = table(count, operators)
    return finish(arguments, MARKER, text, bad=bool(count["wrong"] or count["crash"]))


if __name__ == "__main__":
    sys.exit(main())
