"""Trains: starts the supervised job, shows its progress, saves on an interrupt."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import warnings
from typing import Any, Sequence

from pyhadal import program
from pyhadal.config import Config, Path
from pyhadal.corpus import Corpus
from pyhadal.follow import Follower, Tracker
from pyhadal.model import flags
from pyhadal.refusal import Refusal
from pyhadal.run import Run

_SAVED = 85
_POLL_SECONDS = 0.2


class JobError(Refusal):
    """A job that failed: the message is the program's last line. `exit_code`: the program's (docs/running.md#exit-codes-and-signals).
    `output`: the last lines that it printed."""

    def __init__(self, message: str, exit_code: int, output: str):
        super().__init__(message, exit_code)
        self.output = output


def train(config: "Config | Path", corpus: "Corpus | Path | None" = None, *, run_dir: Path, ranks: int = 1, tries: int = 3,
          progress: bool = True, track: str = "", **options: Any) -> Run:
    """Trains in the directory `run_dir` under `hadal supervise`, and returns the run when it has ended or was saved.

    `config`: a Config, or what Config reads. `corpus`: its train and validation override the config's. `ranks`: processes; more
    than one need mpirun (its options: HADAL_MPIRUN_OPTIONS). `tries`: after so many crashes in a row without a newer checkpoint the
    supervisor gives up. `progress`: a bar of tqdm, if that is installed. `track`:
    "mlflow" or "wandb", which get the numbers of steps and validations (pyhadal.follow; no part of it is in the training process).
    `options`: of `hadal train`, with _ for -, as `init_from="runs/other", accept_changes=True, device="cuda"`.

    A run that is there is resumed from its newest checkpoint. An interrupt (Ctrl-C, a notebook's stop) saves, then raises
    KeyboardInterrupt; the same call resumes it. A second interrupt does not wait for the save, a third kills the job. If
    this process ends in any way, the job saves and ends. A call in another thread gets no interrupt: Python raises it in the main thread.

    Raises JobError, with the program's last line and exit code: a bad config, a directory that another run is using, a full disk,
    a lost rank (after the supervisor's restarts), numbers that are not finite.
    """
    if ranks < 1:
        raise Refusal(f"ranks = {ranks} is not allowed; it must be 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "config.textproto")
        with_corpus(config, corpus).write(file)
        mpirun = ["mpirun", "-n", str(ranks), *os.environ.get("HADAL_MPIRUN_OPTIONS", "--bind-to none --oversubscribe").split()]
        words = ["supervise", "--tries", str(tries), "--", *(mpirun if ranks > 1 else []), program.find(), "train", file,
                 "--run-dir", os.fspath(run_dir), *flags(options)]
        watchers = [*([_Bar()] if progress else []), *([Tracker(track, run_dir)] if track else [])]
        job = _Job(words, os.fspath(run_dir), watchers)
        try:
            code = job.wait()
        finally:
            job.end()
    if job.interrupted:
        raise KeyboardInterrupt("saved; the same call resumes it" if code == _SAVED else f"the job ended with exit code {code}")
    if code not in (0, _SAVED):
        output = "".join(job.lines)
        found = program.failure("train", output, code)
        raise JobError(str(found).replace(file, "config"), found.exit_code, output)
    return Run(run_dir)


def with_corpus(config: "Config | Path", corpus: "Corpus | Path | None") -> Config:
    """The config with the corpus's training and validation text in place of its own."""
    chosen = Config(config)
    if corpus is not None:
        found = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
        chosen.data.train = found.train
        chosen.data.validation = found.validation
    return chosen


class _Job:
    """A supervised job. `watchers` get the new events of its metrics.jsonl; one that fails is left out, with a warning."""

    def __init__(self, words: "Sequence[str]", run_dir: str, watchers: "list[Any]"):
        self.interrupted = False
        self._watchers = watchers
        self.lines: "collections.deque[str]" = collections.deque(maxlen=200)
        self._follower = Follower(os.path.join(run_dir, "metrics.jsonl"))
        self._follower.poll()  # what earlier starts wrote
        self._process = program.start(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.decode("utf-8", "replace"))

    def wait(self) -> int:
        """The job's exit code. An interrupt is passed on to the job, which then saves."""
        while True:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_POLL_SECONDS)
                    self._reader.join()
                self._report(self._follower.poll())
                if self._process.returncode is not None:
                    return self._process.returncode
            except KeyboardInterrupt:
                self.interrupted = True
                self._process.send_signal(signal.SIGINT)

    def _report(self, events: "Sequence[dict[str, Any]]") -> None:
        for watcher in [*self._watchers]:
            try:
                watcher.take(events)
            except Refusal as refusal:
                self._watchers.remove(watcher)
                warnings.warn(f"{refusal}; the run continues without it", stacklevel=4)

    def end(self) -> None:
        """Leaves nothing running, however the wait has ended."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        for each in (self._follower, *self._watchers):
            each.close()


class _Bar:
    """The job's progress as a bar of tqdm; nothing without tqdm."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._numbers: "dict[str, str]" = {}
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets has a bar of text
            from tqdm.auto import tqdm

            self._bar = tqdm(unit="step", dynamic_ncols=True)

    def take(self, events: "Sequence[dict[str, Any]]") -> None:
        for event in events if self._bar is not None else []:
            if event["event"] == "run":
                self._bar.total = event["total_steps"] or None
                self._bar.n = self._bar.initial = self._bar.last_print_n = event["first_step"] - 1
            elif event["event"] == "step":
                self._bar.n = event["step"]
                self._numbers.update({"nll": _short(event["nll"]), "tok/s": _short(event["tokens_per_second"], 0)})
            elif event["event"] == "validation":
                self._numbers["valid nll"] = _short(event["nll"])
            elif event["event"] == "diagnosis":
                self._bar.write(f"step {event['step']}: {event['text']}")
        if self._bar is not None:
            self._bar.set_postfix(self._numbers)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _short(value: "float | None", digits: int = 3) -> str:
    return "not finite" if value is None else f"{value:.{digits}f}"
