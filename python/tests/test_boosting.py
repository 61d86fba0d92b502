"""Boosted trees that are grown on shares."""

# What is tested can be imported only where scikit-learn is.

from __future__ import annotations

from typing import Any

import megrez
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from megrez.sklearn import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split


def tumours() -> tuple[Any, ...]:
    """Two kinds by their names: rows and kinds to train with and to test with."""
    rows, kinds = load_breast_cancer(return_X_y=True)
    parts = train_test_split(
        rows[:, :10], np.array(["malignant", "benign"])[kinds], train_size=200, random_state=0
    )
    return parts[0], parts[2], parts[1][:150], parts[3][:150]


def grown(rows: Any, labels: Any, asked: Any, trees: int, depth: int, rate: float, penalty: float) -> Any:
    """Scores of the indicators `asked` by the trees of the algorithm on these indicators and labels."""
    scores, found = np.zeros(len(rows)), np.zeros(len(asked))
    for _ in range(trees):
        p = 1 / (1 + np.exp(-scores))
        g, h = p - labels, p * (1 - p)
        nodes, of, leaves = np.zeros(len(rows), int), np.zeros(len(asked), int), np.zeros(0)
        for level in range(depth):
            best, sides = [], []
            for node in range(2**level):
                own, mine = rows[nodes == node], nodes == node
                right = [part[mine] @ own for part in (g, h)]
                left = [part[mine].sum() - of_right for part, of_right in zip((g, h), right, strict=True)]
                values = [of_g / (of_h + penalty) for of_g, of_h in (left, right)]
                chosen = (left[0] * values[0] + right[0] * values[1]).argmax()
                best.append(chosen)
                sides.append([value[chosen] for value in values])
            leaves = np.array(sides).T.ravel()
            nodes = nodes + 2**level * (rows[np.arange(len(rows)), np.array(best)[nodes]] > 0)
            of = of + 2**level * (asked[np.arange(len(asked)), np.array(best)[of]] > 0)
        scores -= rate * leaves[nodes]
        found -= rate * leaves[of]
    return found


def test_two_kinds_are_told_apart_as_by_the_same_trees_in_the_clear(processes: megrez.Cluster) -> None:
    rows, kinds, held_out, wanted = tumours()
    model = GradientBoostingClassifier(processes, n_estimators=4, max_depth=2, max_bins=8, learning_rate=0.5)
    assert model.fit(rows, kinds) is model
    assert list(model.classes_) == ["benign", "malignant"]
    assert model.score(held_out, wanted) > 0.88
    assert len(model.loss_curve_) == 4
    assert model.loss_curve_[0] == pytest.approx(0.25, abs=1e-3), "before the first tree all are a half"
    assert all(b < a for a, b in zip(model.loss_curve_, model.loss_curve_[1:], strict=False))
    scores = model.decision_function(held_out)
    labels = (kinds == "malignant").astype(float)
    plain = grown(model._indicators(rows), labels, model._indicators(held_out), 4, 2, 0.5, 1.0)
    # Where two thresholds gain next to the same, either may be taken.
    assert np.quantile(np.abs(scores - plain), 0.9) < 0.01
    chances = model.predict_proba(held_out)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(held_out)).all()
    # Whoever has the thresholds can ask the trees that the parties keep.
    asked = processes.run_stored(model.model_, model._indicators(held_out), batch=64).output
    np.testing.assert_allclose(asked[:, 0], scores, atol=1e-3)
    assert clone(model).get_params()["max_bins"] == 8
    with pytest.raises(ValueError, match="3 features, but GradientBoostingClassifier is expecting 10"):
        model.predict(held_out[:, :3])


def test_targets_are_followed(processes: megrez.Cluster) -> None:
    rows, targets = load_diabetes(return_X_y=True)
    model = GradientBoostingRegressor(
        processes, n_estimators=6, max_depth=2, max_bins=8, target_range=(0, 400), feature_range=(-0.2, 0.2)
    )
    model.fit(rows[:300], targets[:300])
    assert model.score(rows[300:], targets[300:]) > 0.3
    assert (model.target_mean_, model.target_scale_) == (200, 200)
    assert [len(places) for places in model.thresholds_] == [7] * 10
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 2


def test_what_trees_cannot_be_grown_on_is_refused(processes: megrez.Cluster) -> None:
    rows, labels = np.eye(6), np.array([0, 1] * 3)
    with pytest.raises(ValueError, match="two classes apart, and the labels have 3"):
        GradientBoostingClassifier(processes).fit(rows, [0, 1, 2] * 2)
    with pytest.raises(ValueError, match="the same in all rows"):
        GradientBoostingClassifier(processes).fit(np.ones((6, 2)), labels)
    for wrong, what in [
        ({"max_bins": 1}, "max_bins"),
        ({"max_depth": 9}, "levels"),
        ({"n_estimators": 0}, "trees"),
        ({"learning_rate": 2.0}, "rate"),
        ({"reg_lambda": 0.0}, "penalty"),
    ]:
        with pytest.raises(megrez.InvalidError, match=what):
            GradientBoostingClassifier(processes, **wrong).fit(rows, labels)  # type: ignore[arg-type]
    with pytest.raises(megrez.InvalidError, match="beyond target_range"):
        GradientBoostingRegressor(processes, target_range=(0, 1)).fit(rows, 2 * labels)
    with pytest.raises(megrez.InvalidError, match="neither 0 nor 1"):
        processes.fit_trees(rows / 2, labels, objective="logistic")
