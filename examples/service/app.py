"""A web service behind which a model runs on shares: FastAPI, `megrez.aio` and batches of several callers.

    uvicorn --app-dir examples/service app:app

The service is the client of the parties: it sees what its callers send and get, the parties and the model's
owner do not. `README.md` says how it is set up.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import megrez
import megrez.aio
import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

LENET = Path(__file__).resolve().parents[1] / "digits" / "lenet.onnx"
BATCHES = [1, 8, 32]
LOG = logging.getLogger("uvicorn.error")

# What somebody who calls can do about an error; the rest is 500.
STATUS = {
    megrez.OutOfRangeError: 422,
    megrez.InvalidError: 422,
    megrez.BusyError: 503,
    megrez.PeerLostError: 503,
    megrez.TimedOutError: 504,
}

Row = Annotated[list[float], Field(min_length=28, max_length=28)]


class Image(BaseModel):
    """A handwritten digit: 28 rows of 28 numbers from 0 (paper) to 1 (ink)."""

    pixels: Annotated[list[Row], Field(min_length=28, max_length=28)]


class Digit(BaseModel):
    """What the model says."""

    digit: int
    scores: list[float]


class State:
    """What requests share while the service runs."""

    parties: megrez.aio.Cluster | megrez.aio.Triples
    digits: megrez.aio.Batcher


def service(*configs: str, certs: str = "certs", client: str = "alice", model: str = "digits") -> FastAPI:
    """Make the service for a model that is stored at every one of these triples of parties.

    Without any, it starts parties on this machine.
    """
    state = State()

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if configs:
                triples = [megrez.aio.connect(c, certs=certs, client=client, timeout=30) for c in configs]
                state.parties = await stack.enter_async_context(megrez.aio.Triples(triples))
            else:
                state.parties = local = await stack.enter_async_context(megrez.aio.local())
                # For trying: otherwise the model's owner does this, `megrez upload-model --batch 1,8,32`.
                own = megrez.compile(LENET, batch=BATCHES[-1])
                await local.upload(own, name=model, allow=[], batches=BATCHES)
            batcher = megrez.aio.Batcher(state.parties, model, batches=BATCHES)
            state.digits = await stack.enter_async_context(batcher)
            yield

    app = FastAPI(title="Digits on shares", lifespan=running)

    @app.exception_handler(megrez.Error)
    async def failed(_: Request, error: megrez.Error) -> JSONResponse:
        status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
        # A caller needs to know what to change, or when to come again; the rest is for the log, in which the
        # numbers that a refusal may quote have no place.
        text = str(error) if status == 422 else "the parties cannot run this at present"
        if status != 422:
            LOG.warning("%s: %s", type(error).__name__, error)
        headers = {"Retry-After": "5"} if status in (503, 504) else None
        return JSONResponse({"error": text}, status, headers)

    @app.post("/classify")
    async def classify(image: Image) -> Digit:
        pixels = np.array(image.pixels, dtype=np.float32).reshape(1, 1, 28, 28)
        scores = (await state.digits.run(pixels)).output[0]
        return Digit(digit=int(scores.argmax()), scores=[float(score) for score in scores])

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Say that this process works; it never depends on the parties."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """Say whether all parties of a triple answer within five seconds; else send requests elsewhere."""
        try:
            parties = await asyncio.wait_for(state.parties.parties(), 5)
        except (megrez.Error, asyncio.TimeoutError):
            return JSONResponse({"status": "the parties do not answer"}, 503)
        return JSONResponse({"status": "ok", "parties": len(parties)})

    return app


app = service(
    *os.environ.get("MEGREZ_CLUSTER", "").split(),
    certs=os.environ.get("MEGREZ_CERTS", "certs"),
    client=os.environ.get("MEGREZ_CLIENT", "alice"),
    model=os.environ.get("MEGREZ_MODEL", "digits"),
)
