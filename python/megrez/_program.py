"""How this interpreter starts a party."""

import sys
from pathlib import Path

from megrez import _native


def program() -> tuple[str, list[str]]:
    """The interpreter and its arguments.

    It runs without the user's site and paths: a party needs one module only.
    """
    if not sys.executable:
        raise _native.InvalidError('there is no Python interpreter to run parties: use parties="thread"')
    script = Path(__file__).with_name("party.py")
    native = _native.__file__
    assert native is not None, "the native module is a file"
    return sys.executable, ["-I", "-S", str(script), native]
