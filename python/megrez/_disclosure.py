"""What a run of a model tells whom."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any


class Disclosure(Mapping[str, Any]):
    """Who gives what, who learns what, what everybody sees, and what is not protected.

    Printed it is the table of `megrez plan show`; as a mapping it has what `--json` prints.
    """

    def __init__(self, report: str, text: str) -> None:
        self._report: dict[str, Any] = json.loads(report)
        self._text = text

    @property
    def insecure(self) -> bool:
        """Whether the protocol protects nothing, or leaks."""
        return bool(self._report["insecure"])

    @property
    def warnings(self) -> list[str]:
        """What is not protected, or not sure."""
        return list(self._report["warnings"])

    def __getitem__(self, key: str) -> Any:
        return self._report[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._report)

    def __len__(self) -> int:
        return len(self._report)

    def __repr__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"
