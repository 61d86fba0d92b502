"""What `scripts/compatible.py` takes for a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    ("does", "right", "violation"),
    [
        ("exit 0", True, None),
        ("exit 0", None, None),
        ("exit 0", False, "wrong"),
        (
            "echo party 1 speaks version 9, this side version 10, run the same release >&2; exit 1",
            False,
            None,
        ),
        ("echo it speaks version 9, this side version 9, run the same release >&2; exit 1", False, "remedy"),
        ("echo it speaks version 9, this side version 10 >&2; exit 1", False, "remedy"),
        ("exit 1", False, "remedy"),
        ("echo thread main panicked: version 9, version 10, release >&2; exit 1", False, "exit code 1"),
        ("exit 101", False, "exit code 101"),
        ("kill -SEGV $$", False, "exit code -11"),
        ("exec sleep 60", False, "hangs"),
    ],
)
def test_only_right_answers_and_clear_refusals_pass(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    does: str,
    right: bool | None,
    violation: str | None,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from compatible import BOTH, Build, Table, ask

    command = tmp_path / "megrez"
    command.write_text(f"#!/bin/sh\n{does}\n")
    command.chmod(0o755)
    table = Table()
    answer = ask(Build("fake", command), tmp_path, 0.5 if "sleep" in does else 20, "infer")
    well = table.judge("infer", answer, right, BOTH)
    printed = capsys.readouterr().out
    assert well == (does == "exit 0" and right is not False)
    assert table.violations == (violation is not None)
    assert ("VIOLATION" in printed) == (violation is not None)
    assert (violation or "") in printed
