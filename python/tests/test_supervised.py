"""Parties that are started again when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import megrez
import numpy as np
import pytest
from conftest import Array
from megrez._supervised import Supervised, write_triple


def until(what: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_party_is_started_again_and_serves(tmp_path: Path, small: megrez.Model, images: Array) -> None:
    parties = [Supervised(config) for config in write_triple(tmp_path, ["alice"])]
    for party in parties:
        party.wait()
    assert [party.health()["state"] for party in parties] == ["serving"] * 3
    until(lambda: all(party.health()["ready"] for party in parties))
    with megrez.connect(tmp_path / "cluster.toml", certs=tmp_path / "certs") as cluster:
        plain = small.plain(images[:2])
        assert np.abs(cluster.run(small, images[:2]).output - plain).max() < 5e-3
        parties[2].reload()
        until(lambda: any('"event":"reloaded"' in line for line in parties[2]._said))
        assert np.abs(cluster.run(small, images[:2]).output - plain).max() < 5e-3
        before = parties[1].health()
        os.kill(before["pid"], signal.SIGKILL)
        until(lambda: parties[1].health()["restarts"] == 1)
        parties[1].wait()
        after = parties[1].health()
        assert after["pid"] not in (None, before["pid"])
        assert after["exit_code"] == -signal.SIGKILL
        # The client sees that its connection is gone, and makes another.
        assert np.abs(cluster.run(small, images[:2]).output - plain).max() < 5e-3
    for party in parties:
        party.stop()
        health = party.health()
        assert (health["state"], health["pid"], health["ready"]) == ("stopped", None, None)
    assert not alive(after["pid"])


def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "party0.toml").write_text('party = 0\nlisten = "127.0.0.1:0"\nclustre = "cluster.toml"\n')
    party = Supervised(tmp_path / "party0.toml")
    with pytest.raises(megrez.InvalidError, match="clustre"):
        party.wait()
    health = party.health()
    assert (health["state"], health["exit_code"], health["restarts"]) == ("failed", 2, 0)
    assert any("clustre" in line for line in health["said"])
    party.stop()


def test_a_party_ends_with_whoever_started_it(tmp_path: Path) -> None:
    config = write_triple(tmp_path, ["alice"])[0]
    script = (
        "import sys, time; from megrez._supervised import Supervised; p = Supervised(sys.argv[1]); p.wait();"
        "print(p.health()['pid'], flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert alive(pid)
    owner.kill()
    owner.wait()

    def gone() -> bool:
        # Where nobody reaps orphans it stays as a zombie.
        return not alive(pid) or " Z " in Path(f"/proc/{pid}/stat").read_text()

    until(gone)
