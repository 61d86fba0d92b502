"""Mistakes, and what is said about them."""

from pathlib import Path
from typing import Any

import megrez
import numpy as np
import pytest
from conftest import DIGITS, Array
from models import model, node


def refusal(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(megrez.Error) as caught:
        call(*arguments, **options)
    assert isinstance(caught.value, RuntimeError)
    return str(caught.value)


def test_data_that_does_not_fit(processes: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    for run in (processes.run, processes.check):
        assert "[N, 1, 28, 28]" in refusal(run, small, images.reshape(360, 784))
        assert "[N, 1, 28, 28]" in refusal(run, small, np.float32(1))
        assert "is empty" in refusal(run, small, images[:0])
    assert "complex128" in refusal(processes.run, small, images.astype(complex))
    assert "type" in refusal(processes.run, small, [["a", "b"]])
    assert "no array" in refusal(processes.run, small, [[1.0, 2.0], [3.0]])
    assert "[N, 1, 28, 28]" in refusal(small.plain, images[:, 0])
    flat, last = images.reshape(360, 784), images.transpose(0, 2, 3, 1)
    for run in (processes.run, processes.check):
        assert "x.reshape(-1, 1, 28, 28)" in refusal(run, small, flat)
        assert "np.transpose(x, (0, 3, 1, 2))" in refusal(run, small, last)
    for direct in (small.plain, small.calibrate):
        assert "x.reshape(-1, 1, 28, 28)" in refusal(direct, flat)


@pytest.mark.parametrize(
    ("value", "word"),
    [(np.nan, "no number"), (np.inf, "input range"), (1.25, "1.25, outside"), (1e300, "more than float32")],
)
def test_numbers_outside_the_declared_range(
    processes: megrez.Cluster, small: megrez.Model, images: Array, value: float, word: str
) -> None:
    bad = images[:5].astype(np.float64)
    bad[3, 0, 5, 7] = value
    message = refusal(processes.run, small, bad)
    assert "[3, 0, 5, 7]" in message
    assert word in message
    # Nothing was sent, and the cluster goes on.
    assert processes.run(small, images[:2]).output.shape == (2, 10)


def test_a_declared_range_can_be_larger_or_one_sided(threads: megrez.Cluster, images: Array) -> None:
    compiled = megrez.compile(DIGITS / "lenet.onnx", batch=2, input_range=(0.0, 2.0))
    result = threads.run(compiled, images[:2] * 2)
    assert np.abs(result.output - compiled.plain(images[:2] * 2)).max() < 1e-2
    assert "0 … 2" in refusal(threads.run, compiled, -images[:2])


def test_all_unsupported_operators_are_listed() -> None:
    nodes = [
        node("Unique", ["x"], "a"),
        node("Relu", ["x"], "b"),
        node("Bernoulli", ["b"], "c"),
        node("Add", ["a", "c"], "d"),
    ]
    message = refusal(megrez.compile, model(nodes, {"x": ["n", 4]}, "d"))
    assert "`a` (Unique)" in message
    assert "`c` (Bernoulli)" in message
    assert len(message.splitlines()) == 2


def test_files_that_are_no_models(tmp_path: Path) -> None:
    assert "no.onnx" in refusal(megrez.compile, tmp_path / "no.onnx")
    assert "no.onnx" in refusal(megrez.compile, str(tmp_path / "no.onnx"))
    refusal(megrez.compile, b"not a model at all")
    refusal(megrez.compile, b"")
    with pytest.raises(TypeError):
        megrez.compile(DIGITS / "lenet.onnx", batch="many")  # type: ignore[arg-type]


def test_a_fixed_batch_is_not_another() -> None:
    source = model([node("Relu", ["x"], "y")], {"x": [3, 4]}, "y")
    assert megrez.compile(source, batch=3).inputs == {"x": (3, 4)}
    assert "batches of 3, not of 2" in refusal(megrez.compile, source, batch=2)
    assert megrez.compile(source, batch=2, shapes={"x": [2, 4]}).inputs == {"x": (2, 4)}


def test_names_that_a_model_lacks() -> None:
    source = model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, "y")
    for option in ({"input_range": {"z": 2.0}}, {"shapes": {"z": [1, 4]}}):
        message = refusal(megrez.compile, source, **option)
        assert "['z']" in message
        assert "'x'" in message


def test_an_input_may_be_a_constant() -> None:
    source = model([node("Mul", ["x", "gain"], "y")], {"x": ["n", 4], "gain": []}, "y")
    compiled = megrez.compile(source, constants={"gain": 0.5})
    assert compiled.inputs == {"x": (1, 4)}
    given = np.array([[1.0, -0.5, 0.25, 0.0]], dtype=np.float32)
    assert np.allclose(compiled.plain(given), given / 2)
    array = np.full((), 0.5)
    assert megrez.compile(source, constants={"gain": array}).inputs == {"x": (1, 4)}
    assert "`gain`" in refusal(megrez.compile, source, constants={"gain": [1.0, 2.0]})
    assert "`loss`" in refusal(megrez.compile, source, constants={"loss": 1.0})
    assert "real numbers" in refusal(megrez.compile, source, constants={"gain": "loud"})


def test_a_model_in_training_mode_is_refused() -> None:
    drop = node("Dropout", ["x", "ratio", "training"], "y")
    weights: dict[str, Any] = {"ratio": np.float32(0.5), "training": np.bool_(True)}
    message = refusal(megrez.compile, model([drop], {"x": ["n", 4]}, "y", **weights))
    assert "training mode" in message
    assert "eval()" in message


def test_options() -> None:
    path = DIGITS / "lenet.onnx"
    assert "32, 40, 48 or 64" in refusal(megrez.compile, path, ring=24)
    assert "fraction" in refusal(megrez.compile, path, frac=0)
    assert "3r" in refusal(megrez.compile, path, form="4r")
    assert "digits" in refusal(megrez.compile, path, list="bytes")
    assert "prove" in refusal(megrez.compile, path, ranges="maybe")
    assert "input range" in refusal(megrez.compile, path, input_range=(1.0, -1.0))
    assert "smaller input range" in refusal(megrez.compile, path, ring=32, frac=12, input_range=1000.0)
    assert "batch" in refusal(megrez.compile, path, batch=0)
    assert "batch" in refusal(megrez.compile, path, batch=-1)
    assert "choose cut" in refusal(megrez.compile, path, fit=True, cut=3)
    assert "calibration" in refusal(megrez.compile, path, calibration={"schema": "other"})
    assert "no.json" in refusal(megrez.compile, path, calibration="no.json")
    assert "thread" in refusal(megrez.local, parties="fiber")
    assert "no protocol `mizer`" in refusal(megrez.local, protocol="mizer")
    refusal(megrez.local, net="fast")


def test_errors_have_kinds(
    processes: megrez.Cluster, small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    with pytest.raises(megrez.OutOfRangeError):
        processes.run(small, images * 2)
    with pytest.raises(megrez.OutOfRangeError):
        megrez.compile(DIGITS / "lenet.onnx", ring=32, frac=12, input_range=1000.0)
    with pytest.raises(megrez.UnsupportedError):
        megrez.compile(model([node("Unique", ["x"], "y")], {"x": ["n", 4]}, "y"))
    with pytest.raises(megrez.DamagedFileError):
        megrez.compile(b"no model at all")
    with pytest.raises(megrez.InvalidError):
        megrez.compile(tmp_path / "no.onnx")
    with pytest.raises(megrez.NotPermittedError):
        processes.run_stored("nobody-has-this", images[:1])
    closed = megrez.local(parties="thread")
    closed.close()
    with pytest.raises(megrez.InvalidError):
        closed.run(small, images[:2])


def test_the_commands_choices_are_pythons(threads: megrez.Cluster, images: Array) -> None:
    path = DIGITS / "lenet.onnx"
    assert "tournament or all-pairs" in refusal(megrez.compile, path, pool="pairs")
    assert "minimax, fine, lookup or mizar" in refusal(megrez.compile, path, activations="coarse")
    assert "hidden or shape" in refusal(megrez.compile, path, trees="seen")
    assert "no range is declared" in refusal(megrez.compile, path, declared={"conv1": (-100, 100)})
    options: dict[str, Any] = {"pool": "all-pairs", "activations": "fine", "ranges": "assume"}
    declared = megrez.compile(path, declared={"*": 1000.0}, batch=2, **options)
    result = threads.run(declared, images[:2])
    assert np.abs(result.output - declared.plain(images[:2])).max() < 1e-2
    mixed = megrez.compile(path, protocol="aby3", net="wan", mix=True, ranges="assume")
    with megrez.local(protocol="aby3", parties="thread") as cluster:
        assert np.abs(cluster.run(mixed, images[:1]).output - mixed.plain(images[:1])).max() < 1e-2


def test_things_that_are_no_models() -> None:
    assert "torch.nn.Module" in refusal(megrez.compile, 3)
    assert "example_input" in refusal(megrez.compile, b"", example_input=3)
