"""The protocols that this release knows."""

import json
from dataclasses import dataclass

from megrez import _native


@dataclass(frozen=True)
class Protocol:
    """A way to compute on shares."""

    name: str
    """What `local` and `connect` call it; `secfloat`, of two parties, is what `megrez.float32` runs,
    and `mizar-float` has the same numbers with a dealer."""
    parties: int
    """How many parties compute."""
    level: str
    """The level of security: `none`, `semi-honest` or `malicious-abort`."""
    security: str
    """Whom it protects against."""
    source: str
    """Where it comes from."""
    insecure: bool
    """Whether it protects nothing or leaks, and runs only with `insecure=True`."""
    numbers: str
    """What it computes with: `fixed` point on a ring, or `float32`."""
    rings: list[int]
    """The rings that it computes on, in bits; none for floating point."""
    offline: bool
    """Whether it has an offline phase, whose material can be made ahead and stored."""
    native_maximum: bool
    """Whether it has a maximum of all pairs of its own."""
    selects_truncated: bool
    """Whether a selection by a secret bit truncates what it selects."""
    multiplies_truncated: bool
    """Whether a product of elements truncates its factors."""
    reshares: bool
    """Whether products wait as sums until linear steps have made less of them."""
    multiplies_bits: bool
    """Whether it multiplies matrices of bits, by which many rows go through hidden trees."""
    lookup: bool
    """Whether it looks up functions of one value in dealt tables."""
    offload: bool
    """Whether a dealer and two workers compute single steps for its equal parties, tables among them."""
    sums: bool
    """Whether it truncates a product and shares it in one go."""
    factors: int
    """How many bits one conjunction multiplies at most."""
    floats: str | None
    """The protocol that runs a model in `float32` when it is asked for under this one."""


def protocols() -> list[Protocol]:
    """Every protocol of this release."""
    return [Protocol(**entry) for entry in json.loads(_native.protocols())]
