"""SPU's own virtual environment."""

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {"spu": "0.9.5", "jax": "0.4.34", "jaxlib": "0.4.34"}
PYTHON = "3.11"
WHAT = " ".join(f"{name}=={version}" for name, version in PACKAGES.items())

INSPECT = f"""
import importlib.metadata as m, sys
print("%d.%d" % sys.version_info[:2], *(f"{{p}}=={{m.version(p)}}" for p in {list(PACKAGES)}))
"""


def found(python: Path | str, code: str) -> str:
    """What an interpreter prints, or nothing if it fails or is not there."""
    try:
        run = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return run.stdout.strip()


def interpreter(wanted: str | None) -> str:
    """An interpreter of the version that SPU's wheel is for."""
    candidates = [wanted] if wanted else [sys.executable, shutil.which(f"python{PYTHON}") or ""]
    versions = {c: found(c, "import sys; print('%d.%d' % sys.version_info[:2])") for c in candidates if c}
    for python, version in versions.items():
        if version == PYTHON:
            return python
    seen = ", ".join(f"{python} is {version or 'no interpreter'}" for python, version in versions.items())
    sys.exit(f"{WHAT} needs Python {PYTHON}: {seen}. Name one with --python, or an environment with --env.")


def environment(folder: Path, wanted: str | None) -> Path:
    """The interpreter of the environment in `folder`, made and filled if it is not there."""
    python = folder / "bin" / "python"
    complete = f"{PYTHON} {WHAT}"
    if found(python, INSPECT) == complete:
        return python
    base = interpreter(wanted)
    print(f"installing {WHAT} in {folder}", file=sys.stderr, flush=True)
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    packages = WHAT.split()
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    if found(python, INSPECT) != complete:
        sys.exit(f"{folder} does not hold {complete}: remove it and run this again")
    return python
