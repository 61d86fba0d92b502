"""Training as a job of the parties."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

import megrez
import numpy as np
import pytest
from conftest import Array
from megrez._networks import perceptron


def test_a_model_is_trained_further_and_stays_with_the_parties(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    mirrored = np.ascontiguousarray(images[:60, :, :, ::-1])
    heard: list[tuple[int, float]] = []
    steps: list[int] = []
    training = processes.fit(
        small,
        mirrored,
        labels[:60],
        epochs=3,
        batch=20,
        rate="2^-6",
        rehearse=2,
        batches=[60],
        callbacks=[lambda epoch, loss: heard.append((epoch, loss))],
        progress=steps.append,
    )
    assert training.state == "done"
    assert steps == sorted(set(steps))
    assert steps[-1] == 9
    assert training.steps == (9, 9)
    losses = training.history["loss"]
    assert heard == list(enumerate(losses))
    assert len(losses) == 3
    assert losses[2] < losses[0]
    output = processes.run_stored(training.model, mirrored).output
    before = (small.plain(mirrored).argmax(axis=1) == labels[:60]).mean()
    assert (output.argmax(axis=1) == labels[:60]).mean() > before
    with pytest.raises(megrez.Error, match="is stored already"):
        processes.fit(small, mirrored, labels[:60], batch=20, rehearse=1, keep=training.model)


def test_held_out_rows_are_counted_on_after_every_epoch(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    held_out = (images[60:90], labels[60:90])
    before = {entry.name for entry in processes.stored()}
    training = processes.fit(
        small,
        images[:60],
        labels[:60],
        epochs=2,
        batch=20,
        rate="2^-6",
        rehearse=2,
        batches=[30],
        validation_data=held_out,
    )
    assert set(training.history) == {"loss", "accuracy"}
    right = training.history["accuracy"]
    output = processes.run_stored(training.model, held_out[0]).output
    assert len(right) == 2
    # But for a row between two digits.
    assert abs(right[1] - (output.argmax(axis=1) == held_out[1]).mean()) <= 1 / 30 + 1e-6
    targets = np.eye(10, dtype=np.float32)
    squares = processes.fit(
        small,
        images[:60],
        targets[labels[:60].astype(int)],
        loss="mse",
        batch=20,
        rate="2^-8",
        rehearse=2,
        validation_data=(held_out[0], targets[held_out[1].astype(int)]),
    )
    assert set(squares.history) == {"loss", "validation_loss"}
    with pytest.raises(megrez.Error, match="label"):
        processes.fit(small, images[:60], labels[:60], batch=20, validation_data=(images[:30], labels[:29]))
    left = {entry.name for entry in processes.stored()} - before
    assert left == {training.model, squares.model}


def test_weights_beyond_their_bounds_end_a_training(processes: megrez.Cluster) -> None:
    # Half of a squared distance from targets, at a rate at which every step makes the error larger.
    model = megrez.compile(perceptron([2, 1], None), batch=4)
    rows = np.array([[0, 1], [1, 0], [0, 0.5], [0.5, 0]])
    targets = rows @ np.array([[20], [-12]])
    with pytest.raises(megrez.Error, match=r"beyond the job's bounds.* is sealed"):
        processes.fit(model, rows, targets, loss="mse", epochs=40, batch=4, rate=15, rehearse=0)


def test_the_shards_of_a_step_add_up(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    def losses(shards: int) -> list[float]:
        x, y = images[:60], labels[:60]
        # A step has all rows, so their order does not matter.
        training = processes.fit(small, x, y, epochs=2, batch=60, shards=shards, rate="2^-6", rehearse=2)
        return training.history["loss"]

    assert losses(3) == pytest.approx(losses(1), abs=5e-3)
    with pytest.raises(megrez.Error, match="shards of one size"):
        losses(7)
    with pytest.raises(megrez.InvalidError, match="at least 1"):
        losses(0)


def test_damaged_rows_are_refused_before_a_party_hears_of_them(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    with pytest.raises(megrez.Error, match="no class"):
        processes.fit(small, images[:20], labels[:20] + 9, batch=10, rehearse=1)
    with pytest.raises(megrez.Error, match="no rate"):
        processes.fit(small, images[:20], labels[:20], batch=10, rate=0.3)
    with pytest.raises(megrez.Error, match="20 rows"):
        processes.fit(small, images[:20], labels[:19], batch=10)


def test_a_training_is_saved_plotted_and_told(
    processes: megrez.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = megrez.compile(perceptron([2, 2], None), batch=4)
    rows = np.array([[0, 1], [1, 0], [0, 0.5], [0.5, 0]])
    training = processes.fit(model, rows, [0, 1, 0, 1], epochs=2, batch=2, rehearse=1, progress=True)
    assert "step 4 of 4, epoch 2 of 2, loss " in capsys.readouterr().err
    losses = training.history["loss"]
    line = training.plot().lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [1, 2]
    assert np.asarray(line.get_ydata()).tolist() == losses
    path = tmp_path / "training.json"
    training.save(path)
    again = processes.training(path)
    assert again.look() == "done"
    assert again.history["loss"] == losses
    assert again.model == training.model


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rates_fall_weights_decay_and_targets_are_any_numbers(
    processes: megrez.Cluster, optimizer: Literal["sgd", "adam"]
) -> None:
    model = megrez.compile(perceptron([2, 1], None), batch=4)
    rows = np.array([[0, 1], [1, 0], [0, 0.5], [0.5, 0]])
    targets = rows @ np.array([[20], [-12]])
    training = processes.fit(
        model,
        rows,
        targets,
        epochs=4,
        batch=2,
        loss="mse",
        rate="2^-2",
        optimizer=optimizer,
        weight_decay="2^-8",
        halve_every=2,
        rehearse=8,
    )
    losses = training.history["loss"]
    assert len(losses) == 4
    assert losses[3] < losses[0]
    with pytest.raises(megrez.Error, match="no optimiser `adagrad`"):
        processes.fit(model, rows, targets, batch=2, optimizer="adagrad")  # type: ignore[arg-type]
    with pytest.raises(megrez.Error, match="no rate"):
        processes.fit(model, rows, targets, batch=2, weight_decay=0.3)


def test_weights_that_tell_little_of_a_row(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    model = megrez.compile(perceptron([8, 2], None), batch=4)
    random = np.random.default_rng(0)
    rows = random.uniform(-1, 1, (256, 8))
    kinds = (rows @ np.linspace(-1, 1, 8) > 0).astype(np.float32)
    training = processes.fit(model, rows, kinds, epochs=8, batch=256, rate=2, epsilon=8.0, delta=1e-5)
    right = processes.run_stored(training.model, rows, batch=4).output.argmax(axis=1) == kinds
    assert right.mean() > 0.75
    # Another fit has other noise.
    losses = training.history["loss"]
    again = processes.fit(model, rows, kinds, epochs=8, batch=256, rate=2, epsilon=8.0)
    assert max(abs(np.subtract(again.history["loss"], losses))) > 1e-4
    # Convolutions, too.
    losses = processes.fit(small, images[:60], labels[:60], epochs=2, batch=60, epsilon=8.0).history["loss"]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    with pytest.raises(megrez.InvalidError, match="epsilon is above 0"):
        processes.fit(model, rows, kinds, epsilon=0.0)
    with pytest.raises(megrez.InvalidError, match="the clip is from"):
        processes.fit(model, rows, kinds, epsilon=1.0, clip=1000.0)


@pytest.mark.parametrize("loss", ["binary-cross-entropy", "hinge"])
def test_losses_of_yes_and_no(
    processes: megrez.Cluster, loss: Literal["binary-cross-entropy", "hinge"]
) -> None:
    model = megrez.compile(perceptron([8, 1], None), batch=4)
    rows = np.random.default_rng(0).uniform(-1, 1, (256, 8))
    kinds = (rows @ np.linspace(-1, 1, 8) > 0).astype(np.float32)
    training = processes.fit(model, rows, kinds, loss=loss, epochs=6, batch=32, rate=0.5)
    right = (processes.run_stored(training.model, rows, batch=4).output[:, 0] > 0) == kinds
    assert right.mean() > 0.9
    with pytest.raises(megrez.InvalidError, match="label 3 is 2"):
        processes.fit(model, rows[:32], np.where(np.arange(32) == 3, 2.0, 0.0), loss=loss, batch=32)


def test_a_job_runs_over_the_links_of_its_cluster() -> None:
    model = megrez.compile(perceptron([2, 2], None), batch=2)
    rows = np.array([[0, 1], [1, 0]])
    with megrez.local(net="100ms,1gbps") as cluster:
        start = time.monotonic()
        cluster.fit(model, rows, [0, 1], batch=2, rehearse=1)
        # A step takes more than twenty rounds, each at least half of a round-trip time.
        assert time.monotonic() - start > 20 * 0.05


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "megrez.training/9"},
        {"job": "no base64"},
        {"job": None},
        {"epochs": "2"},
        # What is removed at the end can be nothing but what `fit` has stored for the job.
        {"stored": ["somebody's model"]},
        {"stored": "rows-0123456789abcdef"},
    ],
    ids=str,
)
def test_a_damaged_file_of_a_training_is_refused(
    threads: megrez.Cluster, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "training.json"
    saved = {"schema": "megrez.training/1", "model": "m", "epochs": 2, "stored": [], "job": ""}
    path.write_text(json.dumps({**saved, **change}))
    with pytest.raises(megrez.DamagedFileError, match="training"):
        threads.training(path)
    path.write_text("[" * 100_000)
    with pytest.raises(megrez.DamagedFileError, match="training"):
        threads.training(path)
    with pytest.raises(megrez.InvalidError, match="nowhere"):
        threads.training(tmp_path / "nowhere")
