"""Data on its way into and out of a run: NumPy, PyTorch and what NumPy makes of other things."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from megrez._native import Error

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[np.float32]
"""What comes out."""
Numbers: TypeAlias = "npt.NDArray[Any] | Sequence[Any]"
"""What goes in, besides tensors of PyTorch."""
Given: TypeAlias = "Numbers | Mapping[str, Numbers]"
"""Data for a model: its only input, or its inputs by name."""
GivenTensor: TypeAlias = "torch.Tensor | Mapping[str, torch.Tensor]"
"""The same, as tensors of PyTorch."""


def is_tensor(data: object) -> bool:
    """Whether this is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.Tensor)


def arrays(data: object, names: list[str]) -> tuple[list[Array], bool]:
    """Contiguous arrays in the order of `names`, and whether tensors of PyTorch should come back."""
    if isinstance(data, Mapping):
        unknown = [str(name) for name in data if name not in names]
        missing = [name for name in names if name not in data]
        if unknown or missing:
            raise Error(f"the model takes the inputs {names}; missing: {missing}, unknown: {unknown}")
        given = [data[name] for name in names]
    elif len(names) > 1:
        raise Error(f"the model takes {len(names)} inputs: give them by name, {{{names[0]!r}: ..., ...}}")
    else:
        given = [data]
    return [single(values) for values in given], any(is_tensor(values) for values in given)


def single(values: Any) -> Array:
    """A contiguous array of single precision; numbers that it does not hold are refused."""
    if is_tensor(values):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise Error(f"the data is no array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise Error(f"the data has the type {array.dtype}: give real numbers, such as float32")
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(array, dtype=np.float32)
    lost = np.isinf(made) & np.isfinite(array.reshape(made.shape))
    if lost.any():
        place = tuple(int(index) for index in np.argwhere(lost)[0])
        raise Error(f"element {list(place)} of the data is {array[place]}, more than float32 holds")
    # ascontiguousarray makes one dimension of none.
    return made.reshape(array.shape)


def _named(places: Array, names: list[str]) -> npt.NDArray[np.str_]:
    """The names at these places of a list; what is no place of it stays a number."""
    known = dict(enumerate(names))
    flat = [known.get(round(place), str(place)) for place in places.reshape(-1).tolist()]
    return np.array(flat, dtype=np.str_).reshape(places.shape)


def outputs(
    named: list[tuple[str, Array]], tensors: bool, classes: Mapping[str, list[str]] | None = None
) -> dict[str, Any]:
    """The outputs by name, in the kind of the data; what is a name of a class, as arrays of strings."""
    found: dict[str, Any] = dict(named)
    for name, names in (classes or {}).items():
        if names and name in found:
            found[name] = _named(found[name], names)
    if not tensors:
        return found
    import torch

    kept = {name for name, array in found.items() if array.dtype.kind == "U"}
    return {name: array if name in kept else torch.from_numpy(array) for name, array in found.items()}
