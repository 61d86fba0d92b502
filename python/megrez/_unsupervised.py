"""Clusters and principal components of the rows of two parties, as programs of `megrez.float32`.

The names of `megrez.sklearn`; docs/training.md says what is opened.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from megrez import float32
from megrez._native import InvalidError

_Numbers = npt.NDArray[np.floating[Any]]
_Base: Any = BaseEstimator
_Cluster: Any = ClusterMixin
_Transformer: Any = TransformerMixin


def new_rows(estimator: Any, x: Any) -> _Numbers:
    """Rows for an estimator that was fitted, checked as scikit-learn does it."""
    check_is_fitted(estimator)
    rows: _Numbers = check_array(x, dtype=np.float64)
    found, expected = rows.shape[1], estimator.n_features_in_
    if found != expected:
        name = type(estimator).__name__
        raise ValueError(f"X has {found} features, but {name} is expecting {expected} features as input")
    return rows


class _OfTwo(_Base):  # type: ignore[misc]
    """What both have in common: rows of two parties, and a pair that computes."""

    def _rows(self, x: Any, owners: Any) -> tuple[_Numbers, _Numbers]:
        """The rows of each party; without `owners` party 0 has the first half."""
        rows = check_array(x, dtype=np.float64, ensure_min_samples=2)
        if owners is None:
            owners = np.arange(len(rows)) >= len(rows) // 2
        of = np.asarray(owners)
        if of.shape != (len(rows),) or not np.isin(of, (0, 1)).all() or len(np.unique(of)) != 2:
            raise InvalidError("owners say 0 or 1 for each row, and each party has a row")
        self.n_features_in_ = rows.shape[1]
        return rows[of == 0], rows[of == 1]

    def _open(self, program: Any) -> list[_Numbers]:
        """Run a program on the pair and open what it gives, and nothing else."""
        pair = float32.local() if self.pair is None else self.pair
        try:
            before = pair.cost
            opened = pair.reveal(*program(pair))
            sent = zip(pair.cost.sent_bytes, before.sent_bytes, strict=True)
            self.cost_ = float32.Cost(
                pair.cost.seconds - before.seconds,
                pair.cost.rounds - before.rounds,
                tuple(now - then for now, then in sent),
            )
        finally:
            if self.pair is None:
                pair.close()
        if not all(np.isfinite(array).all() for array in opened):
            raise InvalidError(
                "the result is not finite: numbers exceed single precision, or there are no more components"
            )
        return [np.asarray(array, np.float64) for array in opened]


class KMeans(_Cluster, _OfTwo):  # type: ignore[misc]
    """Lloyd's k-means on the rows of two parties, who learn the centres and nothing else.

    Each iteration compares every row with every centre: 4 kB for each number of all rows and each centre,
    from either party, and some thousand rounds. It always takes `max_iter` of them, since whether a
    row has moved is not opened. A cluster that no row is in keeps its centre.

    Args:
        n_clusters: how many centres.
        pair: two parties of `megrez.float32`; by default two processes of this machine, which end with `fit`.
        max_iter: iterations.
        init: public centres to begin with, [clusters, features]. By default party 0 chooses some of its own
            rows by k-means++, and brings them in shares.
        random_state: the seed of that choice.

    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        pair: float32.Pair | None = None,
        max_iter: int = 10,
        init: npt.ArrayLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.pair = pair
        self.max_iter = max_iter
        self.init = init
        self.random_state = random_state

    def fit(self, x: Any, y: Any = None, *, owners: Any = None) -> KMeans:  # noqa: ARG002
        """Find the centres; `owners` says 0 or 1 for each row, whose it is. `labels_` is computed here."""
        parts = self._rows(x, owners)
        if self.max_iter < 1 or not 1 <= self.n_clusters <= len(parts[0]):
            raise InvalidError("max_iter is at least 1, and n_clusters from 1 to the rows of party 0")
        if self.init is not None and np.shape(self.init) != (self.n_clusters, self.n_features_in_):
            raise InvalidError(f"init is {np.shape(self.init)}, not [clusters, features]")
        (centres,) = self._open(lambda pair: [self._centres(pair, parts)])
        self.cluster_centers_ = centres
        self.n_iter_ = self.max_iter
        self.labels_ = self.predict(x)
        return self

    def _centres(self, pair: float32.Pair, parts: tuple[_Numbers, _Numbers]) -> Any:
        rows = float32.concatenate([pair.array(parts[0], owner=0), pair.array(parts[1], owner=1)])
        if self.init is not None:
            centres: Any = pair.public(np.asarray(self.init, np.float64))
        else:
            random = check_random_state(self.random_state)
            chosen, _ = kmeans_plusplus(parts[0], self.n_clusters, random_state=random)
            centres = pair.array(chosen, owner=0)
        for _ in range(self.max_iter):
            distances = float32.square(rows[:, None, :] - centres[None]).sum(axis=2)
            nearest, members = distances[:, 0], [True]
            for place in range(1, self.n_clusters):
                closer = distances[:, place] < nearest
                nearest = float32.where(closer, distances[:, place], nearest)
                members = [float32.logical_and(before, ~closer) for before in members] + [closer]
            centres = float32.stack([_mean(rows, *of) for of in zip(members, centres, strict=True)])
        return centres

    def predict(self, x: Any) -> Any:
        """The nearest centre of each row, in the clear: whoever has a row knows the centres."""
        rows = new_rows(self, x)
        return ((rows[:, None, :] - self.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)


def _mean(rows: Any, member: Any, before: Any) -> Any:
    """The mean of the rows that are members; where there are none, what it was before."""
    if member is True:
        return rows.mean(axis=0)
    count = float32.where(member, 1.0, 0.0).sum()
    total = float32.where(member[:, None], rows, 0.0).sum(axis=0)
    return float32.where(count > 0.5, total / float32.maximum(count, 1.0), before)


class PCA(_Transformer, _OfTwo):  # type: ignore[misc]
    """Principal components of the rows of two parties, who learn these, their variances and the mean.

    Each party computes the mean and the scatter of its own rows by itself; on shares these are joined, and
    the components are found one after the other: the covariance is squared `max_iter` times, so that the
    largest component is left, and then taken off. The cost depends on features alone, not on rows: features³
    products for each squaring. A component whose variance is near the next one's is found the less exactly,
    by (next / variance) to the power 2^max_iter.

    Args:
        n_components: how many, largest first.
        pair: as in `KMeans`.
        max_iter: how often the covariance is squared for each component.
        random_state: the seed of the public direction in which the search begins.

    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        pair: float32.Pair | None = None,
        max_iter: int = 7,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.pair = pair
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, x: Any, y: Any = None, *, owners: Any = None) -> PCA:  # noqa: ARG002
        """Find the components; `owners` says 0 or 1 for each row, whose it is."""
        parts = self._rows(x, owners)
        if self.max_iter < 1 or not 1 <= self.n_components <= self.n_features_in_:
            raise InvalidError("max_iter is at least 1, and n_components from 1 to the features")
        self.mean_, vectors, self.explained_variance_ = self._open(lambda pair: self._components(pair, parts))
        self.n_iter_ = self.max_iter
        # As scikit-learn has it: the largest number of a component is positive.
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
        self.components_ = vectors * np.where(largest < 0, -1, 1)
        return self

    def _components(self, pair: float32.Pair, parts: tuple[_Numbers, _Numbers]) -> list[Any]:
        first, second = (len(part) for part in parts)
        count = first + second
        means, scatters = [], []
        for owner, part in enumerate(parts):
            centred = part - part.mean(axis=0)
            means.append(pair.array(part.mean(axis=0), owner=owner))  # type: ignore[arg-type]
            scatters.append(pair.array(centred.T @ centred, owner=owner))  # type: ignore[arg-type]
        # The scatter of all rows is that of each part, and that of the parts' means.
        apart = means[1] - means[0]
        mean = means[0] + apart * (second / count)
        scatter = scatters[0] + scatters[1] + apart[:, None] * apart[None] * (first * second / count)
        covariance = scatter * (1 / (count - 1))
        start = check_random_state(self.random_state).normal(size=self.n_features_in_)
        vectors, variances = [], []
        for _ in range(self.n_components):
            power = covariance
            for _ in range(self.max_iter):
                power = power / _trace(power)
                power = power @ power
            vector = power @ pair.public(start)
            vector = vector / _trace(power)
            vector = vector / float32.sqrt(float32.square(vector).sum())
            variance = (vector * (covariance @ vector)).sum()
            covariance = covariance - vector[:, None] * vector[None] * variance
            vectors.append(vector)
            variances.append(variance)
        return [mean, float32.stack(vectors), float32.stack(variances)]

    def transform(self, x: Any) -> Any:
        """The rows' coordinates along the components, in the clear."""
        return (new_rows(self, x) - self.mean_) @ self.components_.T

    def inverse_transform(self, x: Any) -> Any:
        """Rows from coordinates."""
        check_is_fitted(self)
        return np.asarray(x) @ self.components_ + self.mean_


def _trace(matrix: Any) -> Any:
    """The sum of the diagonal; of a covariance positive."""
    places = range(len(matrix))
    return float32.stack([matrix[place, place] for place in places]).sum()
