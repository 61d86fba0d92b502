"""Run estimators of scikit-learn, LightGBM and XGBoost through megrez, and count what passes.

    pip install scikit-learn skl2onnx onnxmltools lightgbm xgboost onnxruntime
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/estimators.py --write docs/coverage.md

Every estimator is trained on data that scikit-learn brings, exported to ONNX, and run on 32 rows. `passed`
needs every number of every output (labels and probabilities) within 2^-8 absolute plus 2^-8 relative of
what onnxruntime computes. This ends with 1 if any result is wrong or any run crashes.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import onnxruntime
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from runs import attempt, finish, options, save, told
from skl2onnx import to_onnx
from sklearn import (
    cluster,
    datasets,
    decomposition,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline

MARKER = "<!-- estimators -->"
ROWS = 32
Data = tuple[Any, Any]


def data() -> tuple[Data, Data, Data]:
    """Three classes, two classes, and numbers to predict."""
    flowers, kinds = datasets.load_iris(return_X_y=True)
    cells, sick = datasets.load_breast_cancer(return_X_y=True)
    people, progress = datasets.load_diabetes(return_X_y=True)
    cells = preprocessing.StandardScaler().fit_transform(cells)
    single = np.float32
    return (
        (flowers.astype(single), kinds),
        (cells.astype(single), sick),
        (people.astype(single), progress / 100),
    )


def estimators() -> list[tuple[Any, Data]]:
    """What is tried, with the data that it is trained on."""
    three, two, numbers = data()
    boosting = {"n_estimators": 10, "verbose": -1, "num_leaves": 15}
    extreme = {"n_estimators": 10, "max_depth": 4}
    forest = {"n_estimators": 10, "max_depth": 5, "random_state": 0}
    return [
        (linear_model.LogisticRegression(max_iter=1000), three),
        (linear_model.LogisticRegression(max_iter=1000), two),
        (linear_model.LinearRegression(), numbers),
        (linear_model.Ridge(), numbers),
        (linear_model.Lasso(alpha=0.01), numbers),
        (linear_model.SGDClassifier(loss="log_loss", random_state=0), two),
        (svm.LinearSVC(random_state=0), two),
        (svm.SVC(), three),
        (svm.SVC(probability=True, random_state=0), three),
        (svm.SVC(probability=True, random_state=0), two),
        (svm.SVR(), numbers),
        (tree.DecisionTreeClassifier(max_depth=5, random_state=0), three),
        (tree.DecisionTreeRegressor(max_depth=5, random_state=0), numbers),
        (ensemble.RandomForestClassifier(**forest), three),
        (ensemble.RandomForestClassifier(**forest), two),
        (ensemble.RandomForestRegressor(**forest), numbers),
        (ensemble.ExtraTreesClassifier(**forest), three),
        (ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0), two),
        (ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0), three),
        (ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0), numbers),
        (lightgbm.LGBMClassifier(**boosting), two),
        (lightgbm.LGBMClassifier(**boosting), three),
        (lightgbm.LGBMRegressor(**boosting), numbers),
        (xgboost.XGBClassifier(**extreme), two),
        (xgboost.XGBClassifier(**extreme), three),
        (xgboost.XGBRegressor(**extreme), numbers),
        (neighbors.KNeighborsClassifier(3), (three[0][::5], three[1][::5])),
        (naive_bayes.GaussianNB(), three),
        (neural_network.MLPClassifier((16,), max_iter=300, random_state=0), three),
        (neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, random_state=0), numbers),
        (cluster.KMeans(3, n_init=3, random_state=0), three),
        (decomposition.PCA(2), three),
        (preprocessing.StandardScaler(), three),
        (preprocessing.MinMaxScaler(), three),
        (preprocessing.Normalizer(), three),
        (preprocessing.Binarizer(threshold=2.0), three),
        (
            make_pipeline(
                preprocessing.StandardScaler(), decomposition.PCA(3), linear_model.LogisticRegression()
            ),
            three,
        ),
    ]


def export(estimator: Any, rows: Any) -> onnx.ModelProto:
    """The estimator as its exporter writes it, scores as an array."""
    types = [("X", FloatTensorType([None, rows.shape[1]]))]
    classifies = is_classifier(estimator)
    if isinstance(estimator, lightgbm.LGBMModel):
        options = {"zipmap": False} if classifies else {}
        return convert_lightgbm(estimator, initial_types=types, target_opset=15, **options)
    if isinstance(estimator, xgboost.XGBModel):
        return convert_xgboost(estimator, initial_types=types, target_opset=15)
    scores = {id(estimator): {"zipmap": False}} if classifies else None
    try:
        return to_onnx(estimator, rows, options=scores, target_opset=17)
    except NameError:
        # A classifier that makes no map of its scores has no such option.
        return to_onnx(estimator, rows, target_opset=17)


def write(folder: Path, model: onnx.ModelProto, rows: Any) -> None:
    """The model, its data and what onnxruntime makes of it, as a folder."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    outputs = session.run(None, {session.get_inputs()[0].name: rows})
    save(folder, model.SerializeToString(), [rows], [np.asarray(x).astype(np.float32) for x in outputs])


def main() -> int:
    """Run all estimators and print how each went."""
    arguments = options(__doc__).parse_args()
    warnings.filterwarnings("ignore")
    lines = ["| estimator | data | outcome |", "| --- | --- | --- |"]
    bad = passed = 0
    with tempfile.TemporaryDirectory() as place:
        folders = []
        tried = [entry for entry in estimators() if arguments.only in type(entry[0]).__name__]
        for i, (estimator, (rows, target)) in enumerate(tried):
            estimator.fit(rows, target)
            folders.append(Path(place) / f"{i:02}")
            write(folders[-1], export(estimator, rows[:ROWS]), rows[:ROWS])
        results = attempt(arguments, folders)
    for folder, (estimator, (_, target)) in zip(folders, tried, strict=True):
        outcome = results[str(folder)]
        name = type(estimator).__name__
        kinds = len(set(np.asarray(target).tolist()))
        kind = f"{kinds} classes" if kinds <= 3 else "numbers"
        lines.append(f"| {name} | {kind} | {told(outcome)} |")
        bad += outcome[0] in ("wrong", "crash")
        passed += outcome[0] == "passed"
    text = "\n".join([f"{passed} of {len(folders)} estimators.", "", *lines])
    return finish(arguments, MARKER, text, bad=bool(bad))


if __name__ == "__main__":
    sys.exit(main())
