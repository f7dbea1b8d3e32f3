"""Sends the numbers of a run to MLflow or Weights & Biases while it trains, from its metrics.jsonl: nothing runs in the training process.

    python3 -m pyhadal follow RUN --to mlflow       MLFLOW_TRACKING_URI names the store (default: MLflow's own)
    python3 -m pyhadal follow RUN --to wandb        WANDB_MODE=offline needs no account; WANDB_PROJECT (default: hadal)
    pyhadal.train(…, track="mlflow")                the same, of a job that is started from Python

Ends with the run. Every number of a step and, with the prefix valid/, of a validation keeps its step. A follower that is started
again sends everything again, as a new run of the tracker.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import time
from typing import IO, Any, Callable, Iterator, Sequence

from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.run import Run, owner_state

Log = Callable[["dict[str, float]", int], object]
Finish = Callable[[bool], object]  # whether the run failed


class Follower:
    """Reads what was appended to a file of metrics since the last call. A resumed run replaces the file by one that begins with a
    copy of the old one: what was given is not given again."""

    def __init__(self, path: str):
        self._path, self._rest = path, b""
        self._file: "IO[bytes] | None" = None  # kept open, so that no later file has its inode
        self._attempts: "set[str]" = set()  # the starts that were given
        self._repeats = False  # events that were given before

    def poll(self) -> "list[dict[str, Any]]":
        """The new events, in order: of a file that was replaced first what is left. None if there is no file yet."""
        events = []
        try:
            if self._file is None or not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                file = open(self._path, "rb")
                events = self._read()
                self.close()
                self._file, self._rest, self._repeats = file, b"", bool(self._attempts)
        except FileNotFoundError:
            pass
        return events + self._read()

    def _read(self) -> "list[dict[str, Any]]":
        *whole, self._rest = (self._rest + (self._file.read() if self._file else b"")).split(b"\n")
        return list(self._new(whole))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _new(self, lines: "list[bytes]") -> "Iterator[dict[str, Any]]":
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "run":
                self._repeats = self._repeats and event["attempt"] in self._attempts
                self._attempts.add(event["attempt"])
            if not self._repeats:
                yield event


def numbers(event: "dict[str, Any]") -> "dict[str, float]":
    """The finite numbers of an event `step` or `validation`, under the names that a tracker gets."""
    prefix = {"step": "", "validation": "valid/"}.get(event.get("event", ""))
    if prefix is None:
        return {}
    return {prefix + name: float(value) for name, value in event.items()
            if type(value) in (int, float) and name not in ("step", "event") and math.isfinite(value)}


class Tracker:
    """A run of MLflow or Weights & Biases that gets the numbers of a run of hadal."""

    def __init__(self, name: str, run_dir: "str | os.PathLike[str]"):
        """`name`: of TRACKERS. Raises Refusal if it is another, or is not installed."""
        if name not in TRACKERS:
            raise Refusal(f"{name} is no tracker; there are {', '.join(TRACKERS)}")
        require(name)
        self._name, self._run_dir, self.lines = name, run_dir, 0
        self._log: "Log | None" = None
        self._finish: "Finish" = lambda failed: None
        self._failed = True  # no end was seen

    def take(self, events: "Sequence[dict[str, Any]]") -> None:
        """Sends events; the first ones begin the tracker's run. Raises Refusal in the tracker's words."""
        try:
            if self._log is None and events:
                self._log, self._finish = TRACKERS[self._name](Run(self._run_dir))
            for event in events:
                if event.get("event") in ("run", "finish"):
                    self._failed = event["event"] == "run"
                found = numbers(event)
                if found and self._log is not None:
                    self._log(found, event["step"])
                    self.lines += 1
        except Exception as error:  # of the tracker's own kinds
            raise Refusal(f"{self._name}: {error}", exit_code=1) from None

    def close(self) -> None:
        self._finish(self._failed)


def _mlflow(run: Run) -> "tuple[Log, Finish]":
    import mlflow

    mlflow.start_run(run_name=run.name, nested=mlflow.active_run() is not None)  # within a run of the user's own
    mlflow.log_params({name: str(value)[:500] for name, value in run.config.items()})
    return lambda found, step: mlflow.log_metrics(found, step=step), lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED")


def _wandb(run: Run) -> "tuple[Log, Finish]":
    import wandb

    # create_new: a run of the user's own is not ended.
    tracked = wandb.init(project=os.environ.get("WANDB_PROJECT", "hadal"), name=run.name, config=run.config, reinit="create_new")
    tracked.define_metric("*", step_metric="step")  # else the axis counts lines, validations too
    return lambda found, step: tracked.log({**found, "step": step}), lambda failed: tracked.finish(exit_code=int(failed))


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="where the numbers go")


def run(arguments: argparse.Namespace) -> None:
    followed = Run(arguments.run)
    with contextlib.closing(Tracker(arguments.to, followed.path)) as tracker:
        follow(followed.metrics_path, tracker, lambda: owner_state(followed.path) != "running")
        print(f"sent {tracker.lines:,} lines of {followed.path} to {arguments.to}")


def follow(path: str, tracker: Tracker, ended: "Callable[[], bool]", wait: float = 1.0) -> None:
    """Gives the tracker what is in a file of metrics, and what comes until `ended()`, which is asked every `wait` seconds."""
    with contextlib.closing(Follower(path)) as follower:
        while True:
            last = ended()
            tracker.take(follower.poll())
            if last:
                return
            time.sleep(wait)
