"""Two triples under load, of which one party after the other is drained: no session may fail."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import megrez
import megrez.aio
import numpy as np
from answers import BATCH, TOLERANCE, Answers, differ
from calls import Findings
from deployment import Deployment

_CALLERS = 6
_NAME = "drained"


async def _drained(
    triples: list[Deployment], answers: Answers, drains: int, patience: float, dice: random.Random
) -> dict[str, Any]:
    done, failed, ends = 0, list[str](), list[str]()
    stop = asyncio.Event()

    def connect(one: Deployment) -> megrez.aio.Cluster:
        return megrez.aio.connect(one.cluster, certs=one.folder / "certs", timeout=patience, busy=2)

    async with megrez.aio.Triples([connect(one) for one in triples]) as both:

        async def call(number: int) -> None:
            nonlocal done
            which = number
            while not stop.is_set():
                which = (which + 1) % len(answers.inputs)
                try:
                    result = await asyncio.wait_for(
                        both.run_stored(_NAME, answers.inputs[which], batch=BATCH), 4 * patience
                    )
                except (megrez.Error, asyncio.TimeoutError) as error:
                    failed.append(f"{type(error).__name__}: {error}")
                    continue
                wrong = differ(np.asarray(result.output), answers.outputs[which], TOLERANCE)
                if wrong is not None:
                    failed.append(f"wrong: {wrong}")
                done += 1

        callers = [asyncio.create_task(call(i)) for i in range(_CALLERS)]
        for _ in range(drains):
            await asyncio.sleep(dice.uniform(1, 2))
            party = dice.choice(dice.choice(triples).parties)
            if (wrong := await asyncio.to_thread(party.drain, patience)) is not None:
                ends.append(wrong)
            await asyncio.sleep(dice.uniform(0, 2))
            await asyncio.to_thread(party.start, patience)
            # A triple that has failed is left alone for ten seconds.
            await asyncio.sleep(dice.uniform(0, 12))
        stop.set()
        await asyncio.gather(*callers)
    return {"drains": drains, "sessions": done, "failed": failed, "ends": ends}


def drained(
    words: Sequence[str], folder: Path, answers: Answers, drains: int, patience: float, seed: int
) -> dict[str, Any]:
    """Drain parties of two triples, one at a time, while clients go on; what became of their sessions."""
    dice = random.Random(f"{seed}-drains")
    triples = [Deployment(words, folder / name, dice, mounted=False) for name in ("a", "b")]
    try:
        for one in triples:
            one.start(patience)
            with megrez.connect(one.cluster, certs=one.folder / "certs", client="bob") as bob:
                bob.upload(answers.compiled, name=_NAME, allow=["alice"], batches=[BATCH])
        began = time.monotonic()
        report = asyncio.run(_drained(triples, answers, drains, patience, dice))
        return {**report, "seconds": round(time.monotonic() - began, 1)}
    finally:
        for one in triples:
            one.end()


def judge(report: dict[str, Any], findings: Findings) -> None:
    """Note what must not be."""
    findings.lost += [f"a session while a party drained: {error}" for error in report["failed"]]
    findings.ends += report["ends"]
    if report["sessions"] == 0:
        findings.script.append("no session ran while parties drained")
