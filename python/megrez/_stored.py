"""What parties keep for a client."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stored:
    """A model or rows in shares, or correlated randomness made ahead, that this client owns or may use."""

    kind: str
    """`model`, `rows` or `material`."""
    name: str
    """Its name."""
    owner: str
    """The client who has stored it."""
    allow: list[str]
    """Who else may use it, which only its owner is told."""
    limits: list[dict[str, Any]]
    """The limits of those who may use it up to one; others than its owner are told their own."""
    rules: dict[str, Any] | None
    """What jobs on these rows have to keep to."""
    protocol: str | None
    """The protocol in whose sharing it is; `None` of material."""
    batches: list[int]
    """The batch sizes in which a model may be run."""
    bytes: int
    """Its size at the party that has most of it."""
    written: str
    """When it was written: RFC 3339, in UTC."""
    parties: list[int]
    """The parties that have it."""
    whole: bool
    """Whether all parties have it, of one upload. Anything else is of no use: upload it again, or remove."""
