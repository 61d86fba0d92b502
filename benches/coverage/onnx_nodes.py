"""Run the node tests of ONNX through megrez, and count what passes, is refused, is wrong and crashes.

    pip install "onnx==1.23.2" numpy
    make python
    python benches/coverage/onnx_nodes.py --face python --floats mizar-float --write docs/coverage.md

Every test is a model of one operator, or of its decomposition into others, with data for its inputs and
outputs. Tests on floating-point numbers count: all inputs and outputs are arrays of real numbers, integers
or booleans, at least one input is of real numbers, and the operator's domain is no preview.

A test is tried with all inputs secret, and where that is refused again with only the first input secret and
the others constants of the model, as exporters write them. `passed` needs every number of every output
within 2^-8 absolute plus 2^-8 relative of the expected one. With `--floats` the tests run again, under a
protocol of float32. This ends with 1 if any result is wrong or any test crashes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import sys
import tempfile
from dataclasses import dataclass, field
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


def versions(operator: str) -> str:
    """The operator sets that have changed an operator; those of `ai.onnx.ml` where only it has it."""
    every = onnx.defs.get_all_schemas_with_history()
    sets = {(schema.domain, schema.since_version) for schema in every if schema.name == operator}
    domain = min((domain for domain, _ in sets), default="")
    return ", ".join(str(version) for of, version in sorted(sets) if of == domain)


@dataclass
class Outcomes:
    """What became of the tests of an operator."""

    count: collections.Counter[str] = field(default_factory=collections.Counter)
    error: float = 0.0

    def add(self, what: str, why: str) -> None:
        """One more test; of one that passed, `why` may be its error."""
        self.count[what] += 1
        with contextlib.suppress(ValueError):
            self.error = max(self.error, float(why) if what.startswith("passed") else 0.0)

    def cells(self) -> list[str]:
        """How many passed, how many did not, and the largest error."""
        passed = self.count["passed"] + self.count["passed with constants"]
        error = f"{self.error:.0e}" if self.error else "0" if passed else ""
        return [str(passed), str(sum(self.count.values()) - passed), error]


def by_operator(tests: list[Case], found: dict[str, Outcome]) -> dict[str, Outcomes]:
    """What became of the tests of each operator."""
    operators: dict[str, Outcomes] = collections.defaultdict(Outcomes)
    for name, model, _, _ in tests:
        nodes = {node.op_type for node in model.graph.node}
        operators[nodes.pop() if len(nodes) == 1 else "(several)"].add(*found[name])
    return operators


def counts_of(found: dict[str, Outcome]) -> collections.Counter[str]:
    """How many tests went how."""
    return collections.Counter(what for what, _ in found.values())


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def table(tests: list[Case], found: dict[str, Outcome], floats: dict[str, Outcome] | None) -> str:
    """The figures in Markdown."""
    runs = [found] if floats is None else [found, floats]
    outcomes = {
        "passed": "passed, all inputs secret",
        "passed with constants": "passed, the first input secret and the others constants",
        "unsupported": "refused",
        "wrong": "wrong",
        "crash": "crashed",
    }
    names = ["fixed point", "float32"][: len(runs)]
    lines = [f"onnx {onnx.__version__}: {len(found)} tests on floating-point numbers.", ""]
    lines += [row("outcome", *names), row(*["---"] * (1 + len(runs)))]
    lines += [row(words, *(counts_of(run)[what] for run in runs)) for what, words in outcomes.items()]
    columns = [f"{name}: {what}" for name in names for what in ("passed", "refused", "largest error")]
    lines += ["", row("operator", "versions", *columns), row(*["---"] * (2 + len(columns)))]
    operators = [by_operator(tests, run) for run in runs]
    for name in sorted(operators[0]):
        lines.append(row(name, versions(name), *(cell for run in operators for cell in run[name].cells())))
    return "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def main() -> int:
    """Run all tests and print how many went how."""
    parser = options(__doc__)
    parser.add_argument("--verbose", action="store_true", help="print why tests are refused, too")
    parser.add_argument("--floats", metavar="PROTOCOL", help="run the tests again under this one, in float32")
    arguments = parser.parse_args()
    tests = cases(arguments.only)
    found, floats = results(arguments, tests), None
    if arguments.floats:
        arguments.protocol = arguments.floats
        floats = results(arguments, tests)
    for run in filter(None, (found, floats)):
        for name, (what, why) in run.items():
            if what in ("wrong", "crash") or (arguments.verbose and what == "unsupported"):
                print(f"{what}: {name}: {why}", flush=True)
    bad = sum(counts_of(run)[what] for run in filter(None, (found, floats)) for what in ("wrong", "crash"))
    return finish(arguments, MARKER, table(tests, found, floats), bad=bool(bad))


if __name__ == "__main__":
    sys.exit(main())
