"""The script that breaks a deployment: for a moment, and that it would notice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import pytest
from conftest import Array
from megrez._supervised import Supervised, write_triple

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos"
WORDS = [sys.executable, "-m", "megrez"]


def chaos(*options: str) -> tuple[int, dict[str, Any]]:
    """Run it: its exit code and its report."""
    words = [sys.executable, str(SCRIPT / "run.py"), "--json", "--pause", "0.4", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def test_a_deployment_stands_what_goes_wrong() -> None:
    code, report = chaos("--minutes", "0.5", "--events", "30", "--drains", "1", "--seed", "7")
    found = {name: found for name, found in report["findings"].items() if found}
    assert (code, found, report["passed"]) == (0, {}, True)
    assert report["events"]["all"] >= 10
    assert report["calls"]["infer-stored"]["succeeded"] > 0
    assert report["drains"]["sessions"] > 0


def test_a_wrong_number_is_noticed(tmp_path: Path) -> None:
    liar = tmp_path / "megrez"
    liar.write_text(
        f"#!{sys.executable}\n"
        "import json, os, subprocess, sys\n"
        "words = [sys.executable, '-m', 'megrez', *sys.argv[1:]]\n"
        "if 'infer' not in sys.argv:\n"
        "    os.execv(words[0], words)\n"
        "done = subprocess.run(words, stdout=subprocess.PIPE)\n"
        "text = done.stdout\n"
        "if done.returncode == 0:\n"
        "    report = json.loads(text)\n"
        "    report['output'] = [report['output'][0], *report['output'][:-1]]\n"
        "    text = json.dumps(report).encode()\n"
        "sys.stdout.buffer.write(text)\n"
        "sys.exit(done.returncode)\n"
    )
    liar.chmod(0o755)
    quiet = [
        "kill",
        "stop",
        "drain",
        "cut",
        "half-open",
        "stall",
        "truncate",
        "garbage",
        "flip",
        "refuse",
        "full-disk",
    ]
    options = ["--minutes", "0.1", "--events", "5", "--drains", "0", "--without", ",".join(quiet)]
    code, report = chaos("--megrez", str(liar), *options)
    assert code == 1
    assert report["findings"]["wrong"]
    assert not report["passed"]


def test_a_party_that_was_stopped_for_a_moment_keeps_its_clients(tmp_path: Path) -> None:
    parties = [Supervised(config) for config in write_triple(tmp_path, ["alice"])]
    for party in parties:
        party.wait()
    with megrez.connect(tmp_path / "cluster.toml", certs=tmp_path / "certs") as cluster:
        assert len(cluster.parties()) == 3
        pid = parties[1].health()["pid"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
        # It had waited for the client's next request, and its wait was interrupted.
        assert not any("connection-lost" in line for line in parties[1]._said)
        assert len(cluster.parties()) == 3
    for party in parties:
        party.stop(timeout=5)


def test_a_party_whose_disk_was_full_goes_on_when_it_has_room(
    tmp_path: Path, small: megrez.Model, images: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT))
    from deployment import Deployment

    deployment = Deployment(WORDS, tmp_path / "cluster", random.Random(os.getpid()), mounted=False)
    try:
        deployment.start(60)
        assert not any(party.deaths for party in deployment.parties)
        party = deployment.parties[0]
        certs = deployment.folder / "certs"
        with megrez.connect(deployment.cluster, certs=certs, client="bob", timeout=60) as bob:
            right = np.asarray(bob.run(small, images[:2]).output)
            # Room for half of a line, and for none.
            audit = party.data / "audit.jsonl"
            for spare in (audit.stat().st_size + 100, 0):
                party.fill_disk(spare, mounted=False)
                assert party.ready() == (spare > 0)
                with pytest.raises(megrez.Error, match="audit log"):
                    bob.run(small, images[:2])
                with pytest.raises(megrez.Error):
                    bob.upload(small, name="full", allow=["alice"])
                party.empty_disk(mounted=False)
                assert party.ready()
                assert np.abs(np.asarray(bob.run(small, images[:2]).output) - right).max() < 5e-3
            bob.upload(small, name="full", allow=["alice"])
        assert not list(party.data.glob(".writable*"))
        assert party.drain(60) is None
        verified = subprocess.run([*WORDS, "audit", "verify", str(audit)], check=False, capture_output=True)
        assert verified.returncode == 0, verified.stderr
    finally:
        deployment.end()
