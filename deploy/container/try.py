"""Runs what the image holds where there is no container engine.

Three parties and a client, each with the image's root filesystem to read, a network address of its own, and
no privileges:

    cargo build --release -p megrez-cli
    sudo python3 deploy/container/try.py --megrez target/release/megrez

The root filesystem is made as `Dockerfile` says, of the Debian packages that its base image is made of; user,
command and stop signal are read from there. Needs Debian or what descends from it, `bubblewrap`, `iproute2`,
NumPy, and root for the addresses; what runs inside is user 65532. Prints a report and ends with 1 if anything
does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[1] / "examples" / "digits"
PACKAGES = ["base-files", "netbase", "tzdata", "ca-certificates"]
PACKAGES += ["libc6", "libgcc-s1", "libstdc++6", "libgomp1"]
"""What distroless' `cc-debian12` is made of, as far as a program sees it."""
USER = 65532
"""`nonroot` of distroless."""
NODES = {"party0": "10.77.0.10", "party1": "10.77.0.11", "party2": "10.77.0.12", "client": "10.77.0.20"}
HUB = "megrez-try-hub"


def call(*words: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command, which must succeed; what it prints."""
    line = [str(word) for word in words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Image:
    """The root filesystem, and how the image is run."""

    def __init__(self, megrez: Path, folder: Path) -> None:
        text = (HERE / "Dockerfile").read_text()
        said = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.M))
        self.entry, self.command = (json.loads(said[key]) for key in ("ENTRYPOINT", "CMD"))
        self.stop = getattr(signal, re.findall(r"^STOPSIGNAL (\w+)$", text, re.M)[0])
        assert re.findall(r"^USER (\d+)$", text, re.M) == [str(USER)]
        self.root = folder / "root"
        packages = folder / "packages"
        packages.mkdir()
        call("apt-get", "download", "-qq", *PACKAGES, cwd=packages)
        for package in sorted(packages.iterdir()):
            call("dpkg-deb", "-x", package, self.root)
        user = f"nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin\n"
        (self.root / "etc" / "passwd").write_text(user)
        (self.root / "etc" / "group").write_text(f"nonroot:x:{USER}:\n")
        (self.root / "etc" / "hosts").write_text("".join(f"{at} {name}\n" for name, at in NODES.items()))
        for place in ("etc/megrez", "var/lib/megrez", "data", "proc", "dev"):
            (self.root / place).mkdir(parents=True, exist_ok=True)
        (self.root / "usr" / "local" / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy2(megrez, self.root / self.entry[0].lstrip("/"))
        self.hash = self.hashed()

    def hashed(self) -> str:
        """A hash of every name and byte."""
        state = hashlib.blake2b()
        for path in sorted(self.root.rglob("*")):
            state.update(str(path.relative_to(self.root)).encode())
            if path.is_file() and not path.is_symlink():
                state.update(path.read_bytes())
        return state.hexdigest()

    def words(self, node: str, config: Path, data: Path | None, command: list[str]) -> list[str]:
        """The command line that runs it at a node, as an engine would: read-only, no capabilities."""
        words = ["ip", "netns", "exec", f"megrez-try-{node}"]
        words += ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        words += ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        words += [
            "--die-with-parent",
            "--cap-drop",
            "ALL",
            "--clearenv",
            "--ro-bind",
            str(self.root),
            "/",
            "--proc",
            "/proc",
        ]
        words += ["--dev", "/dev", "--ro-bind", str(config), "/etc/megrez", "--ro-bind", str(DIGITS), "/data"]
        words += ["--bind", str(data), "/var/lib/megrez"] if data else []
        return [*words, *self.entry, *command]


def network() -> None:
    """A switch, and a node for each name."""
    call("ip", "netns", "add", HUB)
    call("ip", "-n", HUB, "link", "add", "hub", "type", "bridge")
    call("ip", "-n", HUB, "link", "set", "hub", "up")
    for node, address in NODES.items():
        own = f"megrez-try-{node}"
        call("ip", "netns", "add", own)
        call("ip", "-n", HUB, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", own)
        call("ip", "-n", HUB, "link", "set", node, "master", "hub", "up")
        call("ip", "-n", own, "address", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            call("ip", "-n", own, "link", "set", link, "up")


def no_network() -> None:
    """Take the network down."""
    for name in [HUB, *(f"megrez-try-{node}" for node in NODES)]:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def checked(report: dict[str, object], what: str, holds: bool, found: object = None) -> None:
    """Note whether something holds."""
    report[what] = holds if found is None else {"holds": holds, "found": found}
    said = "" if found is None else f": {found}"
    print(f"{'ok    ' if holds else 'FAILED'} {what}{said}", flush=True)


def inside(bubble: subprocess.Popen[bytes]) -> list[int]:
    """The processes of an image that runs."""
    found, seen = [], [str(bubble.pid)]
    while seen:
        parent = seen.pop()
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        found += [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "megrez"]
        seen += children
    return found


def labels(printed: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The class of each image, from what `infer --json` prints."""
    report = json.loads(printed)
    return np.reshape(report["output"], report["shape"]).argmax(1)


def run(image: Image, folder: Path) -> dict[str, object]:
    """Three parties, a client, and what must hold."""
    report: dict[str, object] = {}
    shutil.copy(HERE / "prepare.sh", folder)
    binary = image.root / "usr" / "local" / "bin"
    call("sh", folder / "prepare.sh", env={**os.environ, "PATH": f"{binary}:{os.environ['PATH']}"})
    # An engine mounts as root what bubblewrap reaches as the image's user.
    (folder / "run").chmod(0o755)
    parties: list[subprocess.Popen[bytes]] = []
    logs = [folder / f"party{i}.log" for i in range(3)]
    for i, log in enumerate(logs):
        data = folder / f"data{i}"
        data.mkdir()
        os.chown(data, USER, USER)
        words = image.words(f"party{i}", folder / "run" / f"party{i}", data, image.command)
        with log.open("wb") as errors:
            parties.append(subprocess.Popen(words, stderr=errors))
    end = time.monotonic() + 30
    while time.monotonic() < end and any("listens on" not in log.read_text() for log in logs):
        time.sleep(0.1)
    for log in logs:
        if "listens on" not in log.read_text():
            raise SystemExit(f"{log.stem} did not start: {log.read_text()[-2000:]}")
    pids = [pid for party in parties for pid in inside(party)]
    owners = [Path(f"/proc/{pid}").stat().st_uid for pid in pids]
    checked(report, "three parties run as user 65532", owners == [USER] * 3, owners)
    there = ["--cluster", "/etc/megrez/cluster.toml", "--certs", "/etc/megrez/certs", "--client", "alice"]

    def client(*words: str) -> subprocess.CompletedProcess[str]:
        line = image.words("client", folder / "run" / "alice", None, [*words])
        return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)

    done = client("doctor", *there)
    checked(report, "doctor is content", done.returncode == 0, done.stderr.strip() or None)
    infer = ["infer", *there, "--input", "/data/test_images.npy", "--json"]
    words = ["infer", "--model", DIGITS / "lenet.onnx", "--input", DIGITS / "test_images.npy", "--json"]
    right = labels(call(binary / "megrez", *words, "--mode", "clear"))

    def agreement(*words: str) -> float | str:
        done = client(*infer, *words)
        return done.stderr.strip() if done.returncode != 0 else float(np.mean(labels(done.stdout) == right))

    got = agreement("--model", "/data/lenet.onnx")
    checked(report, "labels of the client's images as in the clear", got == 1.0, got)
    done = client("upload-model", *there, "--model", "/data/lenet.onnx", "--name", "digits", "--batch", "360")
    checked(report, "a model is stored", done.returncode == 0, done.stderr.strip() or None)
    got = agreement("--model-name", "digits", "--batch", "360")
    checked(report, "the stored model gives the same", got == 1.0, got)
    for pid in pids:
        os.kill(pid, image.stop)
    codes = [party.wait(60) for party in parties]
    checked(report, "the stop signal drains all", codes == [0, 0, 0], codes)
    checked(report, "nothing was written but below /var/lib/megrez", image.hashed() == image.hash)
    kept = [len(list((folder / f"data{i}" / "models").iterdir())) for i in range(3)]
    checked(report, "the volumes hold the model", kept == [1] * 3, kept)
    return report


def main() -> int:
    """Make, run, report."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--megrez", type=Path, required=True, help="the command, built with optimisation")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="megrez-try-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            network()
            report = run(Image(arguments.megrez, folder), folder)
        finally:
            no_network()
    print(json.dumps({"schema": "megrez.container/1", **report}, indent=2))
    holds = [one["holds"] if isinstance(one, dict) else one for one in report.values()]
    return 0 if all(one is not False for one in holds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
