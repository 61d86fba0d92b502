"""Weights that every party knows: files that plans name, products that send nothing."""

from __future__ import annotations

from pathlib import Path

import megrez
import numpy as np
import pytest
from conftest import DIGITS, Array


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of public weights of a test's own, for its parties too."""
    folder = tmp_path / "weights"
    monkeypatch.setenv("MEGREZ_WEIGHTS", str(folder))
    return folder


def test_a_model_whose_weights_are_public(weights: Path, images: Array) -> None:
    secret = megrez.compile(DIGITS / "lenet.onnx", batch=60)
    with megrez.local() as cluster:
        for width in ("public", "public-int8"):
            model = megrez.compile(DIGITS / "lenet.onnx", batch=60, weights=width)
            result = cluster.run(model, images[:60])
            assert (result.output.argmax(axis=1) == secret.plain(images[:60]).argmax(axis=1)).all()
            np.testing.assert_allclose(result.output, model.plain(images[:60]), atol=5e-3)
            # Two layers of each width are matrices in files; the rest stands in the plan.
            assert any("all weights" in sentence for sentence in model.disclosure("mizar")["everybody_sees"])
            assert not any(given["kind"] == "weights" for given in model.disclosure("mizar")["gives"])
        runs = [cluster.run(one, images[:60]).report.to_dict() for one in (secret, model)]
    sent = [sum(run["cost"]["phases"]["online"]["sent_bytes"].values()) for run in runs]
    assert sent[1] < sent[0]
    assert len([*weights.glob("*.weights")]) == 4


def test_an_open_language_model_and_a_private_prompt(weights: Path) -> None:
    with megrez.local() as cluster:
        kept = cluster.generate(
            "llama-tiny", [17, 4, 250], 2, ranges="assume", activations="fine", weights="public-int8"
        )
    assert len(kept.tokens) == 2
    # A table of 16 bits, and eleven matrices.
    assert len([*weights.glob("*.weights")]) == 12


def test_unknown_weights_are_named() -> None:
    with pytest.raises(megrez.InvalidError, match="public-int8"):
        megrez.compile(DIGITS / "lenet.onnx", weights="secret")  # type: ignore[arg-type]
