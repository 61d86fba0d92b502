"""Parties of several machines, and data sets mapped over them, on Ray: `pip install 'megrez[ray]'`.

Replica k of each party makes a *triple*, which runs sessions by itself. Each organisation starts its party of
every triple on its own Ray cluster (`serve`); a client maps a data set over the triples (`map_batches`).
Between organisations nothing goes through Ray: parties and clients talk over mutual TLS, as without it.

    replicas = megrez.ray.serve(["party0-a.toml", "party0-b.toml"], nodes=["10.0.0.5", "10.0.0.6"])

    triples = [megrez.ray.Triple("cluster-a.toml"), megrez.ray.Triple("cluster-b.toml")]
    scores = megrez.ray.map_batches(images, triples, "lenet", inputs="image", batch=32)
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megrez import _cluster
from megrez._model import Model
from megrez._native import InvalidError, UnsupportedError
from megrez._supervised import Supervised, write_triple
from megrez._triples import MAY_BE_RETRIED, Spread, pause

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = [
    "MAY_BE_RETRIED",
    "Replicas",
    "Runner",
    "Spread",
    "Triple",
    "find",
    "local",
    "map_batches",
    "serve",
]

_LOG = logging.getLogger("megrez.ray")
_NAMESPACE = "megrez"
"""Where named actors are found, whatever namespace a program has."""
_PATIENCE = 5.0
"""Seconds that an actor has to say how its parties are."""


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnsupportedError("megrez.ray needs Ray: pip install 'megrez[ray]'") from error


class _Parties:
    """What an actor does: it keeps parties of one triple running, one or (for trying) all three."""

    def __init__(self, configs: list[str]) -> None:
        self._parties = [Supervised(config) for config in configs]

    def wait(self, timeout: float) -> None:
        for party in self._parties:
            party.wait(timeout)

    def health(self) -> list[dict[str, Any]]:
        return [party.health() for party in self._parties]

    def reload(self) -> None:
        for party in self._parties:
            party.reload()

    def stop(self, timeout: float) -> None:
        for party in self._parties:
            party.stop(timeout)


class Replicas:
    """Actors that keep parties running, each one (`serve`) or a whole triple (`local`).

    A party that dies is started again by its actor, an actor that dies by Ray.
    """

    def __init__(self, actors: Sequence[Any], folder: Path | None = None) -> None:
        self._actors = list(actors)
        self._folder = folder

    def __len__(self) -> int:
        return len(self._actors)

    def health(self) -> list[dict[str, Any]]:
        """How every party is: an object for each.

        `replica` is the number of its actor. `state` is `starting`, `serving`, `waiting` (it has died, and is
        started again in a moment), `failed` (its configuration is wrong: `said` has its words), `stopped`, or
        `lost`: its actor does not answer, because its node is gone or it is being started again; then there
        is nothing but these two. `ready` is whether it admits requests, None if `party.toml` has no `admin`;
        `restarts`, `exit_code` and `said` are about its ends, `pid` and `seconds` about what it is now.
        """
        ray, parties = _ray(), []
        asked = [actor.health.remote() for actor in self._actors]
        for replica, answer in enumerate(asked):
            try:
                found = ray.get(answer, timeout=_PATIENCE)
            except ray.exceptions.RayError:
                found = [{"state": "lost"}]
            parties += [{"replica": replica, **health} for health in found]
        return parties

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until all parties serve; raises their own words if one cannot."""
        ray = _ray()
        try:
            ray.get([actor.wait.remote(timeout) for actor in self._actors])
        except ray.exceptions.RayTaskError as error:
            # In the words and of the class that the party's own process has given.
            raise error.cause from None

    def reload(self) -> None:
        """Have all parties read certificates and policy anew, as SIGHUP does; what runs goes on."""
        _ray().get([actor.reload.remote() for actor in self._actors])

    def stop(self, replica: int | None = None, *, timeout: float = 130.0) -> None:
        """Drain the parties of one replica, or of all, and end their actors.

        Sessions that run have so many seconds to finish. Clients send what comes next to other triples.
        """
        ray = _ray()
        chosen = self._actors if replica is None else [self._actors[replica]]
        stops = [actor.stop.remote(timeout) for actor in chosen]
        ray.wait(stops, num_returns=len(stops), timeout=timeout + 10.0)
        for actor in chosen:
            ray.kill(actor)
        if replica is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def serve(
    parties: Sequence[str | os.PathLike[str] | Sequence[str | os.PathLike[str]]],
    *,
    nodes: Sequence[str] | None = None,
    cpus: float = 1.0,
    name: str | None = None,
    wait: float = 60.0,
) -> Replicas:
    """Start one organisation's party of each triple on its Ray cluster, and keep them running.

    Args:
        parties: the `party.toml` of this organisation's party in triple 0, 1, … Each lies on the machine that
            runs it, with the certificates and the data folder that it names: keys do not go through Ray.
            Several in one entry are run by one actor.
        nodes: the addresses of the machines in the Ray cluster, one for each, as `cluster.toml` must know
            them; by default they run where Ray has room, which is right on one machine only.
        cpus: processors that Ray sets aside for each.
        name: keep them running when this program ends; `find` takes them up again by this name.
        wait: seconds until all must serve; 0 to return at once.

    """
    ray = _ray()
    if nodes is not None and len(nodes) != len(parties):
        raise InvalidError(f"there are {len(parties)} replicas of the party and {len(nodes)} nodes for them")
    kind = ray.remote(_Parties)
    actors = []
    for replica, of in enumerate(parties):
        configs = [of] if isinstance(of, (str, os.PathLike)) else list(of)
        # While an actor waits or stops it still says how its parties are.
        options: dict[str, Any] = {"num_cpus": cpus, "max_restarts": -1, "max_concurrency": 4}
        if nodes is not None:
            # Ray has this resource on every node; any share of it binds the actor there.
            options["resources"] = {f"node:{nodes[replica]}": 0.001}
        if name is not None:
            options |= {"name": f"{name}/{replica}", "namespace": _NAMESPACE, "lifetime": "detached"}
        actors.append(kind.options(**options).remote([os.path.abspath(config) for config in configs]))
    replicas = Replicas(actors)
    if wait > 0:
        try:
            replicas.wait(wait)
        except BaseException:
            replicas.stop(timeout=5.0)
            raise
    return replicas


def find(name: str) -> Replicas:
    """Take up what `serve` has started under this name, from another program."""
    ray = _ray()
    actors: list[Any] = []
    with contextlib.suppress(ValueError):
        while True:
            actors.append(ray.get_actor(f"{name}/{len(actors)}", namespace=_NAMESPACE))
    if not actors:
        raise InvalidError(f"no parties run under the name {name!r} on this Ray cluster")
    return Replicas(actors)


@dataclass(frozen=True)
class Triple:
    """How a client reaches one triple. The files lie at these paths on every node that maps data.

    A client's certificate goes for all triples whose parties have one authority.
    """

    config: str
    """The cluster's file, the same as the triple's parties have."""
    certs: str = "certs"
    """The folder with `ca.pem` and the client's certificate and key."""
    client: str = "alice"
    """The client's name, as in the certificate."""
    protocol: str = "mizar"
    """The protocol of a model that is not stored."""
    timeout: float | None = None
    """Seconds after which a run is given up, to be tried elsewhere; by default never."""

    busy: float = 5
    """For so many seconds a run is repeated while the parties are busy, before it goes to another triple."""

    replica: int | None = None
    """Which replica of the cluster's file this is, if the file has several."""

    def connect(self) -> _cluster.Cluster:
        """Connect to the parties of this triple."""
        return _cluster.connect(
            self.config,
            certs=self.certs,
            client=self.client,
            protocol=self.protocol,
            timeout=self.timeout,
            busy=self.busy,
            replica=self.replica,
        )


def local(triples: int = 2, *, clients: Sequence[str] = ("alice",)) -> tuple[Replicas, list[Triple]]:
    """Start whole triples on this machine, one actor each, for trying things out.

    Gives the actors, and how the first of `clients` reaches the triples; `Replicas.stop` removes their files.
    All keys are in one place, so this protects nothing.
    """
    folder = Path(tempfile.mkdtemp(prefix="megrez-ray-"))
    try:
        files = [write_triple(folder / f"triple{k}", clients) for k in range(triples)]
        replicas = serve(files, cpus=0.1)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    replicas._folder = folder
    places = [folder / f"triple{k}" for k in range(triples)]
    return replicas, [Triple(str(p / "cluster.toml"), str(p / "certs"), clients[0]) for p in places]


class Runner:
    """Runs batches of rows on the triples: the class that `map_batches` gives to Ray.

    It connects when it is first called. Rows whose run fails of one of `MAY_BE_RETRIED` are run again, on
    another triple if one is well, `attempts` times at most. A retry shares the rows anew, so no two triples'
    parties see shares that belong together.
    """

    def __init__(
        self,
        triples: Sequence[Triple],
        model: str | Callable[[], Model],
        *,
        inputs: str | Mapping[str, str],
        batch: int = 32,
        attempts: int = 3,
        spread: Any = None,
    ) -> None:
        """Make one, as `map_batches` does; `spread` is the actor of a `Spread` that workers share."""
        if attempts < 1:
            raise InvalidError(f"a run is attempted once at least, not {attempts} times")
        self._triples, self._batch, self._attempts = list(triples), batch, attempts
        self._inputs = inputs
        self._model: str | Model = model if isinstance(model, str) else model()
        self._spread, self._own = spread, Spread(len(self._triples))
        self._clusters: dict[int, _cluster.Cluster] = {}
        self._me = uuid.uuid4().hex

    def _place(self, failed: int | None) -> int:
        if self._spread is None:
            return self._own.place(self._me, failed)
        return int(_ray().get(self._spread.place.remote(self._me, failed)))

    def _run(self, triple: int, data: Any) -> Mapping[str, Any]:
        if triple not in self._clusters:
            self._clusters[triple] = self._triples[triple].connect()
        cluster = self._clusters[triple]
        if isinstance(self._model, str):
            return cluster.run_stored(self._model, data, batch=self._batch).outputs
        return cluster.run(self._model, data).outputs

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Add the model's outputs to rows, as columns."""
        named = isinstance(self._inputs, str)
        columns = [self._inputs] if isinstance(self._inputs, str) else list(self._inputs.values())
        missing = [column for column in columns if column not in rows]
        if missing:
            raise InvalidError(f"the rows have no columns {missing}; they have {list(rows)}")
        data: Any = (
            rows[columns[0]] if named else dict(zip(self._inputs, map(rows.get, columns), strict=True))
        )
        failed: int | None = None
        for attempt in range(1, self._attempts + 1):
            triple = self._place(failed)
            if triple == failed:
                # There is no other: it gets a moment.
                time.sleep(pause(attempt))
            try:
                outputs = self._run(triple, data)
            except MAY_BE_RETRIED as error:
                with contextlib.suppress(KeyError):
                    self._clusters.pop(triple).close()
                if attempt == self._attempts:
                    raise
                _LOG.warning("triple %d: %s: %s; the rows go elsewhere", triple, type(error).__name__, error)
                failed = triple
            else:
                break
        both = [name for name in outputs if name in rows]
        if both:
            raise InvalidError(f"the rows have columns of the names of outputs: rename {both}")
        return {**rows, **outputs}


def map_batches(
    dataset: Dataset,
    triples: Sequence[Triple],
    model: str | Callable[[], Model],
    *,
    inputs: str | Mapping[str, str],
    batch: int = 32,
    workers: int | None = None,
    attempts: int = 3,
    rest: float = 10.0,
    **options: Any,
) -> Dataset:
    """Map a data set over triples: each row gets the model's outputs as columns of their names.

    The clients are workers on this program's Ray cluster. They see the rows, so this cluster is the data
    owner's.

    Args:
        dataset: rows; an input of several dimensions is a column of tensors.
        triples: where to run. All have the model, if it is stored: upload it to each, `Triple.connect`.
        model: the name of a stored model, or a function that makes a model, which every worker calls once
            (`functools.partial(megrez.compile, path, batch=32)`).
        inputs: the column with the model's input, or columns by the inputs' names.
        batch: inputs per run of a stored model, a batch size that its owner approved; rows in each call.
        workers: clients; each runs one batch at a time. By default one for each triple.
        attempts: how often a batch is tried at most. Only errors of `MAY_BE_RETRIED` lead to another attempt;
            each counts as a run where parties limit runs.
        rest: seconds for which a triple that has failed is left alone while another is well.
        options: further options of `ray.data.Dataset.map_batches`.

    Raises:
        ray.exceptions.RayTaskError: when the data set is read, with the error of a batch that has failed.

    """
    ray = _ray()
    data = importlib.import_module("ray.data")
    spread = ray.remote(Spread).options(num_cpus=0, max_restarts=-1).remote(len(triples), rest)
    strategy = data.ActorPoolStrategy(size=len(triples) if workers is None else workers)
    kwargs = {
        "triples": list(triples),
        "model": model,
        "inputs": inputs,
        "batch": batch,
        "attempts": attempts,
        "spread": spread,
    }
    mapped: Dataset = dataset.map_batches(
        Runner, batch_size=batch, compute=strategy, fn_constructor_kwargs=kwargs, **options
    )
    return mapped
