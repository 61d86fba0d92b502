"""The `megrez` command."""

import signal
import sys

from megrez import _native
from megrez._program import program


def main() -> None:
    """Run the command line of this process."""
    # The command never returns to the interpreter, so Ctrl-C must not wait for it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.command(["megrez", *sys.argv[1:]], *program()))


if __name__ == "__main__":
    main()
