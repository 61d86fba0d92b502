"""Single-precision arrays that two parties hold in shares: numerical code runs on them with another import.

    from megrez import float32 as np

    with np.local() as pair:
        x = pair.array([0.5, 1.5, 2.5], owner=0)
        y = pair.array([1.0, 2.0, 3.0], owner=1)
        z = np.where(x < y, np.sqrt(x * y), np.exp(-x))
        print(z.sum().reveal())

Functions have the names that NumPy gives them, and `numpy.sqrt(x)` works as well as `float32.sqrt(x)`;
docs/numpy.md lists them. Nothing is computed before something is revealed; then the parties run what is
needed for it, each operation on as many numbers at once as the program allows. `clear()` instead of
`local()` runs the same in this process, without parties, with the same bits; so do the functions when
they are given public numbers only. `connect` instead of `local` runs it at the parties of a cluster: two or
three organisations run the same program, each with its own inputs only.

What holds for rounding, infinities, NaN and denormals is in docs/float.md. Secrets decide nothing: use
`where` for conditions, and reveal what a loop should depend on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from megrez._tape import Cost
from megrez.float32 import (  # the functions are entered as these are read
    _arranging,  # noqa: F401
    _elementwise,  # noqa: F401
    _ordering,  # noqa: F401
    _products,  # noqa: F401
    _reductions,  # noqa: F401
    linalg,
)
from megrez.float32._arrays import FUNCTIONS, Array, Pair, clear
from megrez.float32._connecting import connect, local

__all__ = [
    "Array",
    "Cost",
    "Pair",
    "clear",
    "connect",
    "linalg",
    "local",
]  # and the functions, which are NumPy's

globals().update({name: function for name, function in FUNCTIONS.items() if "." not in name})


def __getattr__(name: str) -> Any:
    """What is not here is NumPy's: constants, and functions of public numbers."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(np, name)
