"""Programs that several clients run, each in a process of its own and with its own inputs only."""

from __future__ import annotations

import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megrez import Error, float32

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "float32" / "joint.py"
PARTIES = {"secfloat": 2, "mizar-float": 3}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "megrez", *arguments]


def deploy(folder: Path, count: int, more: str = "") -> list[subprocess.Popen[bytes]]:
    """Parties as services; the folder has cluster.toml and certs."""
    certs = ["certs", "--folder", str(folder / "certs"), "--clients", "alice,bob,carol,mallory"]
    subprocess.run(command(*certs, "--parties", str(count)), check=True, stdout=subprocess.DEVNULL)
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    (folder / "cluster.toml").write_text(f"parties = {addresses!r}".replace("'", '"'))
    services = []
    for party, address in enumerate(addresses):
        config = folder / f"party{party}.toml"
        config.write_text(
            f'party = {party}\nlisten = "{address}"\ncluster = "cluster.toml"\ncerts = "certs"\n'
            f'data = "data{party}"\n{more}'
        )
        services.append(subprocess.Popen(command("party", "--config", str(config)), stderr=subprocess.PIPE))
    for service in services:
        assert service.stderr is not None
        assert b"listens" in service.stderr.readline()
    return services


@pytest.fixture(scope="module", params=PARTIES)
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp(request.param)
    services = deploy(folder, PARTIES[request.param])
    yield folder, request.param
    for service in services:
        service.kill()
        service.communicate()


def connect(deployment: tuple[Path, str], client: str, name: str = "test", **options: Any) -> float32.Pair:
    folder, protocol = deployment
    return float32.connect(
        folder / "cluster.toml",
        certs=folder / "certs",
        client=client,
        name=name,
        protocol=protocol,
        **options,
    )


def together(*parts: Any) -> list[Any]:
    """What the parts, one for each client, return or raise."""
    results: list[Any] = [None] * len(parts)

    def do(i: int) -> None:
        try:
            results[i] = parts[i]()
        except Error as error:
            results[i] = error

    threads = [threading.Thread(target=do, args=(i,)) for i in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    return results


def test_programs_give_the_bits_of_the_clear(deployment: tuple[Path, str], tmp_path: Path) -> None:
    folder, protocol = deployment
    clients = ["alice", "bob", "carol"]

    def start(client: str) -> subprocess.Popen[str]:
        where = ["--cluster", str(folder / "cluster.toml"), "--certs", str(folder / "certs")]
        save = ["--protocol", protocol, "--save", str(tmp_path / f"{client}.npz")]
        return subprocess.Popen(
            [sys.executable, str(EXAMPLE), client, *where, *save], stderr=subprocess.PIPE, text=True
        )

    running = [start(client) for client in clients]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        example = runpy.run_path(str(EXAMPLE))
    finally:
        sys.path.pop(0)
    programs = ["kmeans", "regression", "cholesky", "options", "fft"]
    with float32.clear() as pair:
        want = example["run"](pair, programs)
    learns = {
        "alice": ["kmeans", "options"],
        "bob": ["kmeans", "regression", "cholesky", "options"],
        "carol": ["kmeans", "fft"],
    }
    for client in clients:
        learnt = np.load(tmp_path / f"{client}.npz")
        assert sorted(learnt) == sorted(learns[client])
        for program in learnt:
            assert learnt[program].tobytes() == want[program].tobytes(), (client, program)
    signal = example["numbers"]("fft", "bob") + 1j * example["numbers"]("fft", "carol")
    np.testing.assert_allclose(want["fft"][0] + 1j * want["fft"][1], np.fft.fft(signal), atol=1e-4)
    rows, right = example["numbers"]("cholesky", "alice"), example["numbers"]("cholesky", "carol")
    np.testing.assert_allclose(want["cholesky"], np.linalg.solve(rows.T @ rows + np.eye(3), right), rtol=1e-4)


def test_a_program_goes_on_after_something_was_revealed(deployment: tuple[Path, str]) -> None:
    def part(client: str) -> Any:
        with connect(deployment, client) as pair:
            x = pair.array([3.0, -1.0] if client == "alice" else None, owner="alice", shape=2)
            y = pair.array([2.0, 5.0] if client == "bob" else None, owner="bob", shape=2)
            z = x * y
            larger = (x > y).reveal(to="alice")
            both = pair.reveal(z, x > y)
            alone = (y + 1).reveal(to="bob")
            return larger, both, alone, pair.cost

    alice, bob = together(lambda: part("alice"), lambda: part("bob"))
    assert not isinstance(alice, Error), alice
    assert not isinstance(bob, Error), bob
    assert alice[0].tolist() == [True, False]
    assert bob[0] is None
    for _, (z, larger), _, cost in (alice, bob):
        assert z.tolist() == [6.0, -5.0]
        assert larger.tolist() == [True, False]
        assert cost.rounds > 10
        assert len(cost.sent_bytes) == PARTIES[deployment[1]]
    assert alice[2] is None
    assert bob[2].tolist() == [3.0, 6.0]


def test_different_programs_do_not_run(deployment: tuple[Path, str]) -> None:
    def part(client: str, factor: float) -> Any:
        with connect(deployment, client) as pair:
            x = pair.array([3.0] if client == "alice" else None, owner="alice", shape=1)
            y = pair.array([2.0] if client == "bob" else None, owner="bob", shape=1)
            return (x * y * factor).reveal()

    for result in together(lambda: part("alice", 2.0), lambda: part("bob", 3.0)):
        assert isinstance(result, Error)
        assert "another program" in str(result)
    # The name is free again.
    for result in together(lambda: part("alice", 2.0), lambda: part("bob", 2.0)):
        assert not isinstance(result, Error), result
        assert result.tolist() == [12.0]


def test_who_does_not_come_is_not_waited_for(deployment: tuple[Path, str]) -> None:
    with connect(deployment, "alice", patience=2) as pair:
        x, y = pair.array([1.0], owner="alice"), pair.array(owner="bob", shape=1)
        with pytest.raises(Error, match="`bob` have not come"):
            (x + y).reveal()


def test_mistakes(deployment: tuple[Path, str]) -> None:
    with connect(deployment, "alice", patience=2) as pair:
        with pytest.raises(Error, match="`bob`'s numbers"):
            pair.array([1.0], owner="bob")
        with pytest.raises(Error, match="say the shape"):
            pair.array(owner="bob")
        with pytest.raises(Error, match="give them"):
            pair.array(owner="alice", shape=3)
        with pytest.raises(Error, match="name of a client"):
            pair.array([1.0], owner=0)
        x = pair.array([1.0], owner="alice", shape=(1,))
        with pytest.raises(Error, match="not 2"):
            pair.array([1.0], owner="alice", shape=2)
        with pytest.raises(Error, match="client's name"):
            x.reveal(to="no/body")
    with pytest.raises(Error, match="name has 1 to 40 bytes"):
        connect(deployment, "alice", name="")
