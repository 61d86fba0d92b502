"""Estimators of scikit-learn."""

from __future__ import annotations

from typing import Any

import megrez
import numpy as np
import pytest

sklearn: Any = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("skl2onnx", reason="the exporters are not installed")


def flowers() -> tuple[Any, Any]:
    """Three kinds, four numbers each."""
    from sklearn.datasets import load_iris

    rows, kinds = load_iris(return_X_y=True)
    return rows.astype(np.float32), kinds


def test_labels_and_probabilities_are_those_of_the_estimator() -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, kinds = flowers()
    for estimator in (
        RandomForestClassifier(5, max_depth=4, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ):
        estimator.fit(rows, kinds)
        model = megrez.compile(estimator, batch=50, input_range=8.0, ranges="assume")
        with megrez.local(parties="thread") as cluster:
            result = cluster.run(model, rows[::3])
        label, scores = result.outputs.values()
        assert (label == estimator.predict(rows[::3])).all()
        assert np.abs(scores - estimator.predict_proba(rows[::3])).max() < 1e-2


def test_strings_come_back_as_strings() -> None:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    rows, kinds = flowers()
    names = np.array(["setosa", "versicolor", "virginica"])[kinds]
    forest = RandomForestClassifier(3, max_depth=3, random_state=0).fit(rows, names)
    model = megrez.compile(forest, batch=50, input_range=8.0, trees="shape")
    assert [*model.classes.values()] == [["setosa", "versicolor", "virginica"]]
    assert not model.columns
    labels, _ = model.plain_outputs(rows[:50]).values()
    assert (labels == forest.predict(rows[:50])).all()
    # With a map of probabilities, and its shape hidden.
    mapped = megrez.compile(to_onnx(forest, rows[:1]).SerializeToString(), batch=50, input_range=8.0)
    assert "not their shape" in str(mapped.disclosure("mizar"))
    with megrez.local(parties="thread") as cluster:
        result = cluster.run(mapped, rows[::3])
    label, _ = result.outputs.values()
    assert (label == forest.predict(rows[::3])).all()
    (probabilities,) = result.maps.values()
    for row, wanted in zip(probabilities, forest.predict_proba(rows[::3]), strict=True):
        assert [*row] == ["setosa", "versicolor", "virginica"]
        assert np.abs(np.array([*row.values()]) - wanted).max() < 1e-2


def test_probabilities_of_support_vectors_are_coupled() -> None:
    from sklearn.svm import SVC

    rows, kinds = flowers()
    machine = SVC(probability=True, random_state=0).fit(rows, kinds)
    model = megrez.compile(machine, batch=50, input_range=8.0, ranges="assume", activations="fine")
    with megrez.local(parties="thread") as cluster:
        result = cluster.run(model, rows[::3])
    _, probabilities = result.outputs.values()
    _, wanted = model.plain_outputs(rows[::3]).values()
    assert np.abs(probabilities - wanted).max() < 2**-8


def test_mistakes() -> None:
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(megrez.Error, match="not trained"):
        megrez.compile(LogisticRegression())
    estimator = LogisticRegression().fit(*flowers())
    with pytest.raises(megrez.Error, match="leave out example_input"):
        megrez.compile(estimator, example_input=np.zeros((1, 4), np.float32))
