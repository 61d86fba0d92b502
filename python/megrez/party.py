"""A party of this machine; `megrez.local` starts it, as a script of its own.

It loads the native module from the path that it is given and not the package, so that it starts at once and
without NumPy. Its identity comes through standard input, and it ends when that ends.
"""

import importlib.util
import signal
import sys


def main(native: str, kind: str = "embedded") -> None:
    """Serve until standard input ends: as a party of a cluster (`embedded`), or as one of a `pair`."""
    # Ctrl-C at the terminal is meant for the parent, whose party this is.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = importlib.util.spec_from_file_location("_native", native)
    if spec is None or spec.loader is None:
        sys.exit(f"megrez: {native} is no native module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.serve_pair() if kind == "pair" else module.serve_embedded()
    except module.Error as error:
        sys.exit(f"megrez: a party: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
