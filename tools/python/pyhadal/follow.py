"""Sends the numbers of a run to MLflow or Weights & Biases while it trains, from its metrics.jsonl: nothing runs in the training process.

    python3 -m pyhadal follow RUN --to mlflow       MLFLOW_TRACKING_URI names the store (default: ./mlruns)
    python3 -m pyhadal follow RUN --to wandb        WANDB_MODE=offline needs no account

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
from typing import IO, Any, Callable, Iterator

from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.run import Run

Log = Callable[["dict[str, float]", int], None]


class Follower:
    """Reads what was appended to a file of metrics since the last call. A resumed run replaces the file by one that begins with a
    copy of the old one: what was given is not given again."""

    def __init__(self, path: str):
        self._path, self._rest = path, b""
        self._file: "IO[bytes] | None" = None  # kept open, so that no later file has its inode
        self._attempts: "set[str]" = set()  # the starts that were given
        self._repeats = False  # events that were given before

    def poll(self) -> "list[dict[str, Any]]":
        """The new events, in order; none if there is no file yet."""
        try:
            if self._file is None or not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                self.close()
                self._file, self._rest, self._repeats = open(self._path, "rb"), b"", bool(self._attempts)
        except FileNotFoundError:
            return []
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
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


def follow(run: Run, log: Log, ended: "Callable[[], bool]", wait: float = 1.0) -> int:
    """Calls log(numbers, step) for each step and validation of the run until `ended()`, asked every `wait` seconds. Returns the calls."""
    calls = 0
    with contextlib.closing(Follower(run.metrics_path)) as follower:
        while True:
            last = ended()
            for event in follower.poll():
                found = numbers(event)
                if found:
                    log(found, event["step"])
                    calls += 1
            if last:
                return calls
            time.sleep(wait)


def _mlflow(run: Run) -> "tuple[Log, Callable[[], None]]":
    import mlflow

    mlflow.start_run(run_name=run.name)
    mlflow.log_params({name: str(value)[:500] for name, value in run.config.items()})
    return lambda found, step: mlflow.log_metrics(found, step=step), mlflow.end_run


def _wandb(run: Run) -> "tuple[Log, Callable[[], None]]":
    import wandb

    tracked = wandb.init(project="hadal", name=run.name, config=run.config)
    return lambda found, step: tracked.log({**found, "step": step}), tracked.finish


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--to", choices=TRACKERS, required=True, help="where the numbers go")


def run(arguments: argparse.Namespace) -> None:
    require(arguments.to)
    try:
        followed = Run(arguments.run)
    except Refusal as refusal:
        raise Refusal(f"{refusal}; start the follower when the run has begun") from None
    log, finish = TRACKERS[arguments.to](followed)
    try:
        calls = follow(followed, log, lambda: followed.status().state != "running")
    finally:
        finish()
    print(f"sent {calls:,} lines of {followed.path} to {arguments.to}")
