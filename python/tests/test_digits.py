"""Trained networks on real digits, against onnxruntime."""

import megrez
import numpy as np
import pytest
from conftest import DIGITS, Array
from models import reference


def test_lenet_agrees_on_every_held_out_image(
    processes: megrez.Cluster, lenet: megrez.Model, images: Array, labels: Array
) -> None:
    finished: list[int] = []
    result = processes.run(lenet, images, progress=finished.append)
    expected = reference(str(DIGITS / "lenet.onnx"), input=images)
    assert result.output.shape == (360, 10)
    assert result.output.dtype == np.float32
    np.testing.assert_array_equal(result.output.argmax(1), expected.argmax(1))
    assert np.abs(result.output - expected).max() < 5e-3
    assert (result.output.argmax(1) == labels).mean() > 0.98
    assert finished == sorted(set(finished)), "progress grows"
    assert set(finished) <= set(range(1, 6))


def test_cnn_agrees(threads: megrez.Cluster, images: Array) -> None:
    model = megrez.compile(DIGITS / "cnn.onnx", batch=6)
    result = threads.run(model, images[:10])
    expected = reference(str(DIGITS / "cnn.onnx"), input=images[:10])
    np.testing.assert_array_equal(result.output.argmax(1), expected.argmax(1))
    assert np.abs(result.output - expected).max() < 5e-3


def test_plain_is_the_model_in_the_clear(lenet: megrez.Model, images: Array) -> None:
    expected = reference(str(DIGITS / "lenet.onnx"), input=images[:70])
    np.testing.assert_allclose(lenet.plain(images[:70]), expected, atol=1e-4)


def test_a_model_says_what_it_tells_whom(lenet: megrez.Model) -> None:
    found = lenet.disclosure(recipient="carol")
    assert [given["kind"] for given in found["gives"]] == ["data", "weights"]
    assert found["learns"][0]["recipient"] == "carol"
    assert found["ranges"] == "proven"
    assert not found.insecure
    assert "carol" in repr(found)
    assert "<pre>" in found._repr_html_()
    clear = lenet.disclosure("clear")
    assert clear.insecure
    assert any("insecure" in warning for warning in clear.warnings)
    with pytest.raises(megrez.Error, match="no protocol"):
        lenet.disclosure("nothing")


def test_the_32_bit_ring(threads: megrez.Cluster, images: Array) -> None:
    model = megrez.compile(DIGITS / "lenet.onnx", batch=4, ring=32, frac=9, ranges="assume")
    assert (model.ring, model.frac) == (32, 9)
    result = threads.run(model, images[:4])
    np.testing.assert_array_equal(result.output.argmax(1), model.plain(images[:4]).argmax(1))


def test_comparisons_can_be_chosen_and_fitted(threads: megrez.Cluster, images: Array) -> None:
    path, data = DIGITS / "lenet.onnx", images[:2]
    digits = megrez.compile(path, batch=2)
    result = threads.run(digits, data)
    expected = digits.plain(data)
    assert np.abs(result.output - expected).max() < 5e-3
    calibration = digits.calibrate(images[:40])
    assert calibration["inputs"] == 40
    assert calibration["layers"]["relu1"] > 0
    others = {
        "bits": megrez.compile(path, batch=2, list="bits"),
        "fitted": megrez.compile(path, batch=2, fit=True),
        "calibrated": megrez.compile(path, batch=2, calibration=calibration),
        "auto": megrez.compile(path, batch=2, form="auto", net="wan"),
        "digit-tables": megrez.compile(path, batch=2, form="digit-tables"),
        "keys": megrez.compile(path, batch=2, form="2r", keys=1000),
    }
    sent = {}
    for name, model in others.items():
        other = threads.run(model, data)
        assert np.abs(other.output - expected).max() < 5e-3, name
        sent[name] = other.report.bytes()
    assert sent["calibrated"] <= sent["fitted"] < result.report.bytes() < sent["bits"]
