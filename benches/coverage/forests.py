"""Time ensembles of trees on shares, hidden and shown, beside what their bytes and rounds take by themselves.

    pip install scikit-learn skl2onnx onnxmltools lightgbm onnxruntime
    cargo build --release -p megrez-graph --example onnx_cases
    python benches/coverage/forests.py --rows 1000

A random forest of 100 trees of depth 8, and 200 trees of 31 leaves of LightGBM, are trained on what
scikit-learn's `make_classification` makes: 2,000 rows of 30 features, two classes. Rows that are held out go
through both forms of `--trees` under `--protocol`, all parties in one process on `--net`. Results must be
those of onnxruntime. For each: seconds and rounds of every phase, the slowest steps, bytes sent, by party.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnxruntime
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from runs import save
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

FEATURES = 30


def models(x: Any, y: Any) -> dict[str, bytes]:
    """The two ensembles as ONNX files."""
    forest = RandomForestClassifier(100, max_depth=8, random_state=0).fit(x, y)
    boosted = lightgbm.LGBMClassifier(n_estimators=200, num_leaves=31, verbose=-1).fit(x, y)
    types = [("X", FloatTensorType([None, FEATURES]))]
    scores = {id(forest): {"zipmap": False}}
    written = {
        "forest": to_onnx(forest, x[:1], options=scores, target_opset=17),
        "lightgbm": convert_lightgbm(boosted, initial_types=types, target_opset=15, zipmap=False),
    }
    return {name: model.SerializeToString() for name, model in written.items()}


def main() -> int:
    """Measure, print, and end with 1 where a result is wrong."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--runner", default="target/release/examples/onnx_cases", help="the built example")
    parser.add_argument("--protocol", default="mizar")
    parser.add_argument("--net", default="lan")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--forms", default="shape,hidden")
    parser.add_argument("--models", default="forest,lightgbm")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    x, y = make_classification(2000 + arguments.rows, FEATURES, n_informative=15, random_state=0)
    # What a fixed-point number holds exactly: then no row is on the other side of a threshold.
    x = (np.clip(x, -8, 8) * 4096).round().astype(np.float32) / 4096
    wrong = False
    with tempfile.TemporaryDirectory() as place:
        for name, model in models(x[: -arguments.rows], y[: -arguments.rows]).items():
            if name not in arguments.models.split(","):
                continue
            rows = x[-arguments.rows :]
            session = onnxruntime.InferenceSession(model)
            expected = [np.asarray(a) for a in session.run(None, {session.get_inputs()[0].name: rows})]
            folder = Path(place) / name
            save(folder, model, [rows], expected)
            for form in arguments.forms.split(","):
                command = [arguments.runner, f"{arguments.protocol}@{arguments.net}@{form}", str(folder)]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                outcome = ran.stdout.split("\t")[1]
                wrong |= outcome != "passed"
                print(f"{name} {form}: {outcome}", ran.stderr.strip(), sep="\n", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
