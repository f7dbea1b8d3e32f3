"""Trains one config on each layout of a list, and writes the scaling report: how efficient more ranks are, and where the rest of the time goes.

    hadal sweep LAYOUTS CONFIG… [--set a.b=c]… [--out DIR] [--submit "sbatch … sweep.sbatch" | --report-only]

    OUT/runs/NAME                    the run directory of a layout, OUT/logs/NAME.log what it printed
    OUT/scaling.{txt,html,json,md}   the report of all layouts that have run; without pandas and matplotlib the text alone
    OUT/submitted                    what the command of the last --submit printed

Layouts run one after the other, under mpirun if they have several ranks. A later call continues: it skips finished layouts and resumes
interrupted ones. With --submit nothing runs here: unfinished layouts are submitted as a job array, unless squeue shows, or cannot rule out,
that the last one has not ended. From then on, and with --report-only, a call without --submit trains nothing either: it writes the report
and names the layouts that have not finished.

A line of LAYOUTS is NAME RANKS [--set FIELD=VALUE]…, or a comment (#). Blanks separate words; quotes are part of a value, as the shell of
launch/slurm/sweep.sbatch reads them.

Exit status: 0 all layouts have run (or were submitted, or are reported), 1 one failed or has another config, a directory holds a run of
another layout, or an array is pending, 2 bad list or config, or nothing to report, 85 stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys

from pyhadal import program
from pyhadal.command import tell
from pyhadal.files import check_outputs, locked, replace_whole, write_whole
from pyhadal.grid import Cell, Grid, ask, is_name
from pyhadal.grid_runs import REQUEUE, Runner, directory_of, read_record, requeue_on_signal
from pyhadal.refusal import Refusal

_MOST_LIST_BYTES = 1 << 20
_STOPPED = "stopped on a signal or a time limit"  # begins a finish after which a run is resumed (runtime/metrics_sink.h)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layouts", metavar="LAYOUTS")
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--out", default="sweep", metavar="DIR")
    for name in ("submit", "profile", "machine"):
        parser.add_argument(f"--{name}", default="")
    for name in ("report-only", "accept-changes"):
        parser.add_argument(f"--{name}", action="store_true")


def run(arguments: argparse.Namespace) -> None:
    out = arguments.out
    if not arguments.submit.strip():
        requeue_on_signal()
    layouts = read_layouts(arguments.layouts)
    grid = Grid([Cell(name, [name], arguments.configs, [*arguments.set, *settings], ranks) for name, ranks, settings, _ in layouts], [])
    names = [f'layout "{cell.name}"' for cell in grid.cells]
    try:
        answers = ask([{**cell.question(), "run": directory_of(out, cell)} for cell in grid.cells], names)
    except Refusal:  # perhaps of a run of an older version, which can be reported
        if not arguments.report_only:
            raise
        answers = ask([cell.question() for cell in grid.cells], names)
    for cell, answer in zip(grid.cells, answers):
        cell.cost, cell.steps = answer["cost"], answer["steps"]
    _check_files(out)
    _check_layouts(out, grid.cells, [answer.get("layout", "") for answer in answers])
    if arguments.submit.strip():
        return _submit(arguments, [line for cell, (*_, line) in zip(grid.cells, layouts) if not _is_finished(out, cell)])
    if arguments.report_only or os.path.exists(_submission(out)):
        return _report_only(arguments, grid)
    runner = Runner(grid, out, accept_changes=arguments.accept_changes, judged=False)
    with locked(out or "."):
        runner.run()
        with runner.report():
            _write_scaling(arguments, grid)
    if runner.stopped:
        sys.exit(REQUEUE)
    if runner.failed or runner.changed:
        sys.exit(1)
    return None


def read_layouts(path: str) -> "list[tuple[str, int, list[str], int]]":
    """Name, ranks, settings and line of each layout. Raises Refusal with the line."""
    if not os.path.isfile(path) or os.path.getsize(path) > _MOST_LIST_BYTES:
        fault = "larger than 1 MiB" if os.path.isfile(path) else "no such file"
        raise Refusal(f"{path}: {fault}; a list of layouts has lines NAME RANKS [--set FIELD=VALUE]…")
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [re.findall(r"[^ \t\r\n]+", line) for line in file.read().split("\n")]
    layouts: "list[tuple[str, int, list[str], int]]" = []
    for number, words in enumerate(lines, 1):
        if not words or words[0].startswith("#"):
            continue
        fault = _fault(words)
        if words[0] in [layout[0] for layout in layouts]:
            fault = f'the layout "{words[0]}" is defined twice'
        if fault:
            raise Refusal(f"{path}:{number}: {fault}")
        layouts.append((words[0], int(words[1]), words[3::2], number))
    if not layouts:
        raise Refusal(f"{path} has no layout; a line is NAME RANKS [--set FIELD=VALUE]…")
    return layouts


def _fault(words: "list[str]") -> str:
    """What is wrong with a line; "": nothing."""
    name, ranks, *settings = [*words, ""][:max(2, len(words))]
    if not is_name(name) or name.startswith("."):
        return f'"{name}" is not a valid name of a run; use letters, digits, ".", "_", "+" and "-"'
    if not re.fullmatch("[0-9]{1,9}", ranks) or int(ranks) < 1:
        return f'the name "{name}" must be followed by the number of ranks, 1 or more'
    for place in range(0, len(settings), 2):
        if settings[place] != "--set" or place + 1 == len(settings):
            return f'"{settings[place]}": the number of ranks must be followed by settings, --set FIELD=VALUE'
    return ""


def _submission(out: str) -> str:
    """What the command of the last submission printed. While it exists, the layouts are the array's: nothing trains here."""
    return os.path.join(out, "submitted")


def _is_finished(out: str, cell: Cell) -> bool:
    """Whether the run has ended by a limit of its config, and by the present number of steps if that was the one."""
    record = None
    with contextlib.suppress(Refusal):
        record = read_record(directory_of(out, cell))
    if record is None or not record.finish or record.finish.startswith(_STOPPED):
        return False
    return record.finish != "all steps done" or record.steps[-1]["step"] >= cell.steps


def _check_layouts(out: str, cells: "list[Cell]", changes: "list[str]") -> None:
    """Raises Refusal if directories hold runs of other layouts, whose numbers the report would give under these names."""
    others = ""
    for cell, change in zip(cells, changes):
        directory, record = directory_of(out, cell), None
        with contextlib.suppress(Refusal):
            record = read_record(directory)
        if record is not None and record.ranks not in (0, cell.ranks):
            change += f"  ranks: {record.ranks} -> {cell.ranks}\n"
        if record is not None and change:
            others += f"{directory} holds a run of another layout:\n{change}"
    if others:
        raise Refusal(f"{others}Give the settings of before, or the new layout another name; a directory that is removed is trained anew.", exit_code=1)


def _check_files(out: str) -> None:
    """The report's files may be replaced where the text, which is written first, is a summary. Raises Refusal."""
    paths = [os.path.join(out, f"scaling.{ending}") for ending in ("txt", "html", "json", "md")]
    own = False
    if os.path.isfile(paths[0]):
        with open(paths[0], encoding="utf-8", errors="replace") as file:
            own = file.readline(1 << 16).endswith(" parameters\n")
    check_outputs(paths, own=own)


def _write_scaling(arguments: argparse.Namespace, grid: Grid) -> bool:
    """Of the layouts that have steps to show. Returns whether there are any."""
    from pyhadal.__main__ import main

    directories = []
    for cell in grid.cells:
        try:
            if read_record(directory := directory_of(arguments.out, cell)) is not None:
                directories.append(directory)
        except Refusal as refusal:
            tell(f"hadal sweep: the report leaves out {cell.name}: {refusal}", stream=sys.stderr)
    if not directories:
        return False
    costs = [f"--{name}={path}" for name in ("profile", "machine") if (path := getattr(arguments, name))]
    stem = os.path.join(arguments.out, "scaling")
    write_whole(f"{stem}.txt", program.run(["summary", *costs, "--", *directories]))
    main(["report", f"--out={stem}", *costs, "--", *directories])  # prints its own paths, or what is missing
    tell(f"{stem}.txt")
    return True


def _report_only(arguments: argparse.Namespace, grid: Grid) -> None:
    """Trains nothing, and says which layouts the report lacks."""
    out, reported = arguments.out, _write_scaling(arguments, grid)
    unfinished = [cell.name for cell in grid.cells if not _is_finished(out, cell)]
    if unfinished:
        tell(f"{len(unfinished)} of {len(grid.cells)} layouts have not finished: {', '.join(unfinished)}")
        if os.path.exists(_submission(out)):
            tell("They are left to the job array that was submitted. After its end --submit submits them again; without "
                 f"{_submission(out)} they are trained here.")
    if not reported:
        raise Refusal(f"{out}/runs: no layout has a step to report yet")


def _submit(arguments: argparse.Namespace, lines: "list[int]") -> None:
    """sbatch, told which lines of the list are to run."""
    out = arguments.out
    if not lines:
        tell("every layout has run")
        return
    with locked(out or "."):
        _check_ended(out)
        command, *words = arguments.submit.split()
        words = [command, f"--array={','.join(map(str, lines))}", *words, arguments.layouts, *arguments.configs]
        for text in arguments.set:
            words += ["--set", text]
        words += ["--accept-changes"] if arguments.accept_changes else []
        tell(" ".join(words))
        code, said = _run_to_end(words, {**os.environ, "HADAL_SWEEP": out})  # where sweep.sbatch puts its runs
        tell(said, end="")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_submission(out))
        if code:
            raise Refusal(f"the submission ended with code {code}", exit_code=1)
        replace_whole(_submission(out), said)
        tell("When the jobs have ended, the same command with --report-only writes the report.")


def _run_to_end(words: "list[str]", environment: "dict[str, str] | None" = None) -> "tuple[int, str]":
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=environment)
    except OSError as error:
        return 2, f"{words[0]}: {error.strerror}\n"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _check_ended(out: str) -> None:
    """Refuses a second array beside one that squeue does not know to have ended: both would train the same runs."""
    path = _submission(out)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        said = file.read(_MOST_LIST_BYTES)
    job = re.match("[0-9]*", said.rpartition("Submitted batch job ")[2])  # or 4711 alone, with --parsable
    number, remedy = job[0] if job else "", f"remove {path} if its jobs have ended"
    if not number:
        raise Refusal(f"submitted before, without a job number; {remedy}", exit_code=1)
    code, queue = _run_to_end(["squeue", "--noheader", f"--jobs={number}"])
    if (code == 0 and not queue.strip()) or "Invalid job id" in queue:
        return
    raise Refusal(f"job {number} of the last submission has not ended; wait for it, or scancel {number}" if code == 0 else
                  f"squeue does not say whether job {number} of the last submission has ended; {remedy}", exit_code=1)
