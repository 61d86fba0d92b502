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


def test_mistakes() -> None:
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(megrez.Error, match="not trained"):
        megrez.compile(LogisticRegression())
    estimator = LogisticRegression().fit(*flowers())
    with pytest.raises(megrez.Error, match="leave out example_input"):
        megrez.compile(estimator, example_input=np.zeros((1, 4), np.float32))
