"""Build the wheels of the Python package, one for each processor that is named, and check them.

    python scripts/wheels.py x86_64 aarch64

Needs rustup and what .ci/requirements.txt names. The linker is zig: it links against an old glibc, and for
other processors than this one. The wheels lie in target/wheels. One that asks for a newer system than its
name says, that leaves Python's stable interface, or that is larger than `LARGEST` is refused: this ends
with 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import sysconfig
import unittest.mock
import zipfile
from pathlib import Path

import deflate

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "wheels"
# Rust's standard library runs on no older glibc.
SYSTEM = "manylinux_2_17"
LARGEST = 15_000_000
# What does no work on shares, or hands it to crates below it, is half of the module and is compiled for size.
SMALL = (
    "megrez-assurance",
    "megrez-cli",
    "megrez-engine",
    "megrez-graph",
    "megrez-lab",
    "megrez-model",
    "megrez-report",
    "megrez-train",
    "clap_builder",
    "clap_complete",
    "clap_mangen",
    "cudarc",
    "time",
)
# Programs of this Python's environment.
PROGRAMS = Path(sysconfig.get_path("scripts"))


def build(processor: str) -> Path:
    """The wheel for a processor, as maturin makes it."""
    target = f"{processor}-unknown-linux-gnu"
    if processor != platform.machine():
        subprocess.run(["rustup", "target", "add", target], check=True)
    for old in FOLDER.glob(f"*_{processor}.whl"):
        old.unlink()
    command: list[str | Path] = [PROGRAMS / "maturin", "build", "--release", "--locked", "--zig"]
    command += ["--target", target, "--compatibility", SYSTEM, "--compression-level", "9", "--out", FOLDER]
    command += [f'--config=profile.release.package.{crate}.opt-level="z"' for crate in SMALL]
    # maturin asks the first Python of the path for zig.
    paths = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | paths)
    (wheel,) = FOLDER.glob(f"*_{processor}.whl")
    squeeze(wheel)
    return wheel


class Whole:
    """Compresses a file of an archive in one piece, as well as the format allows."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def compress(self, part: bytes) -> bytes:
        """Take a part of the file."""
        self.parts.append(part)
        return b""

    def flush(self) -> bytes:
        """What all of it becomes."""
        return bytes(deflate.deflate_compress(b"".join(self.parts), 12))


def whole(*_: object) -> Whole:
    """What takes the place of the compressor of an archive's file."""
    return Whole()


def squeeze(wheel: Path) -> None:
    """Compress a wheel's files anew: what maturin writes is a fortieth larger than need be."""
    with zipfile.ZipFile(wheel) as old:
        files = [(file, old.read(file)) for file in old.infolist()]
    with (
        unittest.mock.patch("zipfile._get_compressor", whole),
        zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for file, content in files:
            new.writestr(file, content, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(wheel) as new:
        if new.testzip() is not None or [(file, new.read(file)) for file in new.namelist()] != [
            (file.filename, content) for file, content in files
        ]:
            raise RuntimeError(f"{wheel.name} is not what it was before it was compressed anew")


def problems(wheel: Path, processor: str) -> list[str]:
    """What is wrong with a wheel."""
    found = []
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB ({size / (1 << 20):.2f} MiB)", flush=True)
    if size > LARGEST:
        found.append(f"is larger than {LARGEST / 1e6:.0f} MB")
    shown = subprocess.run(
        [PROGRAMS / "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    if f'"{SYSTEM}_{processor}"' not in shown.stdout:
        found.append(f"needs a newer system than {SYSTEM}:\n{shown.stdout}{shown.stderr}")
    audit: list[str | Path] = [PROGRAMS / "abi3audit", "--strict", "--verbose", wheel]
    if subprocess.run(audit, check=False).returncode != 0:
        found.append("leaves Python's stable interface")
    return found


def main() -> int:
    """Build and check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "processor", nargs="*", default=[platform.machine()], help="by default this machine's"
    )
    bad = False
    for processor in parser.parse_args().processor:
        wheel = build(processor)
        for problem in problems(wheel, processor):
            print(f"{wheel.name} {problem}", file=sys.stderr)
            bad = True
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
