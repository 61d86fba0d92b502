"""An interpreter that ends while other threads are in calls."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import DIGITS

BEGIN = f"""
import os, sys, threading, time, types
import megrez, numpy

class Slow:
    # The interpreter has ended for all threads but this one when modules go; long calls look around.
    def __del__(self, sleep=time.sleep, write=os.write):
        sleep(0.5)
        write(1, b"ended")

sys.modules["last"] = types.ModuleType("last")
sys.modules["last"].slow = Slow()
model = megrez.compile({str(DIGITS / "lenet.onnx")!r}, batch=2)
images = numpy.concatenate([numpy.load({str(DIGITS / "test_images.npy")!r})] * 50)
cluster = megrez.local(parties="thread")
begun = threading.Event()

def long(progress):
    options = {{"progress": progress}}
    threading.Thread(target=cluster.run, args=(model, images), kwargs=options, daemon=True).start()
    assert begun.wait(60)
"""


def end(script: str) -> tuple[int, str]:
    """The exit code and output of such a program. What threads say of parties that end is not looked at."""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("threads", [1, 4])
def test_a_thread_in_a_long_call_ends_with_the_interpreter(threads: int) -> None:
    script = f"for _ in range({threads}): begun.clear(); long(lambda _: begun.set())"
    assert end(BEGIN + script) == (0, "ended")


def test_a_thread_that_hears_of_progress_ends_with_the_interpreter() -> None:
    script = "def hear(_):\n    begun.set()\n    for _ in range(50): time.sleep(0.01)\nlong(hear)"
    assert end(BEGIN + script) == (0, "ended")


def test_what_runs_at_exit_can_still_call() -> None:
    # Registered before `megrez` has registered anything, so called after that.
    script = (
        "import atexit\ndef last(): print(model.plain(images[:2]).shape, flush=True)\natexit.register(last)\n"
    )
    assert end(script + BEGIN) == (0, "(2, 10)\nended")
