"""Gradient-boosted trees, grown on shares.

The names of `megrez.sklearn`; docs/training.md says what is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from megrez._cluster import Cluster, Progress
from megrez._native import InvalidError, UnsupportedError
from megrez._protocols import protocols
from megrez._trained import Range, Trained, middle, not_zero
from megrez._unsupervised import new_rows

_Numbers = npt.NDArray[np.floating[Any]]
_Classifier: Any = ClassifierMixin
_Regressor: Any = RegressorMixin


class _Boosted(Trained):
    """What both have in common: thresholds, and asking the kept trees."""

    def __init__(
        self,
        cluster: Cluster | None,
        *,
        n_estimators: int,
        learning_rate: float,
        max_depth: int,
        reg_lambda: float,
        max_bins: int,
        feature_range: Range | None,
        keep: str | None,
        allow: Sequence[str],
        predict_batch: int,
        progress: Progress | Literal[True] | None,
    ) -> None:
        self.cluster = cluster
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.reg_lambda = reg_lambda
        self.max_bins = max_bins
        self.feature_range = feature_range
        self.keep = keep
        self.allow = allow
        self.predict_batch = predict_batch
        self.progress = progress

    def _grow(self, rows: _Numbers, targets: _Numbers, objective: Literal["logistic", "squares"]) -> None:
        """Grow the trees and keep them at the parties; rows and targets are in the clear here."""
        self.n_features_in_ = rows.shape[1]
        self.thresholds_ = self._thresholds(rows)
        if not sum(map(len, self.thresholds_)):
            raise ValueError("there is nothing to learn from: every feature is the same in all rows")
        cluster = self._parties()
        if {known.name: known.numbers for known in protocols()}[cluster.protocol] != "fixed":
            raise UnsupportedError(f"training is in fixed point: {cluster.protocol} has another arithmetic")
        self.training_ = cluster.fit_trees(
            self._indicators(rows),
            targets,
            objective=objective,
            trees=int(self.n_estimators),
            depth=int(self.max_depth),
            rate=float(self.learning_rate),
            penalty=float(self.reg_lambda),
            keep=self.keep,
            allow=self.allow,
            batches=[int(self.predict_batch)],
            progress=self.progress,
            wait=False,
        )
        # Known before it has ended: who interrupts this can stop it, or wait again.
        self.training_.wait()
        if self.training_.state != "done":
            raise InvalidError("the training was stopped: `training_.resume().wait()` goes on with it")

    def _thresholds(self, rows: _Numbers) -> list[_Numbers]:
        """Of every feature: between its values, or at quantiles; or evenly within public bounds."""
        if not 2 <= self.max_bins <= 256:
            raise InvalidError(f"max_bins is from 2 to 256, not {self.max_bins!r}")
        parts = np.linspace(0, 1, int(self.max_bins) + 1)[1:-1]
        if self.feature_range is not None:
            centre, half = middle(self.feature_range, rows.shape[1])
            return [c + (2 * parts - 1) * h for c, h in zip(centre, half, strict=True)]
        found = []
        for feature in rows.T:
            values = np.unique(feature)
            if len(values) <= self.max_bins:
                found.append((values[1:] + values[:-1]) / 2)
            else:
                # Not at the largest: no row would be beyond.
                places = np.unique(np.quantile(feature, parts))
                found.append(places[places < values[-1]])
        return found

    def _indicators(self, rows: _Numbers) -> npt.NDArray[np.float32]:
        pairs = zip(rows.T, self.thresholds_, strict=True)
        beyond = [feature[:, None] > places for feature, places in pairs]
        return np.concatenate(beyond, axis=1).astype(np.float32)

    def _ask(self, x: Any) -> npt.NDArray[np.float64]:
        """The trees' score of each row."""
        rows = self._indicators(new_rows(self, x))
        result = self.cluster_.run_stored(self.model_, rows, batch=int(self.predict_batch))
        return result.output.astype(np.float64)[:, 0]


class GradientBoostingClassifier(_Classifier, _Boosted):  # type: ignore[misc]
    """Gradient-boosted trees for two classes, grown on shares as XGBoost grows them on histograms.

    Every tree has `max_depth` whole levels and takes all rows. Whoever owns rows compares them with the
    thresholds, which are of this client and no secret from the owners: the parties get the answers in
    shares. Which thresholds the trees ask, and what their leaves say, nobody learns.

    Args:
        cluster: the parties; by default three processes of this machine, which end with this estimator.
        n_estimators: trees, one an epoch.
        learning_rate: how much of its step a tree takes, up to 1.
        max_depth: levels of a tree, from 1 to 8.
        reg_lambda: XGBoost's λ, from 0.125 to 1024.
        max_bins: thresholds of a feature are at most one fewer.
        feature_range: public bounds `(low, high)`, numbers or one for each feature, which thresholds divide
            evenly. By default they are quantiles of the rows, which this client keeps in `thresholds_`:
            whoever else is to ask the model needs them, and they say something about the rows.
        keep: the name of the kept model; by default one that nothing else has.
        allow: clients who may run it besides this one.
        predict_batch: rows that go to the parties together in `predict`.
        progress: as in `Cluster.fit`: `True` writes steps, loss and time left to standard error.

    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        n_estimators: int = 20,
        learning_rate: float = 0.3,
        max_depth: int = 4,
        reg_lambda: float = 1.0,
        max_bins: int = 32,
        feature_range: Range | None = None,
        keep: str | None = None,
        allow: Sequence[str] = (),
        predict_batch: int = 64,
        progress: Progress | Literal[True] | None = None,
    ) -> None:
        super().__init__(
            cluster,
            n_estimators=n_estimators,
            learning_rate=learning_rate,
            max_depth=max_depth,
            reg_lambda=reg_lambda,
            max_bins=max_bins,
            feature_range=feature_range,
            keep=keep,
            allow=allow,
            predict_batch=predict_batch,
            progress=progress,
        )

    def fit(self, x: Any, y: Any) -> GradientBoostingClassifier:
        """Grow trees on rows and their labels, of two kinds, which may be strings."""
        rows, labels = check_X_y(x, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(
                f"boosted trees tell two classes apart, and the labels have {len(self.classes_)}"
            )
        self._grow(rows, numbers.astype(np.float64), "logistic")
        return self

    def decision_function(self, x: Any) -> Any:
        """The log-odds of the second class, which the parties open to this client."""
        return self._ask(x)

    def predict_proba(self, x: Any) -> Any:
        """Probabilities [rows, 2], computed here from the log-odds."""
        second = 1 / (1 + np.exp(-self._ask(x)))
        return np.stack([1 - second, second], axis=1)

    def predict(self, x: Any) -> Any:
        """The likelier class of each row."""
        return self.classes_[(self._ask(x) > 0).astype(int)]


class GradientBoostingRegressor(_Regressor, _Boosted):  # type: ignore[misc]
    """Gradient-boosted trees for squared distances, grown on shares as XGBoost grows them on histograms.

    Targets are scaled to -1 … 1, by their own largest distance from the mean, which stays here, or by public
    bounds: `target_mean_` and `target_scale_`.

    Args:
        cluster: see `GradientBoostingClassifier`, as for all that is not here.
        target_range: public bounds of the targets, as `feature_range`; targets beyond are refused.

    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        n_estimators: int = 20,
        learning_rate: float = 0.3,
        max_depth: int = 4,
        reg_lambda: float = 1.0,
        max_bins: int = 32,
        feature_range: Range | None = None,
        target_range: Range | None = None,
        keep: str | None = None,
        allow: Sequence[str] = (),
        predict_batch: int = 64,
        progress: Progress | Literal[True] | None = None,
    ) -> None:
        super().__init__(
            cluster,
            n_estimators=n_estimators,
            learning_rate=learning_rate,
            max_depth=max_depth,
            reg_lambda=reg_lambda,
            max_bins=max_bins,
            feature_range=feature_range,
            keep=keep,
            allow=allow,
            predict_batch=predict_batch,
            progress=progress,
        )
        self.target_range = target_range

    def fit(self, x: Any, y: Any) -> GradientBoostingRegressor:
        """Grow trees on rows and their targets."""
        rows, targets = check_X_y(x, y, dtype=np.float64, y_numeric=True)
        if self.target_range is None:
            self.target_mean_ = float(targets.mean())
            self.target_scale_ = float(not_zero(np.abs(targets - self.target_mean_).max()))
        else:
            self.target_mean_, self.target_scale_ = (float(end[0]) for end in middle(self.target_range, 1))
        scaled = (targets - self.target_mean_) / self.target_scale_
        if np.abs(scaled).max() > 1 + 1e-6:
            raise InvalidError("a target is beyond target_range")
        self._grow(rows, scaled, "squares")
        return self

    def predict(self, x: Any) -> Any:
        """The targets of rows, in their own units."""
        return self._ask(x) * self.target_scale_ + self.target_mean_
