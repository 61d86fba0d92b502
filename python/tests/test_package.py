"""What the package has, and when it is imported."""

from __future__ import annotations

import subprocess
import sys

import megrez
import pytest


def test_the_command_starts_without_numpy() -> None:
    look = "import sys, megrez.__main__; print('numpy' in sys.modules, 'megrez._cluster' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_every_name_is_there() -> None:
    assert set(megrez.__all__) <= set(dir(megrez))
    assert [name for name in megrez.__all__ if getattr(megrez, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'trusted'"):
        getattr(megrez, "trusted")  # noqa: B009
