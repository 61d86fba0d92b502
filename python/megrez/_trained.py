"""What estimators that are trained on shares have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from megrez._cluster import Cluster, local
from megrez._native import InvalidError
from megrez._training import Training

_Numbers = npt.NDArray[np.floating[Any]]
_Base: Any = BaseEstimator

Range = tuple[npt.ArrayLike, npt.ArrayLike]
"""Public bounds, numbers or one for each column."""


class Trained(_Base):  # type: ignore[misc]
    """An estimator whose model the parties keep in shares."""

    cluster: Cluster | None
    training_: Training
    """The job: `training_.history`, `training_.plot()`."""

    def _parties(self) -> Cluster:
        """The cluster that was given, or one of this machine, which lasts as long as this estimator."""
        if self.cluster is not None:
            self.cluster_ = self.cluster
        elif "cluster_" not in self.__dict__:
            self.cluster_ = local()
        return self.cluster_

    @property
    def model_(self) -> str:
        """The name of the model that the parties keep, for `run_stored`; of rows as `fit` shares them."""
        check_is_fitted(self, "training_")
        return self.training_.model

    @property
    def loss_curve_(self) -> list[float]:
        """The mean loss of each epoch: all that training opens."""
        check_is_fitted(self, "training_")
        return self.training_.history["loss"]

    @property
    def loss_(self) -> float:
        """The mean loss of the last epoch."""
        return self.loss_curve_[-1]

    @property
    def n_iter_(self) -> int:
        """How many epochs there were."""
        return len(self.loss_curve_)

    @property
    def coef_(self) -> Any:
        """Never there: the parties keep the weights in shares."""
        raise AttributeError(_HIDDEN.format("coef_"))

    @property
    def intercept_(self) -> Any:
        """Never there, as `coef_`."""
        raise AttributeError(_HIDDEN.format("intercept_"))

    def __getstate__(self) -> Any:
        raise InvalidError(
            "an estimator holds a connection and no weights, so there is nothing to keep of it in a file: "
            "give the model a name by keep=, and ask it by Cluster.run_stored"
        )


_HIDDEN = (
    "there is no {}: the parties keep the weights in shares, and nobody holds them. "
    "To reveal weights to yourself, train by `megrez train --weights-to`"
)


def middle(bounds: Range, width: int) -> tuple[_Numbers, _Numbers]:
    """The middle of public bounds, and half of their distance, for each column."""
    low, high = (np.broadcast_to(np.asarray(end, np.float64), (width,)) for end in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise InvalidError("a range is a pair of finite bounds, the lower one first")
    return (low + high) / 2, (high - low) / 2


def not_zero(scales: _Numbers) -> _Numbers:
    """Scales to divide by: a column of one value alone has none."""
    return np.where(scales > 0, scales, 1.0)
