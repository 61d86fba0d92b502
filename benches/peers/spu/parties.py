"""What runs inside SPU's environment: one client who compiles, shares and opens, and three parties.

Each reads one JSON object per line and answers with one. SPU writes its own log between the answers, and
with it what the link has sent.
"""

import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import spu
from spu import libspu

CONFIG = {"protocol": libspu.ProtocolKind.ABY3, "field": libspu.FieldType.FM64, "fxp_fraction_bits": 18}
PARTIES = 3


def config() -> Any:
    """ABY3 over 64 bits with 18 fraction bits, the rest as it comes; it logs what an execution sends."""
    result = libspu.RuntimeConfig(**CONFIG)
    result.enable_pphlo_profile = True
    return result


def answer(reply: dict[str, Any]) -> None:
    """One line to whoever asked."""
    print(json.dumps(reply), flush=True)


class Client:
    """Compiles programs, shares their inputs, opens their outputs."""

    def __init__(self) -> None:
        self.io = spu.Io(PARTIES, config())

    def prepare(self, folder: Path, name: str, size: list[int]) -> dict[str, Any]:
        """Writes the executable, every party's shares and the true result."""
        import jax
        import numpy as np
        from programs import program
        from spu.utils import frontend

        function, arrays = program(name, size)
        names = [f"in{i}" for i in range(len(arrays))]
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            lambda *inputs: function(*inputs),
            arrays,
            {},
            names,
            [libspu.Visibility.VIS_SECRET] * len(arrays),
            lambda outputs: [f"out{i}" for i in range(len(outputs))],
        )
        (folder / "executable").write_bytes(executable.SerializeToString())
        shares = [self.io.make_shares(x, libspu.Visibility.VIS_SECRET) for x in arrays]
        for rank in range(PARTIES):
            own = {n: (s[rank].meta, list(s[rank].share_chunks)) for n, s in zip(names, shares, strict=True)}
            (folder / f"in{rank}").write_bytes(pickle.dumps(own))
        np.save(folder / "expected.npy", np.asarray(jax.jit(function)(*arrays)))
        return {}

    def open(self, folder: Path) -> dict[str, Any]:
        """The result's largest error, and whether the mean one is below a twentieth of the largest value."""
        import numpy as np

        shares = [share(pickle.loads((folder / f"out{rank}").read_bytes())) for rank in range(PARTIES)]
        expected = np.load(folder / "expected.npy").astype(np.float64)
        error = np.abs(self.io.reconstruct(shares).astype(np.float64) - expected)
        verified = bool(error.mean() <= 0.05 * np.abs(expected).max())
        return {"max_abs_error": float(error.max()), "verified": verified}


def share(parts: tuple[bytes, list[bytes]]) -> Any:
    """A share from what was written of it."""
    result = libspu.Share()
    result.meta, result.share_chunks = parts
    return result


class Party:
    """One of the three."""

    def __init__(self, rank: int, addresses: list[str], timeout_ms: int) -> None:
        self.rank = rank
        desc = libspu.link.Desc()
        desc.recv_timeout_ms = timeout_ms
        desc.http_timeout_ms = timeout_ms
        for i, address in enumerate(addresses):
            desc.add_party(f"party{i}", address)
        self.link = libspu.link.create_brpc(desc, rank)
        self.executable = libspu.Executable()

    def load(self, folder: Path) -> dict[str, Any]:
        """Takes the executable and this party's shares."""
        self.runtime = spu.Runtime(self.link, config())
        self.executable.ParseFromString((folder / "executable").read_bytes())
        for name, parts in pickle.loads((folder / f"in{self.rank}").read_bytes()).items():
            self.runtime.set_var(name, share(parts))
        return {}

    def run(self) -> dict[str, Any]:
        """One execution, from the moment that all are ready; nothing is opened."""
        self.link.barrier()
        start = time.perf_counter()
        self.runtime.run(self.executable)
        return {"seconds": time.perf_counter() - start}

    def save(self, folder: Path) -> dict[str, Any]:
        """Writes this party's share of the output."""
        own = self.runtime.get_var(self.executable.output_names[0])
        (folder / f"out{self.rank}").write_bytes(pickle.dumps((own.meta, list(own.share_chunks))))
        return {}


def main() -> None:
    """Serves requests until there are no more."""
    role, arguments = sys.argv[1], json.loads(sys.argv[2])
    worker = Client() if role == "client" else Party(**arguments)
    answer({})
    for line in sys.stdin:
        request = json.loads(line)
        if "folder" in request:
            request["folder"] = Path(request["folder"])
        answer(getattr(worker, request.pop("do"))(**request))


if __name__ == "__main__":
    main()
