"""The parties of a pair: those of a cluster, or processes of this machine."""

from __future__ import annotations

import os

from megrez import _native
from megrez._program import program
from megrez.float32._arrays import Pair


def connect(
    config: str | os.PathLike[str],
    *,
    client: str,
    name: str,
    certs: str | os.PathLike[str] = "certs",
    protocol: str = "secfloat",
    patience: float = 600,
    threads: int = 1,
) -> Pair:
    """Connect to parties that run elsewhere, as one of several clients who run the same program.

    Whenever something is revealed, the clients that it concerns meet at the parties: those who own the inputs
    that it is made of, and those who learn it. Nothing runs, and no share leaves a client, before all of them
    have come and the parties agree that all have brought the same program. Parties keep nothing in between:
    what is revealed later is computed from the inputs on, so reveal together what can be.

    Args:
        config: the cluster's file, the same as the parties have.
        client: this client's name, as in the certificate.
        name: what all clients call the program; another for each that runs at the same time.
        certs: the folder with `ca.pem` and this client's certificate and key.
        protocol: `secfloat` between two parties; `mizar`, `aby3` or `alkaid` between two and a dealer, who
            run `mizar-float`.
        patience: how many seconds to wait for the other clients and for a turn; parties have a limit too.
        threads: of each party; the same at all clients.

    """
    pair = Pair(_native.Float32.connect(config, certs, client, name, protocol, patience, threads))
    pair.client = client
    return pair


def local(*, protocol: str = "secfloat", net: str = "loopback") -> Pair:
    """Parties in processes of this machine: two with `secfloat`; two and a dealer with `mizar`.

    `aby3` and `alkaid` run what `mizar` does, `mizar-float`.
    `net` is as for `megrez.local`. Clients who are named play the parts of the parties in turns.
    """
    return Pair(_native.Float32.processes(protocol, net, *program()))
