"""Training as a job of the parties."""

from __future__ import annotations

import megrez
import numpy as np
import pytest
from conftest import Array


def test_a_model_is_trained_further_and_stays_with_the_parties(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    mirrored = np.ascontiguousarray(images[:60, :, :, ::-1])
    heard: list[tuple[int, float]] = []
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
    )
    assert training.state == "done"
    losses = training.history["loss"]
    assert heard == list(enumerate(losses))
    assert len(losses) == 3
    assert losses[2] < losses[0]
    output = processes.run_stored(training.model, mirrored).output
    before = (small.plain(mirrored).argmax(axis=1) == labels[:60]).mean()
    assert (output.argmax(axis=1) == labels[:60]).mean() > before
    with pytest.raises(megrez.Error, match="is stored already"):
        processes.fit(small, mirrored, labels[:60], batch=20, rehearse=1, keep=training.model)


def test_damaged_rows_are_refused_before_a_party_hears_of_them(
    processes: megrez.Cluster, small: megrez.Model, images: Array, labels: Array
) -> None:
    with pytest.raises(megrez.Error, match="no class"):
        processes.fit(small, images[:20], labels[:20] + 9, batch=10, rehearse=1)
    with pytest.raises(megrez.Error, match="no rate"):
        processes.fit(small, images[:20], labels[:20], batch=10, rate=0.3)
    with pytest.raises(megrez.Error, match="20 rows"):
        processes.fit(small, images[:20], labels[:19], batch=10)
