"""Runs the cells of a grid as child processes, one after the other, within the grid's budget, and judges what they have come to.

    OUT/runs/CELL/           the run directory of `hadal train`, and cell.json: the state of the cell's run between calls
    OUT/logs/CELL.log        what the child printed

A verdict has one rule for all methods: has the model learned from context, or only how frequent each token is?

    below = H - best validation nll       in nats per target token
    H     = the nll of the same validation sentences if every token is predicted by its frequency in the training text
    trains      below >= 0.3: it has learned from context
    fails       below < 0.05: it has learned token frequencies at most
    between     otherwise
    too short   as fails, but its training nll was still falling (by at least 0.05 between the means of the fourth and the last fifth of its
                steps), or the run has fewer than five steps
    diverged    the run ended because its numbers were not finite; takes precedence over the others
    not known   H or the validation nll is missing

Not the loss: with Post-LN the loss also falls at first if training fails, through the output layer alone; only the distance below H
separates the two. Needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from typing import Any, Iterator, Sequence

from pyhadal import program
from pyhadal.command import tell
from pyhadal.files import replace_whole
from pyhadal.grid import Cell, Grid, ask, ask_of
from pyhadal.refusal import Refusal
from pyhadal.run import read_events

TRAINS_BELOW, FAILS_BELOW = 0.3, 0.05  # nats per target token
TRANSLATION = "test.translation"  # of a test set, in the run directory

# How the last run of a cell ended: it has never run; it is running, or was killed together with its `hadal compare`; exit code 0; 4: not
# finite; stopped at the grid's run_minutes; stopped because the budget was used up or a signal arrived; any other exit code.
ENDS = ("none", "running", "done", "diverged", "cut", "interrupted", "failed")
_DONE, _DIVERGED, REQUEUE = 0, 4, 85
_PAUSE_SECONDS, _LOOK_SECONDS, _REMIND_SECONDS = 0.02, 0.5, 1.0


def directory_of(out: str, cell: Cell) -> str:
    return os.path.join(out, "runs", cell.name)


def log_of(out: str, cell: Cell) -> str:
    return os.path.join(out, "logs", f"{cell.name}.log")


def read_state(directory: str) -> "dict[str, Any]":
    """cell.json: end, exit_code, wall_seconds and cpu_seconds of all its runs, unigram_nll (H) if known, test_source, the CRC-32 of what
    TRANSLATION translates. Raises Refusal if it is damaged."""
    path = os.path.join(directory, "cell.json")
    state: "dict[str, Any]" = {"end": "", "exit_code": 0, "wall_seconds": 0.0, "cpu_seconds": 0.0}
    if not os.path.exists(path):
        return {**state, "end": "none"}
    with contextlib.suppress(ValueError, TypeError), open(path, encoding="utf-8") as file:
        state.update(json.load(file))
    if state["end"] not in ENDS:
        raise Refusal(f"{path}: not written by hadal compare; remove {directory} to run this cell again", exit_code=3)
    return state


def write_state(directory: str, state: "dict[str, Any]") -> None:
    os.makedirs(directory, exist_ok=True)
    replace_whole(os.path.join(directory, "cell.json"), json.dumps(state, indent=1) + "\n")


@dataclasses.dataclass
class Record:
    """What a run recorded. `finish`: why it ended; "": it has not, by itself."""

    model: str = ""
    parameters: int = 0
    ranks: int = 0
    finish: str = ""
    steps: "list[dict[str, Any]]" = dataclasses.field(default_factory=list)
    validations: "list[dict[str, Any]]" = dataclasses.field(default_factory=list)
    diagnoses: "list[dict[str, Any]]" = dataclasses.field(default_factory=list)


def read_record(directory: str) -> "Record | None":
    """None: the run has no step yet. Raises Refusal for damaged records."""
    record = Record()
    if not os.path.exists(os.path.join(directory, "metrics.jsonl")):
        return None
    kinds = {"step": record.steps, "validation": record.validations, "diagnosis": record.diagnoses}
    for event in read_events(directory):
        kind = event.get("event")
        if kind in kinds:
            kinds[kind].append({key: event.get(key) for key in ("step", "nll", "loss", "text")})  # long runs are large
        elif kind == "run":
            record.model, record.parameters, record.ranks, record.finish = event.get("model", ""), event.get("parameters", 0), event.get("ranks", 0), ""
        elif kind == "finish":
            record.finish = event.get("reason", "")
    return record if record.steps else None


def judge(state: "dict[str, Any]", record: Record) -> "dict[str, Any]":
    """steps, verdict, and where they exist loss (the last step's), best_validation_nll, best_step, below_unigram. null is not finite."""
    last = record.steps[-1]
    result: "dict[str, Any]" = {"steps": last["step"], "verdict": "not known"}
    if last["loss"] is not None:
        result["loss"] = last["loss"]
    known = [each for each in record.validations if each["nll"] is not None]
    below = None
    if known:
        best = min(known, key=lambda each: each["nll"])
        result.update(best_validation_nll=best["nll"], best_step=best["step"])
        if "unigram_nll" in state:
            below = result["below_unigram"] = state["unigram_nll"] - best["nll"]
    if state["end"] == "diverged":
        result["verdict"] = "diverged"
    elif below is not None:
        result["verdict"] = "trains" if below >= TRAINS_BELOW else "between" if below >= FAILS_BELOW else \
            "too short" if _still_falls(record.steps) else "fails"
    return result


def _still_falls(steps: "list[dict[str, Any]]") -> bool:
    def mean(part: int) -> float:
        values = [step["nll"] for step in steps[len(steps) * part // 5:len(steps) * (part + 1) // 5] if step["nll"] is not None]
        return sum(values) / len(values) if values else float("nan")
    return len(steps) < 5 or mean(3) - mean(4) >= FAILS_BELOW


def duration(seconds: float) -> str:
    """ "4.2s", "40s", "3m20s", "5h07m", "2d03h"."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours = minutes // 60
    return f"{rest}s" if minutes == 0 else f"{minutes}m{rest:02}s" if hours == 0 else f"{hours}h{minutes % 60:02}m" if hours < 24 else \
        f"{hours // 24}d{hours % 24:02}h"


class Stop:
    """`asked`: whether USR1, USR2, INT, TERM or HUP has arrived while the block ran. The second INT ends the process, whose child then saves."""

    def __init__(self) -> None:
        self.asked = False
        self._interrupted = False
        self._before: "dict[int, Any]" = {}

    def __enter__(self) -> "Stop":
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and self._interrupted:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._interrupted |= number == signal.SIGINT
        self.asked = True


def requeue_on_signal() -> None:
    """USR1 or USR2 outside Runner.run ends the command with 85: there is nothing to save."""
    def end(_number: int, _frame: object) -> None:
        raise SystemExit(REQUEUE)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, end)


class _Progress:
    """One line on standard error: redrawn on a terminal; elsewhere written after five seconds, then once a minute."""

    def __init__(self, what: str, total: int):
        self._what, self._total, self._done, self._start = what, total, 0, time.monotonic()
        self._live = sys.stderr.isatty()
        self._next = 1.0 if self._live else 5.0

    def show(self, done: int) -> None:
        self._done = max(done, self._done)
        seconds = time.monotonic() - self._start
        if seconds < self._next:
            return
        self._next = seconds + (0.2 if self._live else 60)
        line = f"{self._what}  "
        if self._total > 0:
            share = min(1.0, self._done / self._total)
            line += f"{100 * share:2.0f}%  {self._done:,}/{self._total:,} steps  "
            line += f"ETA {duration(seconds * (1 / share - 1))}" if share > 0 else duration(seconds)
        else:
            line += (f"{self._done:,} steps  " if self._done else "") + duration(seconds)
        columns = shutil.get_terminal_size().columns - 1
        tell(f"\r\033[K{line[:columns]}" if self._live else line + "\n", end="", stream=sys.stderr)

    def end(self) -> None:
        if self._live and time.monotonic() - self._start >= 1:
            tell("\r\033[K", end="", stream=sys.stderr)


def _last_step(directory: str) -> int:
    """The last step in the metrics of a run that may be in progress; 0: none yet."""
    try:
        with open(os.path.join(directory, "metrics.jsonl"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return 0
    mark = b'"event":"step","step":'
    found = next((line for line in reversed(lines) if mark in line), mark + b"0")
    return int(found.split(mark)[1].split(b",")[0].rstrip(b"}"))


class Runner:
    """Runs cells, once. A run that exceeds its time or the budget, or during which a signal arrives, gets SIGUSR1 to save and stop.

    `ranks`: of each run that does not have its own; `accept_changes`: continues cells whose config has changed; `judged`: each run is judged,
    else only its speed is printed; `test_source`: translated by every finished cell, in time that counts neither for the run nor for the budget.
    Afterwards, numbers of the chosen cells: `finished` are done, diverged or cut, now or earlier; `failed` ended with an error, or their
    translation did; `changed` were not run, because their directories hold runs of other configs; `waiting` have not run to the end.
    `stopped`: whether a signal arrived.
    """

    def __init__(self, grid: Grid, out: str, *, chosen: "Sequence[int]" = (), ranks: int = 1, accept_changes: bool = False,
                 judged: bool = True, test_source: str = ""):
        """Raises Refusal for a number that no cell has, and for what no child could run."""
        self._grid, self._out, self._stop, self._ranks, self._accept = grid, out, Stop(), ranks, accept_changes
        self._judged, self._test_source = judged, test_source
        for number in chosen:
            if not 1 <= number <= len(grid.cells):
                raise Refusal(f"--run {number}: the grid's runs are numbered from 1 to {len(grid.cells)}")
        self.chosen = [number - 1 for number in dict.fromkeys(chosen)] or list(range(len(grid.cells)))
        self.finished = self.failed = self.changed = self.waiting = 0
        self.stopped = False
        self._source = 0  # CRC-32 of the test set
        self._measured_seconds = self._measured_cost = 0.0  # of the runs that this call did from start to end
        self._told_budget = False
        self._levels: "dict[str, dict[str, Any]]" = {}
        self._environment = {name: value for name, value in os.environ.items() if name != "HADAL_SUPERVISOR_REPORT"}  # how it ends is judged here
        ask_of([grid.cells[index] for index in self.chosen], corpus=True)

    def run(self) -> None:
        """REQUIRES: the lock of the folder. Raises Refusal for damaged files. A failed cell is counted, and the next one runs."""
        os.makedirs(os.path.join(self._out, "logs"), exist_ok=True)
        self._spent = sum(read_state(directory_of(self._out, cell))["wall_seconds"] for cell in self._grid.cells)  # of all calls
        self._drop_other_translations()
        plans = ask([{**self._grid.cells[index].question(), "run": directory_of(self._out, self._grid.cells[index])} for index in self.chosen],
                    [self._grid.cells[index].name for index in self.chosen])
        with self._stop:
            for index, plan in zip(self.chosen, plans):
                self._run_cell(index, plan)
        self.stopped = self._stop.asked

    @contextlib.contextmanager
    def report(self) -> "Iterator[None]":
        """After `run`: a signal ends the block, after a stop without an effect on the exit code."""
        try:
            yield
        except SystemExit:
            if not self.stopped:
                raise

    def _say(self, index: int, text: str) -> None:
        count = str(len(self._grid.cells))
        tell(f"[{index + 1:{len(count)}}/{count}] {self._grid.cells[index].name}: {text}")

    def _minutes(self, name: str) -> float:
        return float(self._grid.settings.get(name, 0))

    def _budget_is_used(self, running_seconds: float = 0) -> bool:
        total = 60 * self._minutes("total_minutes")
        return total > 0 and self._spent + running_seconds >= total

    def _run_cell(self, index: int, plan: "dict[str, Any]") -> None:
        directory = directory_of(self._out, self._grid.cells[index])
        state, limit = read_state(directory), 60 * self._minutes("run_minutes")
        finished = state["end"] in ("done", "diverged") or (state["end"] == "cut" and 0 < limit <= state["wall_seconds"])
        if plan.get("changes") and not self._accept:
            self.changed += 1
            self._say(index, f"not run; {directory} holds a run of another config:\n{plan['changes']}"
                      "Remove the directory to run it again, or give --accept-changes to continue with it.")
        elif finished and plan.get("limits") is False and not plan["changes"]:
            self.finished += 1
            self._say(index, f"{state['end']} before")
            self._translate(index, state)
        elif self._stop.asked or self._budget_is_used():
            self.waiting += 1
            if not self._stop.asked and not self._told_budget:
                tell(f"The budget of {self._minutes('total_minutes'):g} minutes is used up; total_minutes in the grid sets it.")
                self._told_budget = True
        else:
            self._train(index, directory, state, again="changes" in plan and state["end"] != "none")

    def _train(self, index: int, directory: str, state: "dict[str, Any]", again: bool) -> None:
        cell = self._grid.cells[index]
        self._say(index, (f"continues (was {state['end']})" if again else "starts") + self._expected(cell, state["wall_seconds"]))
        if self._judged:  # also of a run that continues: its corpus may be another by now
            state.pop("unigram_nll", None)
            state.update(self._level(index))
        state["end"] = "running"
        if os.path.exists(os.path.join(directory, TRANSLATION)):
            os.unlink(os.path.join(directory, TRANSLATION))  # of weights that will be others
        write_state(directory, state)
        start = time.monotonic()
        code, cpu_seconds, cause = self._wait(self._start(cell, self._train_words(cell)), start, state["wall_seconds"], cell)
        seconds = time.monotonic() - start
        state["wall_seconds"] += seconds
        state["cpu_seconds"] += cpu_seconds
        state["exit_code"], state["end"] = code, _end_of(code, cause)
        self._spent += seconds
        if state["end"] == "done" and not again:
            self._measured_seconds += seconds
            self._measured_cost += cell.cost
        write_state(directory, state)
        self._count(state["end"])
        try:
            result = self._result(directory, state)
        except Refusal as refusal:
            result = f"no steps ({refusal})"
        text = f"{state['end']} in {duration(seconds)}, {result}"
        if state["end"] == "failed":
            text += f"\n  exit code {code}; its output is in {log_of(self._out, cell)}"
        self._say(index, text)
        self._translate(index, state)

    def _level(self, index: int) -> "dict[str, Any]":
        """unigram_nll of a cell; that of all that are left is asked for at once, because most have the same corpus."""
        cell = self._grid.cells[index]
        if cell.name not in self._levels:
            cells = [self._grid.cells[each] for each in self.chosen[self.chosen.index(index):]]
            try:
                answers = ask_of(cells, unigram=True)
            except Refusal:  # perhaps of a cell that is not trained
                cells = [cell]
                answers = ask_of(cells, unigram=True)
            for each, answer in zip(cells, answers):
                self._levels[each.name] = {"unigram_nll": answer["unigram_nll"]} if "unigram_nll" in answer else {}
        return self._levels[cell.name]

    def _train_words(self, cell: Cell) -> "list[str]":
        hadal, ranks = program.find(), cell.ranks or self._ranks
        words = ["train", *cell.files]
        for text in cell.settings:
            words += ["--set", text]
        words += ["--run-dir", directory_of(self._out, cell), *(["--accept-changes"] if self._accept else [])]
        if ranks == 1:
            return words
        placement = os.environ.get("HADAL_MPIRUN_OPTIONS", "--bind-to none --oversubscribe").split()  # other MPIs have other options than Open MPI
        return ["supervise", "--", "mpirun", "-n", str(ranks), *placement, hadal, *words]

    def _start(self, cell: Cell, words: "list[str]") -> "subprocess.Popen[bytes]":
        with open(log_of(self._out, cell), "ab") as log:
            return program.start(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._environment)

    def _drop_other_translations(self) -> None:
        """Those of another test set than this call's, of all runs: the report scores every translation against one reference."""
        if not self._test_source:
            return
        with open(self._test_source, "rb") as file:
            self._source = zlib.crc32(file.read())
        for directory in (directory_of(self._out, cell) for cell in self._grid.cells):
            path = os.path.join(directory, TRANSLATION)
            if os.path.exists(path) and read_state(directory).get("test_source") != self._source:
                os.unlink(path)

    def _translate(self, index: int, state: "dict[str, Any]") -> None:
        """The test set, by a cell that is finished and has weights to translate with."""
        cell = self._grid.cells[index]
        directory = directory_of(self._out, cell)
        path = os.path.join(directory, TRANSLATION)
        if not self._test_source or state["end"] not in ("done", "cut") or os.path.exists(path) or self._stop.asked:
            return
        write_state(directory, {**state, "test_source": self._source})  # before: a translation never lies beside another set's number
        start, progress = time.monotonic(), _Progress(f"{cell.name}: translating", 0)
        process = self._start(cell, ["translate", directory, "--input", self._test_source, "--out", path, "--overwrite"])
        while (end := _poll(process)) is None and not self._stop.asked:
            progress.show(0)
            time.sleep(_PAUSE_SECONDS)
        progress.end()
        if end is None:
            process.kill()
            process.wait()
        elif end[0] != _DONE:
            self.failed += 1
            self._say(index, f"not translated, exit code {end[0]}; its output is in {log_of(self._out, cell)}")
        else:
            self._say(index, f"translated in {duration(time.monotonic() - start)}")

    def _count(self, end: str) -> None:
        if end == "failed":
            self.failed += 1
        elif end == "interrupted":
            self.waiting += 1
            # A child that stopped by itself has met a limit that holds for this process too: the end of a Slurm job.
            self._stop.asked |= not self._budget_is_used()
        else:
            self.finished += 1

    def _wait(self, process: "subprocess.Popen[bytes]", start: float, before: float, cell: Cell) -> "tuple[int, float, str]":
        """Waits for the child's end, asking it to stop when a limit is reached: again and again, because a process that is still coming
        up may miss the first time. Returns its exit code, its CPU time, and why it was asked to stop."""
        directory, limit = directory_of(self._out, cell), 60 * self._minutes("run_minutes")
        first = _last_step(directory)
        progress = _Progress(cell.name, max(0, cell.steps - first))
        cause, looked_at, asked_at = "", 0.0, -_REMIND_SECONDS
        while (end := _poll(process)) is None:
            seconds = time.monotonic() - start
            if self._stop.asked:
                cause = "signal"
            elif limit > 0 and before + seconds >= limit:
                cause = "run"
            elif self._budget_is_used(seconds):
                cause = "budget"
            if seconds - looked_at >= _LOOK_SECONDS:
                looked_at = seconds
                progress.show(_last_step(directory) - first)
            if cause and seconds - asked_at >= _REMIND_SECONDS:
                os.kill(process.pid, signal.SIGUSR1)
                asked_at = seconds
            time.sleep(_PAUSE_SECONDS)
        progress.end()
        return end[0], end[1], cause

    def _expected(self, cell: Cell, before: float) -> str:
        """ ", about 40s", from the runs that this call has measured; at most what run_minutes leave."""
        limit = 60 * self._minutes("run_minutes")
        measured = self._measured_seconds / self._measured_cost * cell.cost if self._measured_cost else float("inf")
        seconds = min(measured, max(0.0, limit - before) if limit > 0 else float("inf"))
        return "" if seconds == float("inf") else f", {'at most' if seconds < measured else 'about'} {duration(seconds)}"

    def _result(self, directory: str, state: "dict[str, Any]") -> str:
        """ "300 steps, best validation nll 4.61, 0.54 below the unigram level: trains", "300 steps, 5.29k target tokens/s"."""
        record = read_record(directory)
        if record is None:
            return "no steps"
        result = judge(state, record)
        text = f"{result['steps']:,} steps"
        if not self._judged:
            return f"{text}, {rate_text(program.summarize([directory])['runs'][0]['target_tokens_per_second'])} target tokens/s"
        if "best_validation_nll" in result:
            text += f", best validation nll {result['best_validation_nll']:.3f}"
        if "below_unigram" in result:
            below = result["below_unigram"]
            text += f", {abs(below):.2f} {'above' if below < 0 else 'below'} the unigram level"
        if result["verdict"] != "not known":
            text += f": {result['verdict']}"
        last = record.diagnoses[-1] if record.diagnoses and result["verdict"] != "trains" else None
        if last and not last["text"].startswith("over: "):
            text += f"\n  diagnosis at step {last['step']}: {last['text']}"
        return text


def _poll(process: "subprocess.Popen[bytes]") -> "tuple[int, float] | None":
    """(exit code, 128 + n of signal n; user and system time with descendants) of a child that has ended, once."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    code = process.returncode = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code, usage.ru_utime + usage.ru_stime


def _end_of(code: int, cause: str) -> str:
    if code in (_DONE, _DIVERGED):
        return "done" if code == _DONE else "diverged"
    # A child that was stopped before it listened to signals is ended by one; nothing was done that could be lost.
    if code != REQUEUE and not (cause and code > 128):
        return "failed"
    return "cut" if cause == "run" else "interrupted"


def rate_text(value: float) -> str:
    """ "5.29k"."""
    unit = ""
    for larger in "kMGT":
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.{0 if not unit or value >= 99.95 else 1 if value >= 9.995 else 2}f}{unit}"
