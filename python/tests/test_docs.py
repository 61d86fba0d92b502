"""The guide's first example runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_example_of_the_guide() -> None:
    guide = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
    run = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "accuracy on shares: 0.98" in run.stdout
    assert "online" in run.stdout
