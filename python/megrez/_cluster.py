"""Clusters: the parties that run a model on shares."""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from megrez import _native
from megrez._data import Array, Given, GivenTensor, arrays, outputs
from megrez._model import Model, compile_request
from megrez._program import program
from megrez._results import Check, Generated, Report, Result
from megrez._stored import Stored
from megrez._training import EpochEnd, Training

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

Progress = Callable[[int], Any]
Mode = Literal["execute", "simulate", "clear"]


def _result(named: list[tuple[str, Array]], tensors: bool, report: Report) -> Result[Any]:
    """Outputs with the names of classes that the report has, in the kind of the data."""
    return Result(outputs(named, tensors, report.names("classes")), report)


class Cluster:
    """Parties, and this process as their client. `local` and `connect` make one.

    Use it in a `with` statement, or call `close`. Several threads may call it at once. An interrupted call
    leaves the batch that runs to the parties, and drops it.
    """

    def __init__(self, native: _native.Cluster) -> None:
        self._native = native
        self._end = weakref.finalize(self, native.close)

    @property
    def protocol(self) -> str:
        """The protocol of `run`."""
        return self._native.protocol

    @property
    def client(self) -> str:
        """The name under which the parties know this process."""
        return self._native.client

    @overload
    def run(
        self, model: Model, data: Given, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[Array]: ...
    @overload
    def run(
        self, model: Model, data: GivenTensor, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[torch.Tensor]: ...
    def run(
        self, model: Model, data: Any, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[Any]:
        """Run a model on data: an array or tensor, or several by the inputs' names.

        The first dimension counts inputs; they go in runs of `model.batch`, the last one filled up. Where an
        output is not made input by input, data is refused unless it is just one run.
        `progress` is called with the number of finished runs.

        With `mode="simulate"` no party runs, and nothing is private: this process does the protocol's steps,
        words and roundings included. The report has the same bytes and rounds, how far the outputs are from
        the clear, and as seconds those of this machine's work and of the network, one after the other. With
        `mode="clear"` the model runs in floating point, as `Model.plain` does.
        """
        given, tensors = arrays(data, list(model.inputs))
        named, report, text = self._native.run(model._native, given, progress, mode)
        return _result(named, tensors, Report(report, text))

    @overload
    def run_stored(
        self,
        name: str,
        data: Given,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[Array]: ...
    @overload
    def run_stored(
        self,
        name: str,
        data: GivenTensor,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[torch.Tensor]: ...
    def run_stored(
        self,
        name: str,
        data: Any,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[Any]:
        """Run a model that is stored at the parties, in a batch size that its owner approved.

        Without `batch`, all data goes in one run. `material` is what `prepare` has made for the first run; by
        default each run takes some of what is in stock for this client, if there is any.
        """
        size = batch
        if size is None:
            first = next(iter(data.values())) if isinstance(data, dict) and data else data
            size = 1 if np.isscalar(first) or getattr(first, "ndim", 1) == 0 else len(first)
        given, tensors = arrays(data, self._native.stored_inputs(name, size))
        named, report, text = self._native.run_stored(name, size, given, material, progress)
        return _result(named, tensors, Report(report, text))

    def prepare(self, name: str, *, batch: int = 1) -> str:
        """Have the parties make the correlated randomness of one run of a stored model ahead.

        Gives the name of this `material` for `run_stored`, which then has only its online phase to do.
        """
        return self._native.prepare(name, batch)

    def keep(self, name: str, runs: int, *, batch: int = 1) -> list[str]:
        """Have the parties make correlated randomness until they have that of so many `runs` in stock.

        Runs of the stored model take from it by themselves, one batch each, while there is any. Gives the
        names of what was made.
        """
        return self._native.keep(name, batch, runs)

    def generate(
        self,
        model: str | os.PathLike[str],
        prompt: Sequence[int],
        tokens: int,
        *,
        choose: Literal["client", "parties"] = "client",
        temperature: float = 0.0,
        top: int | None = None,
        draft: str | os.PathLike[str] | None = None,
        draft_tokens: int = 4,
        on_token: Callable[[int, float], Any] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Generated:
        """Continue a text of tokens with a language model, by the most likely ones or by some that are drawn.

        Keys and values of attention stay with the parties between tokens, in shares.

        Args:
            model: an ONNX file that takes tokens and what it has seen, as in `examples/language`; or, with
                random weights, `gpt2`, `gpt2-tiny`, `llama-tiny` or `llama-1b`; `llama-7b` if its weights
                are public.
            prompt: the tokens to continue.
            tokens: how many to add.
            choose: who finds the most likely token. The client learns how likely every token is; if the
                parties find it, it learns the token alone, at the cost of comparisons.
            temperature: tokens are drawn with chances in proportion to e^(logit / temperature); 0 takes the
                most likely one.
            top: draw from so many of the most likely tokens; from all if not given.
            draft: a small language model, as for `model`, that this process runs in the clear: it proposes
                tokens, and the parties say of several at once how many are right.
            draft_tokens: how many it proposes at a time.
            on_token: called with every token as it comes, and the seconds that it took online.
            progress: called with the number of tokens that are written.
            options: those of `compile` from `ring` to `net`.
        """
        request = compile_request(**{"protocol": self.protocol, **options})
        drafts = None if draft is None else (os.fspath(draft), draft_tokens)
        count = 0

        def heard(token: int, seconds: float) -> None:
            nonlocal count
            count += 1
            if on_token is not None:
                on_token(token, seconds)
            if progress is not None:
                progress(count)

        written, costs, proven = self._native.generate(
            os.fspath(model), [*prompt], (tokens, choose, temperature, top, drafts), request, heard
        )
        return Generated(written, [json.loads(cost) for cost in costs], proven)

    def upload(
        self, model: Model, *, name: str, allow: Sequence[str], batches: Sequence[int] | None = None
    ) -> None:
        """Keep the model's weights at the parties, in shares, for the clients in `allow` to run.

        They may run it in the batch sizes `batches`; by default in the model's own.
        """
        if isinstance(allow, str):
            raise _native.InvalidError(f"allow is a list of clients, such as [{allow!r}]")
        self._native.upload(model._native, name, allow, [model.batch] if batches is None else batches)

    def fit(
        self,
        model: Model,
        x: Given | GivenTensor,
        y: Given | GivenTensor,
        *,
        epochs: int = 1,
        batch: int = 32,
        shards: int = 1,
        rate: float | str = "2^-4",
        optimizer: Literal["sgd", "adam", "amsgrad"] = "sgd",
        momentum: float | None = None,
        weight_decay: float | str = 0.0,
        halve_every: int | None = None,
        loss: Literal["cross-entropy", "binary-cross-entropy", "hinge", "mse"] = "cross-entropy",
        only: Sequence[str] = (),
        keep: str | None = None,
        allow: Sequence[str] = (),
        batches: Sequence[int] | None = None,
        validation_data: tuple[Given | GivenTensor, Given | GivenTensor] | None = None,
        guard: bool = True,
        rehearse: int = 200,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
        wait: bool = True,
    ) -> Training:
        """Train a model on shares, and have the parties keep it: this process never has the new weights.

        The rows go to the parties in shares, which then train by themselves. What they open is the mean loss
        of each epoch, to this client, and what `validation_data` and `guard` say: `history` of what is
        returned.

        Args:
            model: a compiled model, whose weights training begins with.
            x: rows; they lie in the model's `input_range`.
            y: class numbers, or a row of numbers for each row.
            epochs: how often every row is learnt from.
            batch: rows of a step. Rows that fill no batch are left out of an epoch.
            shards: the rows of a step come in so many shards of one size, with which the replicas of the
                parties deal at the same time; without replicas one after the other, in less memory.
            rate: c·2^-k with c below 16: `"2^-4"`, `0.125`.
            optimizer: how weights follow their gradients. Adam and AMSGrad cost several times as much.
            momentum: a multiple of 1/256 below 1; by default 0, of Adam and AMSGrad 230/256.
            weight_decay: as in torch: a step takes rate times this of each weight away; a number as
                `rate` is, or 0.
            halve_every: the rate is halved after every so many epochs; by default it stays.
            loss: softmax cross-entropy; the cross-entropy of a sigmoid for each output, or its hinge loss, of
                labels 0 and 1 (one output for two classes, or each class against all others); or half the
                squared distance.
            only: the weights, or layers, that are trained; the others are frozen. Default: all.
            keep: the name of the stored model; by default one that nothing else has.
            allow: the clients who may run it besides this one.
            batches: the batch sizes in which it may be run; by default the model's own.
            validation_data: rows and labels that nothing is learnt from: they go to the parties in shares,
                which count after every epoch how many of them the model is right about, `accuracy` in
                `history`; without classes they take its loss, `validation_loss`.
            guard: the parties look after every epoch, in one bit, whether the weights are within bounds, and
                end the job if not.
            rehearse: at most so many steps are rehearsed in the clear, for the plan to be laid out by.
            epsilon: train with differential privacy: the parties add noise that none of them knows, so that
                nothing seen of the weights is more than e^epsilon times as likely with one row as with
                another in its place. Nothing is rehearsed, and `history` is not covered.
            delta: but with this probability, well below one over the number of rows.
            clip: the norm to which the gradient of a row is scaled down.
            callbacks: each is called after every epoch with its number, from 0, and its loss.
            progress: called with the number of finished steps; `True` writes a line for people to standard
                error instead, with the last loss and the time left.
            wait: wait until the job has ended, or return at once.

        """
        if shards < 1:
            raise _native.InvalidError("shards is at least 1")
        given, _ = arrays(x, list(model.inputs))
        labels, _ = arrays(y, ["y"])
        held_out: list[Any] = []
        if validation_data is not None:
            rows, of_rows = validation_data
            held_out = [*arrays(rows, list(model.inputs))[0], *arrays(of_rows, ["y"])[0]]
        name = keep or f"trained-{secrets.token_hex(8)}"
        job, own = _native.begin(
            self._native,
            model._native,
            [*given, *labels, *held_out],
            (loss, str(rate), momentum, str(weight_decay), halve_every or 0, optimizer),
            list(only),
            (batch, shards, epochs, rehearse, None if epsilon is None else (epsilon, delta, clip)),
            (name, list(allow), [model.batch] if batches is None else list(batches), guard),
        )
        training = Training(self, bytes(job), name, epochs, own, callbacks, progress)
        return training.wait() if wait else training

    def fit_trees(
        self,
        x: Given | GivenTensor,
        y: Given | GivenTensor,
        *,
        objective: Literal["logistic", "squares"],
        trees: int = 20,
        depth: int = 4,
        rate: float = 0.3,
        penalty: float = 1.0,
        keep: str | None = None,
        allow: Sequence[str] = (),
        batches: Sequence[int] = (64,),
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
        wait: bool = True,
    ) -> Training:
        """Grow boosted trees on shares, one an epoch, and have the parties keep them: nobody has them.

        What the parties open is, for each tree, how well those before it did: the mean squared distance of
        probabilities from labels, or half of that of targets; to this client, in `history`. The kept model
        takes rows like `x` and gives scores [rows, 1]: logits, or targets.

        Args:
            x: indicators [rows, columns], 0 or 1: whether a feature exceeds a threshold.
            y: labels 0 and 1 of `"logistic"`, or targets, one for each row.
            objective: the binary cross-entropy, or half the squared distance.
            trees: how many.
            depth: levels of each, which has 2^depth leaves.
            rate: how much of its step a tree takes.
            penalty: added to the second derivatives of a leaf, from 0.125 on.
            keep: as in `fit`.
            allow: as in `fit`.
            batches: the batch sizes in which the model may be run.
            callbacks: as in `fit`, of a tree for an epoch.
            progress: as in `fit`.
            wait: as in `fit`.

        """
        name = keep or f"trained-{secrets.token_hex(8)}"
        given, _ = arrays(x, ["x"])
        targets, _ = arrays(y, ["y"])
        job, own = _native.boost(
            self._native,
            [*given, *targets],
            (objective, trees, depth, rate, penalty),
            (name, list(allow), list(batches)),
        )
        training = Training(self, bytes(job), name, trees, own, callbacks, progress)
        return training.wait() if wait else training

    def training(
        self,
        path: str | os.PathLike[str],
        *,
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
    ) -> Training:
        """Take up a training of this client that `Training.save` has written: to follow or to `resume` it.

        Losses of epochs that have ended come again, to the callbacks too.
        """
        return Training._load(self, path, callbacks, progress)

    def stored(self) -> list[Stored]:
        """What the parties keep that this client owns or may use, by kind and name."""
        return [Stored(**entry) for entry in json.loads(_native.stored(self._native))]

    def allow(
        self,
        name: str,
        clients: Sequence[str],
        *,
        runs: int | None = None,
        rows: int | None = None,
        days: int | None = None,
        rules: str | os.PathLike[str] | None = None,
    ) -> None:
        """Let these clients, and no others but this one, use a model or rows that it has stored.

        `runs`, `rows` and `days` limit how far each of them may, from now on; a run has as many rows as
        its batch. `rules` is a file with what training on stored rows has to keep to. This client signs it,
        and every party enforces it.
        """
        if isinstance(clients, str):
            raise _native.InvalidError(f"clients is a list of names, such as [{clients!r}]")
        limits = (runs, rows, days)
        _native.allow(self._native, name, clients, limits, None if rules is None else os.fspath(rules))

    def remove(self, name: str) -> None:
        """Have the parties remove a model, or rows, that this client has stored under a name."""
        _native.remove(self._native, name)

    def discard(self, material: str) -> None:
        """Have the parties remove correlated randomness that `prepare` has made and no run has used."""
        _native.discard(self._native, material)

    def check(self, model: Model, data: Given | GivenTensor) -> Check:
        """Run the first batch of the data with every layer's output revealed to this process, and compare.

        For whoever owns both model and data: it reveals what lies between them.
        """
        given, _ = arrays(data, list(model.inputs))
        return Check(*self._native.check(model._native, given))

    def parties(self) -> list[dict[str, Any]]:
        """What each party says of itself: release, device, clock, sessions that run."""
        parties: list[dict[str, Any]] = json.loads(self._native.info())
        return parties

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        # A connection has no copies. scikit-learn copies the parameters of estimators, of which it is one.
        return self

    def close(self) -> None:
        """End the parties, if `local` started them, and the connection."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._end.alive else "closed"
        return f"<megrez.Cluster of {self.protocol}, client {self.client}, {state}>"


def local(
    *,
    protocol: str = "mizar",
    net: str = "loopback",
    parties: Literal["process", "thread"] = "process",
    device: str = "auto",
    insecure: bool = False,
) -> Cluster:
    """Start parties on this machine, for trying things out and for measurements.

    Args:
        protocol: one of `protocols()`.
        net: the network between them: `loopback`, `lan`, `wan`, or its round trip and rate: `20ms,500mbps`.
        parties: processes that talk over mutual TLS, or threads of this process.
        device: where they compute: `auto`, `cpu` or `cuda:N`, or one for each party: `cpu,cuda:0,cuda:0`.
        insecure: allow a protocol that does not protect the data.

    """
    if parties == "thread":
        return Cluster(_native.Cluster.threads(protocol, net, insecure, device))
    if parties != "process":
        raise _native.InvalidError(f'parties is "process" or "thread", not {parties!r}')
    return Cluster(_native.Cluster.processes(protocol, net, insecure, device, *program()))


def connect(
    config: str | os.PathLike[str],
    *,
    certs: str | os.PathLike[str] = "certs",
    client: str = "alice",
    protocol: str = "mizar",
    net: str = "loopback",
    insecure: bool = False,
    timeout: float | None = None,
    busy: float | None = None,
    replica: int | None = None,
) -> Cluster:
    """Connect to parties that run elsewhere.

    Args:
        config: the cluster's file, the same as the parties have.
        certs: the folder with `ca.pem` and this client's certificate and key.
        client: this client's name, as in the certificate.
        protocol: the protocol of `run`; a stored model has its own.
        net: ask the parties to shape their links, for measurements.
        insecure: allow a protocol that does not protect the data.
        timeout: give a call up after so many seconds, waiting for its turn included; by default it
            may take as long as it likes.
        busy: while the parties are busy, repeat a call for so many seconds, with growing pauses, before it
            fails of `BusyError`; by default a minute.
        replica: which replica of the cluster, from 0; by default one that has little to do. Jobs, and
            material that is named, are at one replica only.

    """
    seconds = (timeout, busy)
    place = (config, replica)
    return Cluster(_native.Cluster.connect(place, certs, client, protocol, net, insecure, seconds))
