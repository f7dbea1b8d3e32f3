"""Runs every cell of a grid (configs/compare.proto) as `hadal train … --run-dir OUT/runs/CELL`, one after the other, cheapest first, and reports.

    hadal compare GRID.textproto [--out DIR] [--run N…] [--seeds N…] [--set a.b=c]… [--ranks R] [--accept-changes] [--list]
                  [--test-source FILE --test-reference FILE] [--report-only]

A later call continues: it skips finished cells, resumes interrupted ones, and leaves a cell alone whose config has changed, naming the
fields. At the end, or at any time with --report-only, it writes OUT/grid.json, and from that OUT/comparison.{html,md,json} (comparison.py).
INT, TERM, USR1 and USR2 are passed on to the running cell, which saves; the command then exits with 85.

Exit status: 0 every cell has run or the budget is used up, 1 a cell failed or has another config, 2 bad grid or usage, or the runs have no
report because a package is missing, 85 stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from pyhadal import command, grid_runs
from pyhadal.command import tell
from pyhadal.files import check_outputs, check_place, locked, replace_whole
from pyhadal.grid import Cell, Grid, load
from pyhadal.grid_runs import REQUEUE, Runner, requeue_on_signal
from pyhadal.options import number
from pyhadal.packages import require
from pyhadal.refusal import Refusal

PACKAGES = ("pandas", "matplotlib", "jinja2", "sacrebleu")  # of the report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("grid", metavar="GRID")
    parser.add_argument("--out", default="comparison", metavar="DIR")
    parser.add_argument("--run", type=number(int, 1, 1 << 30), action="append", default=[], help="the number of a run, as --list prints it")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--seed", type=number(int, 0, 2**64 - 1), action="append", default=[], help="one more axis")
    parser.add_argument("--ranks", type=number(int, 0, 65536), default=0, help="of each run (0: the grid's)")
    parser.add_argument("--test-source", default="", metavar="FILE")
    parser.add_argument("--test-reference", default="", metavar="FILE")
    for name in ("accept-changes", "list", "report-only"):
        parser.add_argument(f"--{name}", action="store_true")


def run(arguments: argparse.Namespace) -> None:
    out = arguments.out
    requeue_on_signal()
    grid = load(arguments.grid, arguments.set, arguments.seed)
    if arguments.list:
        return _print_list(grid, out)
    _check_files(out)
    if arguments.report_only:
        sys.exit(_report(grid, out, arguments.test_reference))
    if command.run("compare", lambda: require(*PACKAGES)):
        tell("The runs take place without a report.", stream=sys.stderr)
    runner = Runner(grid, out, chosen=arguments.run, ranks=arguments.ranks or grid.settings.get("ranks", 1),
                    accept_changes=arguments.accept_changes, test_source=arguments.test_source)
    with locked(out or "."):
        runner.run()
        tell(_outcome(runner))
        code = REQUEUE
        with runner.report():
            code = _report(grid, out, arguments.test_reference)
    sys.exit(REQUEUE if runner.stopped else 1 if runner.failed or runner.changed else code)


def _outcome(runner: Runner) -> str:
    text = f"{runner.finished} of {len(runner.chosen)} runs finished"
    for count, what in ((runner.failed, "failed"), (runner.changed, "with another config left alone"),
                        (runner.waiting, "left: start the same command again")):
        text += f", {count} {what}" if count else ""
    return text


def _print_list(grid: Grid, out: str) -> None:
    total, width = sum(cell.cost for cell in grid.cells), max(4, *(len(cell.name) for cell in grid.cells))
    tell(f" run  {'cell':{width}}   share  state")
    for place, cell in enumerate(grid.cells, 1):
        end = grid_runs.read_state(grid_runs.directory_of(out, cell))["end"]
        tell(f"{place:4}  {cell.name:{width}}  {100 * cell.cost / total:5.1f}%  {'not yet run' if end == 'none' else end}")


def _check_files(out: str) -> None:
    """The report's files may be replaced where grid.json is a comparison's. Raises Refusal."""
    paths = [os.path.join(out, name) for name in ("grid.json", "comparison.html", "comparison.md", "comparison.json")]
    own = False
    if os.path.isfile(paths[0]):
        with open(paths[0], encoding="utf-8", errors="replace") as file:
            own = '"trains_below_unigram":' in file.read(1 << 16)
    check_outputs(paths, own=own)
    tables = os.path.join(out, "tables")
    if os.path.islink(tables) or (os.path.exists(tables) and not own):
        raise Refusal(f"{tables} already exists; remove it, or choose another --out")
    check_place(tables)


def _report(grid: Grid, out: str, reference: str) -> int:
    """Returns the exit code."""
    def draw() -> None:
        require(*PACKAGES)
        from pyhadal import comparison

        comparison.write(out, reference)

    write_record(grid, out)
    code = command.run("compare", draw)
    if code:
        tell(f"The runs are there: `hadal summary {out}/runs/*` prints their numbers; the same command with --report-only writes the report.",
             stream=sys.stderr)
    return code


def write_record(grid: Grid, out: str) -> None:
    """OUT/grid.json: title, note, the verdicts' limits, axes with their labels, and for each cell its labels, run directory and log (relative
    to OUT), state, exit code, times, result and verdict. A result that does not exist has no key. Times in seconds, nll in nats per
    target token. Raises Refusal for damaged files."""
    rule = {"trains_below_unigram": grid_runs.TRAINS_BELOW, "fails_below_unigram": grid_runs.FAILS_BELOW}
    head = {"title": grid.settings.get("title") or "Comparison", "note": grid.settings.get("note", ""), "rule": rule, "axes": grid.axes}
    lines = [f"{json.dumps(key)}:{_compact(value)},\n" for key, value in head.items()]
    cells = ",\n".join(_compact(_cell_record(cell, out)) for cell in grid.cells)  # a line each, easy to compare
    os.makedirs(out or ".", exist_ok=True)
    replace_whole(os.path.join(out, "grid.json"), "{" + "".join(lines) + f'"cells":[\n{cells}\n]}}\n')


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cell_record(cell: Cell, out: str) -> "dict[str, object]":
    directory = grid_runs.directory_of(out, cell)
    state = grid_runs.read_state(directory)
    state.pop("test_source", None)
    record = {"name": cell.name, "labels": cell.labels, "directory": grid_runs.directory_of("", cell), "log": grid_runs.log_of("", cell),
              "state": state.pop("end"), **state}
    found = grid_runs.read_record(directory)
    if found is not None:
        record.update(model=found.model, parameters=found.parameters, **grid_runs.judge({**state, "end": record["state"]}, found))
    return record
