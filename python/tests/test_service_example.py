"""The web service of examples/service, on parties of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import pytest
from conftest import Array

# These are not needed by the package itself.
pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install -r python/requirements-test.txt")
pytest.importorskip("httpx", reason="httpx is not installed: pip install -r python/requirements-test.txt")

APP = Path(__file__).resolve().parents[2] / "examples" / "service" / "app.py"


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("service_example", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["service_example"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["service_example"]


def image(pixels: Array) -> dict[str, Any]:
    return {"pixels": pixels.reshape(28, 28).tolist()}


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[Any]:
    """A client of the service, which runs."""
    import httpx

    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            yield client


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in an event loop of its own, which must not hang."""

    async def bounded() -> None:
        await asyncio.wait_for(test, 120)

    asyncio.run(bounded())


def test_it_starts_parties_of_its_own(example: Any, images: Array, labels: Array) -> None:
    async def test() -> None:
        async with serving(example.app) as client:
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            assert (await client.get("/readyz")).json() == {"status": "ok", "parties": 3}
            answer = (await client.post("/classify", json=image(images[0]))).json()
            assert answer["digit"] == labels[0]
            assert len(answer["scores"]) == 10
            outside = await client.post("/classify", json=image(images[0] * 3))
            assert outside.status_code == 422
            assert "outside" in outside.json()["error"]
            assert (await client.post("/classify", json={"pixels": [[0.5]]})).status_code == 422

    run(test())


def test_callers_share_runs_of_a_stored_model(
    example: Any, deployment: Path, images: Array, labels: Array
) -> None:
    lenet = megrez.compile(example.LENET, batch=example.BATCHES[-1])
    place: dict[str, Any] = {"certs": str(deployment / "certs")}
    with megrez.connect(deployment / "cluster.toml", client="bob", **place) as bob:
        bob.upload(lenet, name="service-digits", allow=["alice"], batches=example.BATCHES)
    app = example.service(str(deployment / "cluster.toml"), model="service-digits", **place)

    async def test() -> None:
        async with serving(app) as client:
            before = begun(deployment)
            posts = [client.post("/classify", json=image(images[i])) for i in range(40)]
            answers = [answer.json() for answer in await asyncio.gather(*posts)]
            assert 2 <= begun(deployment) - before < 20
            scores = np.array([answer["scores"] for answer in answers])
            assert np.abs(scores - lenet.plain(images[:40])).max() < 5e-3
            assert np.mean([answer["digit"] for answer in answers] == labels[:40]) > 0.9

    run(test())


def begun(deployment: Path) -> int:
    """Runs that party 0 has begun."""
    lines = (deployment / "data0" / "audit.jsonl").read_text().splitlines()
    return sum('"began"' in line for line in lines)


def test_a_service_without_parties_says_so(example: Any, deployment: Path, tmp_path: Path) -> None:
    certs = str(deployment / "certs")
    (tmp_path / "cluster.toml").write_text('parties = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]')

    async def test() -> None:
        with pytest.raises(megrez.PeerLostError):
            async with serving(example.service(str(tmp_path / "cluster.toml"), certs=certs)):
                pass
        # One of several is enough.
        both = [str(folder / "cluster.toml") for folder in (tmp_path, deployment)]
        async with serving(example.service(*both, certs=certs)) as client:
            assert (await client.get("/readyz")).status_code == 200
        missing = example.service(str(deployment / "cluster.toml"), certs=certs, model="nobody-has-this")
        async with serving(missing) as client:
            failed = await client.post("/classify", json={"pixels": [[0.0] * 28] * 28})
            assert failed.status_code == 500
            assert "nobody-has-this" not in failed.text

    run(test())
