"""Models in single precision between two parties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import megrez
import numpy as np
import pytest
from conftest import DIGITS, Array
from models import model, node, reference


def single(values: list[Any]) -> Array:
    return np.array(values, np.float32)


SOURCE = model(
    [
        node("Gemm", ["x", "w1", "b"], "h"),
        node("Relu", ["h"], "r"),
        node("MatMul", ["r", "w2"], "p"),
        node("Tanh", ["p"], "y"),
    ],
    {"x": ["n", 3]},
    "y",
    w1=single([[1e6, 2e-7, -3], [4e-3, 5, 6e5], [-7, 8e-6, 9]]),
    b=single([1e-3, 2, -3]),
    w2=single([[1e-8, 2e-7], [0.3, -4], [5e-9, 6e-8]]),
)


@pytest.fixture(scope="module")
def pair() -> Iterator[megrez.Cluster]:
    """Two parties in processes of their own."""
    with megrez.local(protocol="secfloat") as cluster:
        yield cluster


def numbers(count: int) -> Array:
    array: Array = np.random.default_rng(1).normal(0, [1e-3, 1, 1e4], (count, 3)).astype(np.float32)
    return array


def test_models_run_kept_or_not(pair: megrez.Cluster) -> None:
    compiled = megrez.compile(SOURCE, batch=2, numbers="float32", threads=2)
    assert (compiled.numbers, compiled.ring, compiled.frac, compiled.proven) == ("float32", None, None, None)
    assert [(layer.op, layer.shape, layer.range) for layer in compiled.layers][1] == ("Relu", (2, 3), None)
    assert "float32" in repr(compiled)
    data = numbers(5)
    finished: list[int] = []
    result = pair.run(compiled, data, progress=finished.append)
    expected = reference(SOURCE, x=data)
    assert result.output.shape == (5, 2)
    np.testing.assert_allclose(result.output, expected, rtol=1e-5)
    np.testing.assert_allclose(compiled.plain(data), expected, rtol=1e-5)
    assert finished == sorted(set(finished))
    report = result.report.to_dict()
    assert (report["protocol"], report["batch"], report["runs"], report["range"]) == ("secfloat", 2, 3, None)
    assert result.report.bytes() > 10_000
    pair.upload(compiled, name="small", allow=[], batches=[1, 5])
    stored = pair.run_stored("small", data)
    np.testing.assert_array_equal(stored.output, result.output)


def test_every_layer_has_the_bits_of_the_clear(pair: megrez.Cluster) -> None:
    check = pair.check(megrez.compile(SOURCE, batch=2, protocol="secfloat"), numbers(2))
    assert check.ok
    assert [type(layer) for layer in check] == [megrez.FloatLayerCheck] * 4
    assert "same bits" in repr(check)
    assert "<td>" in check._repr_html_()


@pytest.mark.parametrize("group", [8, 0])
def test_threads_of_this_process_have_the_same_bits(pair: megrez.Cluster, group: int) -> None:
    compiled = megrez.compile(SOURCE, batch=3, numbers="float32", group=group)
    with megrez.local(protocol="secfloat", parties="thread") as cluster:
        output = cluster.run(compiled, numbers(3)).output
    np.testing.assert_array_equal(output, pair.run(compiled, numbers(3)).output)


@pytest.mark.parametrize("protocol", ["mizar", "aby3", "alkaid"])
def test_three_parties_have_the_same_bits(pair: megrez.Cluster, protocol: str) -> None:
    compiled = megrez.compile(SOURCE, batch=3, numbers="float32", protocol=protocol)
    with megrez.local(protocol=protocol, parties="thread") as cluster:
        result = cluster.run(compiled, numbers(3))
    assert result.report.to_dict()["protocol"] == "mizar-float"
    np.testing.assert_array_equal(result.output, pair.run(compiled, numbers(3)).output)


def test_numbers_that_do_not_go_together(pair: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    with pytest.raises(megrez.Error, match='numbers="float32"'):
        pair.run(small, images[:2])
    with pytest.raises(megrez.Error, match='numbers="float32"'):
        pair.upload(small, name="small", allow=[])
    compiled = megrez.compile(SOURCE, numbers="float32")
    with (
        megrez.local(protocol="meteor", parties="thread") as fixed,
        pytest.raises(megrez.Error, match="does not compute in floating point"),
    ):
        fixed.run(compiled, numbers(1))
    with pytest.raises(megrez.Error, match="nothing to calibrate"):
        compiled.calibrate(numbers(1))
    with pytest.raises(megrez.Error, match="leave out frac, ranges"):
        megrez.compile(SOURCE, numbers="float32", frac=12, ranges="assume")
    with pytest.raises(megrez.Error, match="float16"):
        megrez.compile(SOURCE, numbers="float16")  # type: ignore[arg-type]
    with pytest.raises(megrez.Error, match="threads is 1 to 64"):
        megrez.compile(SOURCE, numbers="float32", threads=0)
    with pytest.raises(megrez.Error, match="group is 1, 2, 4 or 8"):
        megrez.compile(DIGITS / "lenet.onnx", numbers="float32", group=3)
    with pytest.raises(megrez.Error, match="one thread"):
        megrez.compile(SOURCE, numbers="float32", group=0, threads=2)
    with pytest.raises(megrez.Error, match="NaN"):
        pair.run(compiled, single([[np.nan, 0, 0]]))
