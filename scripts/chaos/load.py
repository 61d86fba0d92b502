"""The load: clients of several kinds, who go on whatever happens, and remember what they were promised."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import megrez
import numpy as np
from answers import BATCH, LOSS_TOLERANCE, TOLERANCE, TRAINED_TOLERANCE, Answers, differ
from calls import Calls, Outcome

BASE = "base"
"""The stored model that is there from the beginning."""
KEPT_MODELS, KEPT_JOBS, KEPT_MATERIAL = 8, 4, 3
"""How much of each is kept before the oldest is removed or used."""


@dataclass
class Promises:
    """What parties have told clients that it is done. Threads share it."""

    models: dict[str, str] = field(default_factory=dict)
    """Stored models by name: `stored`, `unknown` (an upload failed, and may have been done) or `removed`."""
    jobs: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Training jobs that were done: the file, and the kept model."""
    material: list[str] = field(default_factory=list)
    """Correlated randomness that was made and not used."""
    uploads: int = 0
    trained: int = 0


class Load:
    """Threads of clients."""

    def __init__(self, calls: Calls, answers: Answers, cluster: Path, folder: Path, seed: int) -> None:
        self.calls, self.answers, self.cluster, self.folder = calls, answers, cluster, folder
        self.promises = Promises()
        self.blocked: list[str] = []
        """Names that a failed upload has left unusable."""
        self._seed = seed
        self._go = threading.Event()
        self._end = threading.Event()
        self._idle = threading.Semaphore(0)
        self._names = 0
        self._busy: dict[str, float] = {}
        works = {
            "own-model": self._own_model,
            "stored-0": self._stored,
            "stored-1": self._stored,
            "library": self._library,
            "upload": self._upload,
            "material": self._material,
            "stock": self._stock,
            "train": self._train,
        }
        self.threads = [
            threading.Thread(target=self._work, args=(name, work), name=name, daemon=True)
            for name, work in works.items()
        ]

    def start(self) -> None:
        """Keep the model that all use, and begin."""
        outcome = self._do_upload(BASE)
        if outcome.kind is not None:
            raise RuntimeError(f"the first upload failed: {outcome.error}")
        self._go.set()
        for thread in self.threads:
            thread.start()

    def pause(self, patience: float) -> bool:
        """Have all clients finish what they do, and wait; whether they have."""
        self._go.clear()
        end = time.monotonic() + patience
        while self._busy and time.monotonic() < end:
            time.sleep(0.05)
        for name, since in list(self._busy.items()):
            self.calls.hang(name, time.monotonic() - since, "this client's thread does not come to an end")
        return not self._busy

    def go_on(self) -> None:
        """Let all clients go on."""
        self._go.set()

    def end(self, patience: float) -> None:
        """Have all threads end, and wait: one that is in a call must not meet the end of the interpreter."""
        self._end.set()
        self._go.set()
        end = time.monotonic() + patience
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                self.calls.hang(thread.name, patience, "this client's thread does not come to an end")

    def _work(self, name: str, work: Callable[[random.Random], None]) -> None:
        dice = random.Random(f"{self._seed}-{name}")
        while not self._end.is_set():
            if not self._go.wait(0.5) or self._end.is_set():
                continue
            self._busy[name] = time.monotonic()
            # `pause` looks at who is busy after it has cleared this.
            if self._go.is_set():
                try:
                    work(dice)
                except Exception:
                    self.calls.note(self.calls.findings.script, traceback.format_exc())
            del self._busy[name]
            time.sleep(dice.uniform(0, 0.3))

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._names}"

    def _infer(self, sort: str, dice: random.Random, *more: object, requests: int) -> Outcome:
        which = dice.randrange(len(self.answers.files))
        words = ["infer", "--input", self.answers.files[which], *more]
        outcome = self.calls.command(sort, self.cluster, "alice", *words, requests=requests)
        if outcome.printed is not None:
            self._right(sort, self.answers.wrong(outcome.printed, which))
        return outcome

    def _right(self, sort: str, wrong: str | None) -> None:
        if wrong is not None:
            self.calls.note(self.calls.findings.wrong, f"{sort}: {wrong}")

    def run_stored(
        self, name: str, dice: random.Random, sort: str = "infer-stored", *more: object
    ) -> Outcome:
        """Run a stored model, and compare its answers with the right ones."""
        return self._infer(sort, dice, "--model-name", name, "--batch", BATCH, *more, requests=2)

    def _own_model(self, dice: random.Random) -> None:
        self._infer("infer-own", dice, "--model", self.answers.model, requests=1)

    def _stored(self, dice: random.Random) -> None:
        self.run_stored(BASE, dice)

    def _library(self, dice: random.Random) -> None:
        """One connection for many calls, as a service has; it connects anew by itself."""
        calls, certs = self.calls, self.cluster.parent / "certs"
        began = time.monotonic()
        try:
            with megrez.connect(self.cluster, certs=certs, timeout=calls.timeout, busy=5) as cluster:
                for _ in range(dice.randrange(1, 20)):
                    which = dice.randrange(len(self.answers.inputs))
                    began = time.monotonic()
                    self._busy["library"] = began
                    try:
                        given = cluster.run_stored(BASE, self.answers.inputs[which], batch=BATCH).output
                    except megrez.Error as error:
                        calls.ended("library", began, Outcome(None, _kind(error), str(error)))
                        continue
                    finally:
                        if (took := time.monotonic() - began) > calls.limit(2):
                            calls.hang("library", took, "run_stored")
                    calls.ended("library", began, Outcome({}))
                    self._right("library", differ(np.asarray(given), self.answers.outputs[which], TOLERANCE))
                    if not self._go.is_set():
                        return
        except megrez.Error as error:
            calls.ended("library", began, Outcome(None, _kind(error), str(error)))

    def _do_upload(self, name: str) -> Outcome:
        words = ["upload-model", "--model", self.answers.model, "--name", name, "--batch", BATCH]
        self.promises.models[name] = "unknown"
        outcome = self.calls.command("upload", self.cluster, "bob", *words, "--allow", "alice", requests=1)
        if outcome.printed is not None:
            self.promises.models[name] = "stored"
            self.promises.uploads += 1
        return outcome

    def again(self, name: str) -> str:
        """What becomes of the name of a model that not all parties have: it is removed, and stored anew."""
        if not name.startswith("model-"):
            return "not tried"
        said = []
        for words in (["remove", name], ["upload-model", "--model", self.answers.model, "--name", name]):
            outcome = self.calls.command("again", self.cluster, "bob", *words, requests=1)
            said.append(f"{words[0]}: {outcome.kind or 'done'} {outcome.error}".strip())
        self.promises.models[name] = "unknown"
        return "; ".join(said)

    def _upload(self, dice: random.Random) -> None:
        """Upload under one name until it is done; use it, and remove the oldest."""
        name = self._name("model")
        for _ in range(4):
            outcome = self._do_upload(name)
            if outcome.printed is not None:
                self.run_stored(name, dice)
                break
            if "is stored already" in outcome.error:
                # An attempt before has been done, or half of it: `lookup` in `checks` says which.
                self.blocked.append(name)
                break
        stored = [name for name, state in self.promises.models.items() if state == "stored" and name != BASE]
        if len(stored) > KEPT_MODELS:
            self._remove(stored[0])

    def _remove(self, name: str) -> None:
        self.promises.models[name] = "unknown"
        outcome = self.calls.command("remove", self.cluster, "bob", "remove", name, requests=1)
        if outcome.printed is not None:
            self.promises.models[name] = "removed"

    def _material(self, dice: random.Random) -> None:
        words = ["offline", "--model-name", BASE, "--batch", BATCH]
        outcome = self.calls.command("material", self.cluster, "alice", *words, requests=2)
        if outcome.printed is not None:
            self.promises.material.append(outcome.printed["material"])
        if len(self.promises.material) > KEPT_MATERIAL:
            self.use_material(dice)

    def _stock(self, dice: random.Random) -> None:
        """Fill up what the other runs of the model take by themselves."""
        words = ["offline", "--model-name", BASE, "--batch", BATCH, "--keep", dice.randrange(1, 4)]
        self.calls.command("stock", self.cluster, "alice", *words, requests=4)
        time.sleep(dice.random())

    def use_material(self, dice: random.Random) -> Outcome:
        """Run the model with the oldest material, which is used up by it."""
        material = self.promises.material.pop(0)
        return self.run_stored(BASE, dice, "infer-material", "--material", material)

    def _train(self, dice: random.Random) -> None:
        """Propose a job, begin it, and have it go on until it is done."""
        calls = self.calls
        name = self._name("trained")
        file = self.folder / f"{name}.job"
        rows = f"rows-{name}"
        store = ["upload-data", "--name", rows, "--classes", 10, "--inputs", self.answers.rows]
        store += ["--labels", self.answers.labels]
        propose = ["train", *self.answers.training, "--data", rows, "--keep", name, "--run-batch", BATCH]
        steps: list[tuple[str, list[Any]]] = [
            ("upload-data", store),
            ("propose", [*propose, "--propose", file]),
            ("begin", ["train", "--job", file, "--detach"]),
        ]
        for sort, words in steps:
            for _ in range(dice.randrange(4, 8)):
                outcome = calls.command(sort, self.cluster, "alice", *words, requests=3)
                done = outcome.printed is not None or any(word in outcome.error for word in _GOES_ON)
                if done or not self._go.is_set():
                    break
            if not done:
                return
        end = time.monotonic() + 120
        while time.monotonic() < end and self._go.is_set():
            outcome = calls.command("jobs", self.cluster, "alice", "jobs", "--job", file, requests=1)
            jobs = outcome.printed["jobs"] if outcome.printed is not None else [{"state": "?"}]
            if jobs[0]["state"] == "done":
                self.promises.jobs[name] = (file, name)
                self.promises.trained += 1
                self._right("training", self.losses_differ(jobs[0]["losses"]))
                self.run_trained(name)
                break
            if jobs[0]["state"] in ("waits", "failed"):
                calls.command("resume", self.cluster, "alice", "resume", file, "--detach", requests=3)
            time.sleep(0.3)
        for old in list(self.promises.jobs)[:-KEPT_JOBS]:
            del self.promises.jobs[old]
            for stored in (old, f"rows-{old}"):
                calls.command("remove", self.cluster, "alice", "remove", stored, requests=1)

    def losses_differ(self, losses: list[float]) -> str | None:
        """How the losses that a job has opened differ from those in the clear."""
        return differ(losses, np.asarray(self.answers.losses), LOSS_TOLERANCE)

    def job(self, file: Path) -> Outcome:
        """Ask how a job stands."""
        return self.calls.command("jobs", self.cluster, "alice", "jobs", "--job", file, requests=1)

    def run_trained(self, name: str) -> Outcome:
        """Run a model that a job has kept, and compare with the one that was trained in the clear."""
        words = ["infer", "--input", self.answers.files[0], "--model-name", name, "--batch", BATCH]
        outcome = self.calls.command("infer-trained", self.cluster, "alice", *words, requests=2)
        if outcome.printed is not None:
            wrong = differ(outcome.printed.get("output"), self.answers.trained, TRAINED_TOLERANCE)
            self._right("infer-trained", wrong)
        return outcome


_GOES_ON = ("is stored already", "runs already")
"""What a step is refused with that an earlier attempt has done."""


def _kind(error: megrez.Error) -> str:
    """The kind of an exception, as the command names it."""
    word = type(error).__name__.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in word).lstrip("-") or "unclear"
