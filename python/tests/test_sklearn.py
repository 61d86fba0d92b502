"""Estimators in the manner of scikit-learn, trained on shares."""

# What is tested can be imported only where scikit-learn is.
# ruff: noqa: E402

from __future__ import annotations

import copy
import pickle
from typing import Any

import megrez
import numpy as np
import pytest

sklearn: Any = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from megrez import float32
from megrez.sklearn import PCA, KMeans, LinearRegression, LogisticRegression, MLPClassifier, _rate
from sklearn import cluster, decomposition
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def flowers() -> tuple[Any, ...]:
    """Three kinds by their names: rows and kinds to train with and to test with."""
    rows, kinds = load_iris(return_X_y=True)
    parts = train_test_split(rows, np.array(["setosa", "versicolor", "virginica"])[kinds], random_state=0)
    return parts[0], parts[2], parts[1], parts[3]


def test_kinds_are_learnt_by_their_names_and_nobody_holds_the_weights(processes: megrez.Cluster) -> None:
    rows, kinds, held_out, wanted = flowers()
    model = LogisticRegression(processes, max_iter=10, random_state=0, rehearse=40)
    assert model.fit(rows, kinds) is model
    assert model.score(held_out, wanted) > 0.9
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 3
    assert model.n_iter_ == 10
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    chances = model.predict_proba(held_out)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(held_out)).all()
    assert (model.decision_function(held_out).argmax(axis=1) == chances.argmax(axis=1)).all()
    # Whoever has the scales can ask the model that the parties keep.
    standardised = (held_out - model.mean_) / model.scale_
    scores = processes.run_stored(model.model_, standardised, batch=64).output
    assert (model.classes_[scores.argmax(axis=1)] == model.predict(held_out)).all()
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="nobody holds them"):
        _ = model.intercept_
    with pytest.raises(megrez.Error, match="nobody holds the weights"):
        megrez.compile(model)
    with pytest.raises(megrez.Error, match="no weights"):
        pickle.dumps(model)
    with pytest.raises(ValueError, match="3 features, but LogisticRegression is expecting 4"):
        model.predict(held_out[:, :3])


def test_a_network_learns_what_no_line_divides(processes: megrez.Cluster) -> None:
    random = np.random.RandomState(0)
    rows = random.uniform(0, 200, (128, 2))
    inside = (rows[:, 0] > 100) != (rows[:, 1] > 100)
    model = MLPClassifier(
        processes,
        hidden_layer_sizes=12,
        max_iter=25,
        learning_rate_init=0.25,
        feature_range=(0, [200, 200]),
        random_state=1,
        rehearse=40,
    )
    assert model.fit(rows, inside).score(rows, inside) > 0.9
    assert (model.mean_.tolist(), model.scale_.tolist()) == ([100, 100], [100, 100])
    assert model.decision_function(rows).shape == (128,)
    line = LogisticRegression(processes, max_iter=2, rehearse=2, random_state=1)
    assert line.fit(rows, inside).score(rows, inside) < 0.75


def test_a_line_comes_near_to_least_squares(processes: megrez.Cluster) -> None:
    from sklearn.linear_model import LinearRegression as Exact

    rows, targets = load_diabetes(return_X_y=True)
    # The parties draw the order of rows; of small batches the last would decide.
    line = LinearRegression(processes, max_iter=15, batch_size=64, random_state=0, rehearse=20)
    model = line.fit(rows, targets)
    assert model.score(rows, targets) > Exact().fit(rows, targets).score(rows, targets) - 0.02
    both = np.stack([targets, -targets], axis=1)
    bounds = ([0, -400], [400, 0])
    two = LinearRegression(processes, max_iter=2, target_range=bounds, rehearse=2).fit(rows[:64], both[:64])
    assert two.predict(rows[:5]).shape == (5, 2)
    with pytest.raises(megrez.Error, match="target is beyond"):
        two.set_params(target_range=(0, 400)).fit(rows, both)


def test_privacy_takes_public_scales(processes: megrez.Cluster) -> None:
    rows, kinds, held_out, wanted = flowers()
    options: dict[str, Any] = {"max_iter": 10, "batch_size": len(rows), "random_state": 0}
    private = LogisticRegression(processes, **options, learning_rate_init=4.0, epsilon=20.0)
    with pytest.raises(megrez.InvalidError, match="public bounds: give feature_range"):
        private.fit(rows, kinds)
    private.set_params(feature_range=(0.0, 8.0))
    assert private.fit(rows, kinds).score(held_out, wanted) > 0.5
    line = LinearRegression(processes, epsilon=1.0, feature_range=(0.0, 8.0))
    with pytest.raises(megrez.InvalidError, match="give target_range"):
        line.fit(rows, rows[:, 0])


def test_pipelines_and_searches_take_them(processes: megrez.Cluster) -> None:
    rows, kinds, held_out, wanted = flowers()
    model = LogisticRegression(processes, max_iter=5, rehearse=5, random_state=0)
    assert clone(model).get_params() == model.get_params()
    assert copy.deepcopy(processes) is processes
    pipeline = make_pipeline(StandardScaler(), model)
    # After four epochs the order of the batches, which the parties draw, decides about 0.8.
    assert pipeline.set_params(logisticregression__max_iter=12).fit(rows, kinds).n_features_in_ == 4
    assert model.n_iter_ == 12
    assert pipeline.score(held_out, wanted) > 0.8
    assert cross_val_score(model, rows, kinds, cv=2).min() > 0.7


def test_rates_are_the_nearest_that_training_has() -> None:
    assert [_rate(x) for x in (0.125, 1, 15, 0.1, 2**-30)] == [0.125, 1, 15, 13 / 128, 2**-30]
    every = [c * 2.0**-k for c in range(1, 16) for k in range(31)]
    for wanted in np.random.RandomState(0).uniform(1e-4, 15, 200):
        assert abs(_rate(wanted) - wanted) == min(abs(rate - wanted) for rate in every)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate_init": float("nan")}, "learning_rate_init"),
        ({"learning_rate_init": 16}, "learning_rate_init"),
        ({"momentum": 1.0}, "momentum"),
        ({"feature_range": (1, 1)}, "lower one first"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (4, 0)}, "hidden_layer_sizes"),
        ({"max_iter": 0}, "at least 1"),
        ({"predict_batch": 0}, "one input at least"),
    ],
    ids=str,
)
def test_what_cannot_be_learnt_is_refused(processes: megrez.Cluster, options: Any, why: str) -> None:
    rows, kinds, _, _ = flowers()
    with pytest.raises(megrez.Error, match=why):
        MLPClassifier(processes, rehearse=1, **options).fit(rows, kinds)


def test_damaged_rows_are_refused(processes: megrez.Cluster) -> None:
    rows, kinds, _, _ = flowers()
    model = LogisticRegression(processes)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(rows > 7, np.nan, rows), kinds)
    for ask in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(sklearn.exceptions.NotFittedError):
            ask(rows)
    with pytest.raises(ValueError, match="nothing to learn"):
        model.fit(rows, np.zeros(len(rows)))
    with pytest.raises(ValueError, match="continuous"):
        model.fit(rows, rows[:, 0])
    floats = megrez.local(protocol="secfloat", parties="thread")
    with floats, pytest.raises(megrez.UnsupportedError, match="fixed point"):
        LogisticRegression(floats).fit(rows, kinds)
    with pytest.warns(UserWarning, match="12 of 112 rows fill no batch of 100"):
        model.set_params(batch_size=100, max_iter=1, rehearse=1).fit(rows, kinds)


def halves(rows: Any) -> Any:
    """Whose each row is, without order."""
    return np.random.RandomState(0).permutation(len(rows)) % 2


def test_two_parties_find_the_centres_that_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = load_iris(return_X_y=True)
    opened: list[tuple[int, ...]] = []
    reveal = float32.Pair.reveal

    def heard(pair: float32.Pair, *arrays: Any) -> Any:
        opened.extend(array.shape for array in arrays)
        return reveal(pair, *arrays)

    monkeypatch.setattr(float32.Pair, "reveal", heard)
    start = rows[[0, 60, 140]]
    # Without parties, with the same bits.
    ours = KMeans(3, pair=float32.clear(), init=start, max_iter=6).fit(rows, owners=halves(rows))
    assert opened == [(3, 4)]
    theirs = cluster.KMeans(3, init=start, n_init=1, max_iter=6, tol=0, algorithm="lloyd").fit(rows)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-5)
    assert (ours.labels_ == theirs.labels_).all()
    opened.clear()
    own = PCA(3, pair=float32.clear(), random_state=0).fit(rows, owners=halves(rows))
    assert opened == [(4,), (3, 4), (3,)]
    expected = decomposition.PCA(3).fit(rows)
    np.testing.assert_allclose(own.components_, expected.components_, atol=1e-4)
    np.testing.assert_allclose(own.explained_variance_, expected.explained_variance_, rtol=1e-4)
    np.testing.assert_allclose(own.transform(rows), expected.transform(rows), atol=1e-3)
    np.testing.assert_allclose(own.inverse_transform(own.transform(rows)), rows, atol=0.6)


def test_clusters_with_parties_and_without_rows() -> None:
    rows = np.array([[0.0, 0], [10, 10], [1, 0], [11, 10]])
    model = KMeans(2, max_iter=1, random_state=0)
    assert sorted(model.fit(rows).cluster_centers_.tolist()) == [[0.5, 0], [10.5, 10]]
    assert model.cost_.rounds > 0
    # Nobody is near the last centre: it stays.
    with float32.clear() as pair:
        far = clone(model).set_params(pair=pair, init=[[0, 0], [900, 900]]).fit(rows)
        assert far.cluster_centers_.tolist() == [[5.5, 5], [900, 900]]
        with pytest.raises(megrez.Error, match="each party has a row"):
            far.fit(rows, owners=[0, 0, 0, 0])
        with pytest.raises(megrez.Error, match="n_clusters"):
            far.set_params(n_clusters=3, init=None).fit(rows)
        with pytest.raises(megrez.Error, match="not finite"):
            PCA(2, pair=pair).fit(np.ones((4, 2)))
