"""Parties of this machine as services that are watched: started again when they die.

As a script it is one such party, which ends with the process that has started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megrez._native import Error, InvalidError, TimedOutError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between a party's end and its next start; they double while it does not live longer than that."""
_BAD_CONFIGURATION = 2
"""The exit code of what a new start does not mend."""
_DIES_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""


class Supervised:
    """One `megrez party`, started again when it dies, but not when its configuration is wrong.

    It ends with this process, however that ends: sessions that run then are lost, what is stored is not.
    """

    def __init__(self, config: str | os.PathLike[str]) -> None:
        self.config = Path(config)
        self._lock = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._state = "starting"
        self._restarts = 0
        self._exit_code: int | None = None
        self._since = time.monotonic()
        self._admin: str | None = None
        self._said: deque[str] = deque(maxlen=20)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"megrez {config}", daemon=True)
        self._thread.start()

    def health(self) -> dict[str, Any]:
        """How the party is.

        `state` is `starting`, `serving`, `waiting` (it has died, and is started again in a moment), `failed`
        (by its configuration) or `stopped`. `ready` is what `/readyz` says, None where `party.toml` has no
        `admin`. `restarts` counts, `exit_code` and `said` are those of its last end, `seconds` how long it is
        in the state.
        """
        with self._lock:
            process, admin = self._process, self._admin
            health: dict[str, Any] = {
                "config": str(self.config),
                "state": self._state,
                "pid": process.pid
                if process is not None and self._state in ("starting", "serving")
                else None,
                "seconds": round(time.monotonic() - self._since, 3),
                "restarts": self._restarts,
                "exit_code": self._exit_code,
                "said": list(self._said) if self._exit_code not in (None, 0) else [],
            }
        health["ready"] = _ready(admin) if admin is not None and health["state"] == "serving" else None
        return health

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the party serves; raises its own words if it cannot, `TimedOutError` after so long."""
        with self._lock:
            self._lock.wait_for(lambda: self._state in ("serving", "failed", "stopped"), timeout)
            if self._state == "serving":
                return
            words = "; ".join(self._said)
            if self._state == "failed":
                raise InvalidError(f"the party of {self.config} cannot start: {words}")
            raise TimedOutError(f"the party of {self.config} does not serve, it is {self._state}: {words}")

    def reload(self) -> None:
        """Have the party read certificates and policy anew; what is of no use leaves the old in place."""
        with self._lock:
            if self._process is not None and self._state == "serving":
                self._process.send_signal(signal.SIGHUP)

    def stop(self, timeout: float = 130.0) -> None:
        """Drain the party: it finishes what runs and admits nothing more; ended by force after so long."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(timeout)

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            self._start()
            code = self._listen()
            if self._stopping.is_set():
                break
            if code == _BAD_CONFIGURATION:
                self._become("failed", code)
                return
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            self._become("waiting", code)
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self._restarts += 1
        self._become("stopped", None)

    def _start(self) -> None:
        own = [sys.executable, "-m", "megrez._supervised", str(os.getpid())]
        arguments = ["party", "--config", str(self.config), "--log-format", "json"]
        # SIGINT at a terminal is meant for this process, which then stops its parties.
        process = subprocess.Popen(
            [*own, *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with self._lock:
            self._process, self._admin = process, None
        self._become("starting", self._exit_code)
        if self._stopping.is_set():
            process.terminate()

    def _listen(self) -> int:
        """Pass the party's log on until it ends: its exit code."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        for line in process.stderr:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
            event: Any = None
            with contextlib.suppress(ValueError):
                event = json.loads(line)
            with self._lock:
                self._said.append(line.strip())
            if isinstance(event, dict) and event.get("event") == "admin":
                self._admin = str(event.get("message", "")).rsplit(" ", 1)[-1]
            elif isinstance(event, dict) and event.get("event") == "listening":
                self._become("serving", self._exit_code)
        return process.wait()

    def _become(self, state: str, code: int | None) -> None:
        with self._lock:
            self._state, self._exit_code, self._since = state, code, time.monotonic()
            self._lock.notify_all()


def _ready(admin: str) -> bool:
    """Whether the party at this address takes requests."""
    try:
        with urllib.request.urlopen(f"http://{admin}/readyz", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def write_triple(folder: str | os.PathLike[str], clients: Sequence[str]) -> list[Path]:
    """Write certificates and files for three parties of this machine, on ports that are free now.

    Gives the parties' files; `cluster.toml` and `certs` lie beside them. For trying: all keys are in one
    place.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    certs = ["certs", "--folder", str(place / "certs"), "--clients", ",".join(clients)]
    made = subprocess.run(
        [sys.executable, "-m", "megrez", *certs], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise Error(made.stderr.strip() or "megrez certs failed")
    with contextlib.ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(3)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in bound]
    (place / "cluster.toml").write_text(f"parties = {json.dumps(addresses)}\n", encoding="utf-8")
    files = [place / f"party{party}.toml" for party in range(3)]
    for party, (file, address) in enumerate(zip(files, addresses, strict=True)):
        file.write_text(
            f'party = {party}\nlisten = "{address}"\ncluster = "cluster.toml"\ncerts = "certs"\n'
            f'data = "data{party}"\nadmin = "127.0.0.1:0"\n',
            encoding="utf-8",
        )
    return files


def main(parent: str, *command: str) -> None:
    """Run a `megrez` command that ends at once when its parent does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, int(signal.SIGKILL))
        if os.getppid() != int(parent):
            sys.exit("megrez: whoever started this party has ended")
    from megrez import __main__

    sys.argv[1:] = command
    __main__.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
