"""The notebooks run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 8


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path) -> None:
    if "sklearn" in path.read_text(encoding="utf-8"):
        pytest.importorskip("skl2onnx", reason="the exporters are not installed")
    book = nbformat.read(path, as_version=4)
    # Outputs are made, not kept: what is checked in is what somebody wrote.
    assert not any(cell.get("outputs") for cell in book.cells)
    resources = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(book, timeout=180, kernel_name="python3", resources=resources).execute()
