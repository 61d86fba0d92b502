"""Modules and tensors of PyTorch; skipped where it is not installed."""

from __future__ import annotations

from typing import Any

import megrez
import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")


def network() -> Any:
    torch.manual_seed(1)
    nn = torch.nn
    base: Any = nn.Module

    class Flat(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.view(x.size(0), -1)

    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Flat(),
        nn.Dropout(0.5),
        nn.Linear(64, 5),
    )


def test_a_module_on_tensors() -> None:
    module = network()
    x = torch.rand(5, 2, 8, 8) * 2 - 1
    model = megrez.compile(module, example_input=torch.zeros(2, 2, 8, 8))
    assert model.batch == 2
    assert module.training, "as it was before"
    module.eval()
    expected = module(x).detach()
    with megrez.local(parties="thread") as cluster:
        result = cluster.run(model, x)
    assert isinstance(result.output, torch.Tensor)
    assert (result.output - expected).abs().max() < 5e-3
    assert (model.plain(x) - expected).abs().max() < 1e-4
    arrays = model.plain(x.numpy())
    assert isinstance(arrays, np.ndarray)


def test_another_batch_than_the_example() -> None:
    model = megrez.compile(network(), example_input=torch.zeros(1, 2, 8, 8), batch=3)
    assert list(model.inputs.values()) == [(3, 2, 8, 8)]


def test_mistakes() -> None:
    with pytest.raises(megrez.Error, match="example_input"):
        megrez.compile(network())

    base: Any = torch.nn.Module

    class Places(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.nonzero(x)

    with pytest.raises(megrez.Error, match="NonZero"):
        megrez.compile(Places(), example_input=torch.ones(1, 4))
    with pytest.raises(megrez.Error, match="could not export"):
        megrez.compile(network(), example_input=torch.zeros(1, 3, 8, 8))
