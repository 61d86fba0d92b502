"""Run the models that onnx brings through megrez: layers of PyTorch, light classifiers, simple models.

    pip install "onnx==1.23.2" numpy
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/onnx_models.py --write docs/coverage.md

`pytorch-converted` and `pytorch-operator` are layers as PyTorch exported them in its first years, with
operator set 6; `light` are nine image classifiers whose weights the file makes by ConstantOfShape; `simple`
are small models, of which those on floating-point numbers count. What passes is what passes in
`onnx_nodes.py`. This ends with 1 if any result is wrong or any test crashes.
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import numpy as np
import onnx
from faces import Array
from onnx.backend.test.loader import load_model_tests
from onnx_nodes import Case, counts, load_array, results
from runs import finish, options

KINDS = ("pytorch-converted", "pytorch-operator", "simple", "light")
MARKER = "<!-- onnx models -->"
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def light(path: Path) -> Case:
    """A light classifier with the input that onnx gives it, and the output beside it."""
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs: list[Array] = []
    for value in (v for v in model.graph.input if v.name not in weights):
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    return path.stem, model, inputs, [load_array(path.with_name(f"{path.stem}_output_0.pb"))]


def cases(kind: str) -> list[Case]:
    """All models of a kind that compute on floating-point numbers."""
    if kind == "light":
        return [light(path) for path in sorted((DATA / "light").glob("*.onnx"))]
    found = []
    for test in load_model_tests(kind=kind):
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        weights = {tensor.name for tensor in model.graph.initializer}
        for value in [v for v in model.graph.input if v.name in weights]:
            model.graph.input.remove(value)
        if counts(model, "output"):
            data = folder / "test_data_set_0"
            inputs = [load_array(data / f"input_{i}.pb") for i in range(len(model.graph.input))]
            outputs = [load_array(data / f"output_{i}.pb") for i in range(len(model.graph.output))]
            found.append((test.name, model, inputs, outputs))
    return sorted(found, key=lambda case: case[0])


def main() -> int:
    """Run all models and print how many went how."""
    parser = options(__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS, help="these only")
    arguments = parser.parse_args()
    lines = ["| models | passed | refused | wrong or crashed |", "| --- | --- | --- | --- |"]
    refused = []
    bad = 0
    for kind in arguments.kind or KINDS:
        count: collections.Counter[str] = collections.Counter()
        for name, (what, why) in results(
            arguments, [c for c in cases(kind) if arguments.only in c[0]]
        ).items():
            count[what.split()[0]] += 1
            if what == "unsupported":
                refused.append(f"| {name} | {why.replace('|', ';')} |")
            if not what.startswith("passed"):
                print(f"{what}: {name}: {why}", flush=True)
        wrong = count["wrong"] + count["crash"]
        lines.append(f"| {kind} | {count['passed']} | {count['unsupported']} | {wrong} |")
        bad += wrong
    if refused:
        lines += ["", "| refused | why |", "| --- | --- |", *refused]
    text = "\n".join([f"onnx {onnx.__version__}.", "", *lines])
    return finish(arguments, MARKER, text, bad=bool(bad))


if __name__ == "__main__":
    sys.exit(main())
