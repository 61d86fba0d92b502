"""Estimators in the manner of scikit-learn that are trained on shares, and whose weights nobody holds.

    from megrez.sklearn import LogisticRegression

    with megrez.local() as cluster:
        model = LogisticRegression(cluster=cluster).fit(rows, labels)
        print(model.score(held_out_rows, held_out_labels))

`fit` standardises the rows here, shares them, and has the parties train by `Cluster.fit`; what comes back is
the mean loss of each epoch. `predict` asks the model that the parties keep. docs/training.md says what is
opened. `GradientBoostingClassifier` and `GradientBoostingRegressor` share what their trees ask of rows
instead, and grow a tree an epoch.

Such an estimator is of one client, who has all rows. Several owners who train together agree on a job: see
docs/training.md. `KMeans` and `PCA` are of the rows of two parties, in floating point as `megrez.float32`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from megrez._cluster import Cluster, Progress
from megrez._model import compile as compile_model
from megrez._native import Error, InvalidError, UnsupportedError
from megrez._networks import perceptron
from megrez._protocols import protocols

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state, check_X_y
    from sklearn.utils.multiclass import check_classification_targets

    from megrez._boosting import GradientBoostingClassifier, GradientBoostingRegressor
    from megrez._trained import Range, Trained, middle, not_zero
    from megrez._unsupervised import PCA, KMeans, new_rows
except ImportError as error:
    raise Error("scikit-learn is missing: pip install 'megrez[sklearn]'") from error

__all__ = [
    "PCA",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "MLPClassifier",
]

_Numbers = npt.NDArray[np.floating[Any]]
_Activations = Literal["minimax", "fine", "lookup", "mizar"]
_Classifier: Any = ClassifierMixin
_Regressor: Any = RegressorMixin

_BOUND = 8.0
"""What a standardised feature is cut to: the parties are told this range, and nothing about the rows."""
_SMALLEST_RATE, _LARGEST_FACTOR = 2.0**-30, 15


class _OnShares(Trained):
    """What the estimators have in common: training on shares, and asking the kept model."""

    def __init__(
        self,
        cluster: Cluster | None,
        *,
        max_iter: int,
        batch_size: int | Literal["auto"],
        learning_rate_init: float,
        momentum: float,
        feature_range: Range | None,
        random_state: Any,
        keep: str | None,
        allow: Sequence[str],
        rehearse: int,
        epsilon: float | None,
        delta: float,
        clip: float,
        activations: _Activations,
        predict_batch: int,
        progress: Progress | Literal[True] | None,
    ) -> None:
        self.cluster = cluster
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.momentum = momentum
        self.feature_range = feature_range
        self.random_state = random_state
        self.keep = keep
        self.allow = allow
        self.rehearse = rehearse
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.activations = activations
        self.predict_batch = predict_batch
        self.progress = progress

    def _train(self, rows: _Numbers, targets: _Numbers, network: bytes, loss: Any, random: Any) -> None:
        """Train a network and keep it at the parties; rows and targets are in the clear here."""
        count = len(rows)
        batch = _batch(count) if self.batch_size == "auto" else int(self.batch_size)
        if not 1 <= batch <= count:
            raise InvalidError(f"batch_size is from 1 to the {count} rows, not {batch}")
        if self.batch_size != "auto" and count % batch:
            what = f"{count % batch} of {count} rows fill no batch of {batch} and are not learnt from"
            warnings.warn(what, stacklevel=3)
        # The rows that are left out should be any, not the last class.
        order = random.permutation(count)
        cluster = self._parties()
        if {known.name: known.numbers for known in protocols()}[cluster.protocol] != "fixed":
            raise UnsupportedError(f"training is in fixed point: {cluster.protocol} has another arithmetic")
        model = compile_model(
            network,
            batch=int(self.predict_batch),
            input_range=_BOUND,
            protocol=cluster.protocol,
            activations=self.activations,
        )
        self.rate_, self.batch_ = _rate(self.learning_rate_init), batch
        self.training_ = cluster.fit(
            model,
            self._standardised(rows)[order],
            targets[order],
            epochs=int(self.max_iter),
            batch=batch,
            rate=self.rate_,
            momentum=self.momentum,
            loss=loss,
            keep=self.keep,
            allow=self.allow,
            rehearse=self.rehearse,
            epsilon=self.epsilon,
            delta=self.delta,
            clip=self.clip,
            progress=self.progress,
            wait=False,
        )
        # Known before it has ended: who interrupts this can stop it, or wait again.
        self.training_.wait()
        if self.training_.state != "done":
            raise InvalidError("the training was stopped: `training_.resume().wait()` goes on with it")

    def _learn_scales(self, rows: _Numbers) -> None:
        """How features are standardised: by public ranges, or by what this client's rows say."""
        self.n_features_in_ = rows.shape[1]
        if self.feature_range is None:
            self._public("feature_range")
            self.mean_ = rows.mean(axis=0)
            self.scale_ = not_zero(rows.std(axis=0))
        else:
            self.mean_, self.scale_ = middle(self.feature_range, rows.shape[1])

    def _public(self, missing: str) -> None:
        """Refuse bounds of the rows' own where these may tell little of a row."""
        if self.epsilon is not None:
            raise InvalidError(f"with epsilon, numbers are scaled by public bounds: give {missing}")

    def _standardised(self, rows: _Numbers) -> _Numbers:
        scaled: _Numbers = np.clip((rows - self.mean_) / self.scale_, -_BOUND, _BOUND)
        return scaled.astype(np.float32)

    def _ask(self, x: Any) -> npt.NDArray[np.float64]:
        """What the kept model says of rows."""
        rows = self._standardised(new_rows(self, x))
        result = self.cluster_.run_stored(self.model_, rows, batch=int(self.predict_batch))
        return result.output.astype(np.float64)


class _OfClasses(_Classifier, _OnShares):  # type: ignore[misc]
    """Classifiers: softmax and its cross-entropy, a score for each class."""

    def fit(self, x: Any, y: Any) -> Any:
        """Train on rows and their labels, which may be strings: their names stay here, in `classes_`."""
        rows, labels = check_X_y(x, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("there is nothing to learn: all rows are of one class")
        random = check_random_state(self.random_state)
        self._learn_scales(rows)
        hidden = self._hidden()
        network = perceptron([rows.shape[1], *hidden, len(self.classes_)], random if hidden else None)
        self._train(rows, numbers.astype(np.float32), network, "cross-entropy", random)
        return self

    def _hidden(self) -> list[int]:
        return []

    def decision_function(self, x: Any) -> Any:
        """Scores [rows, classes], which the parties open to this client; of two classes their difference."""
        scores = self._ask(x)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, x: Any) -> Any:
        """Probabilities [rows, classes]: the softmax of the scores, computed here."""
        scores = self._ask(x)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def predict(self, x: Any) -> Any:
        """The likeliest class of each row."""
        likeliest = self._ask(x).argmax(axis=1)
        return self.classes_[likeliest]


class LogisticRegression(_OfClasses):
    """Logistic regression, of two classes or more, by gradient descent on shares.

    It minimises the cross-entropy without a penalty (scikit-learn's `penalty=None`); that it stops after
    `max_iter` epochs is what keeps it from fitting too well. Weights begin at 0.

    Args:
        cluster: the parties; by default three processes of this machine, which end with this estimator.
        max_iter: epochs. There is no early stopping, since nothing but the loss is opened.
        batch_size: rows of a step; `"auto"` is the size from 16 to 32 that leaves fewest rows out: `batch_`.
        learning_rate_init: the rate; the nearest c·2^-k with c below 16 is taken, which `rate_` says.
        momentum: rounded to a multiple of 1/256.
        feature_range: public bounds `(low, high)`, numbers or one for each feature, by which features are
            scaled to -1 … 1. By default they are standardised by the rows' own mean and deviation, which
            this client computes and keeps in `mean_` and `scale_`: whoever else is to ask the model needs
            them, and they say something about the rows. Beyond 8 scales from the middle a feature is cut.
        random_state: the seed of public random numbers: which rows fill no batch, and a network's weights.
            Fits differ all the same: the parties draw the order of rows, and roundings, by themselves.
        keep: the name of the kept model; by default one that nothing else has.
        allow: clients who may run it besides this one.
        rehearse: steps that are rehearsed in the clear here, to lay the plan out by: see `Cluster.fit`.
        epsilon: train with differential privacy, see `Cluster.fit`; features need a `feature_range`, since
            their own mean would carry each row into all others. Larger batches drown less in the noise.
        delta: see `Cluster.fit`.
        clip: see `Cluster.fit`.
        activations: how softmax is computed: `"lookup"` takes half of the rounds, for networks where they
            count, and several times the bytes: see `megrez.compile`.
        predict_batch: rows that go to the parties together in `predict`.
        progress: as in `Cluster.fit`: `True` writes steps, loss and time left to standard error.

    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        max_iter: int = 50,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float = 0.125,
        momentum: float = 0.9,
        feature_range: Range | None = None,
        random_state: Any = None,
        keep: str | None = None,
        allow: Sequence[str] = (),
        rehearse: int = 200,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        activations: _Activations = "minimax",
        predict_batch: int = 64,
        progress: Progress | Literal[True] | None = None,
    ) -> None:
        super().__init__(
            cluster,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate_init=learning_rate_init,
            momentum=momentum,
            feature_range=feature_range,
            random_state=random_state,
            keep=keep,
            allow=allow,
            rehearse=rehearse,
            epsilon=epsilon,
            delta=delta,
            clip=clip,
            activations=activations,
            predict_batch=predict_batch,
            progress=progress,
        )


class MLPClassifier(_OfClasses):
    """A perceptron with hidden layers of ReLUs, by gradient descent with momentum on shares.

    It is scikit-learn's with `solver="sgd"`, `alpha=0`, and softmax for two classes as well.

    Args:
        cluster: see `LogisticRegression`, as for all that is not here.
        hidden_layer_sizes: widths of the hidden layers.
        random_state: the seed of the weights to begin with as well, which are public.

    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        hidden_layer_sizes: Sequence[int] | int = (32,),
        max_iter: int = 50,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float = 0.0625,
        momentum: float = 0.9,
        feature_range: Range | None = None,
        random_state: Any = None,
        keep: str | None = None,
        allow: Sequence[str] = (),
        rehearse: int = 200,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        activations: _Activations = "minimax",
        predict_batch: int = 64,
        progress: Progress | Literal[True] | None = None,
    ) -> None:
        super().__init__(
            cluster,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate_init=learning_rate_init,
            momentum=momentum,
            feature_range=feature_range,
            random_state=random_state,
            keep=keep,
            allow=allow,
            rehearse=rehearse,
            epsilon=epsilon,
            delta=delta,
            clip=clip,
            activations=activations,
            predict_batch=predict_batch,
            progress=progress,
        )
        self.hidden_layer_sizes = hidden_layer_sizes

    def _hidden(self) -> list[int]:
        sizes = self.hidden_layer_sizes
        widths = [int(size) for size in np.atleast_1d(np.asarray(sizes))]
        if not widths or min(widths) < 1:
            raise InvalidError(f"hidden_layer_sizes are widths from 1 on, not {sizes!r}")
        return widths


class LinearRegression(_Regressor, _OnShares):  # type: ignore[misc]
    """Linear regression by gradient descent on shares.

    It approaches the least squares that scikit-learn solves for, the slower the more features depend on each
    other, and does not reach it exactly. Targets are scaled to -1 … 1, by their own largest distance from
    the mean, which stays here, or by public bounds: `target_mean_` and `target_scale_`. Of one target the
    kept model has two outputs, of which the second is 0.

    Args:
        cluster: see `LogisticRegression`, as for all that is not here.
        target_range: public bounds of the targets, as `feature_range`; targets beyond are refused.

    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        max_iter: int = 50,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float = 0.015625,
        momentum: float = 0.9,
        feature_range: Range | None = None,
        target_range: Range | None = None,
        random_state: Any = None,
        keep: str | None = None,
        allow: Sequence[str] = (),
        rehearse: int = 200,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        activations: _Activations = "minimax",
        predict_batch: int = 64,
        progress: Progress | Literal[True] | None = None,
    ) -> None:
        super().__init__(
            cluster,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate_init=learning_rate_init,
            momentum=momentum,
            feature_range=feature_range,
            random_state=random_state,
            keep=keep,
            allow=allow,
            rehearse=rehearse,
            epsilon=epsilon,
            delta=delta,
            clip=clip,
            activations=activations,
            predict_batch=predict_batch,
            progress=progress,
        )
        self.target_range = target_range

    def fit(self, x: Any, y: Any) -> LinearRegression:
        """Train on rows and their targets, [rows] or [rows, targets]."""
        rows, given = check_X_y(x, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._one = given.ndim == 1
        targets = np.asarray(given, np.float64).reshape(len(rows), -1)
        self._learn_scales(rows)
        if self.target_range is None:
            self._public("target_range")
            self.target_mean_ = targets.mean(axis=0)
            self.target_scale_ = not_zero(np.abs(targets - self.target_mean_).max(axis=0))
        else:
            self.target_mean_, self.target_scale_ = middle(self.target_range, targets.shape[1])
        scaled = (targets - self.target_mean_) / self.target_scale_
        if np.abs(scaled).max() > 1 + 1e-6:
            raise InvalidError("a target is beyond target_range")
        network = perceptron([rows.shape[1], scaled.shape[1]], None)
        random = check_random_state(self.random_state)
        self._train(rows, scaled.astype(np.float32), network, "mse", random)
        return self

    def predict(self, x: Any) -> Any:
        """The targets of rows, in their own units."""
        targets = self._ask(x) * self.target_scale_ + self.target_mean_
        return targets[:, 0] if self._one else targets


def _batch(count: int) -> int:
    """The largest batch from 16 to 32 among those that leave fewest rows out; fewer rows are one batch."""
    if count <= 32:
        return count
    return min(range(32, 15, -1), key=lambda size: count % size)


def _rate(wanted: float) -> float:
    """The nearest rate that training on shares has: c·2^-k with c from 1 to 15, and k to 30."""
    if not (isinstance(wanted, Real) and _SMALLEST_RATE <= wanted <= _LARGEST_FACTOR):
        raise InvalidError(f"learning_rate_init is from 2^-30 to 15, not {wanted!r}")
    # Above 8·2^-k all numbers of four bits are there, so the nearest one has the largest k that holds it.
    bits = max(k for k in range(31) if round(wanted * 2**k) <= _LARGEST_FACTOR)
    return max(round(wanted * 2**bits), 1) * 2.0**-bits
