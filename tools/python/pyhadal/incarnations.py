"""The starts of an elastic job (`hadal supervise --elastic`): RUN/incarnations.jsonl, whose fields are in docs/metrics.md."""

from __future__ import annotations

import json
import os
from typing import Any

from pyhadal.run import Run

_SLOW = 1.1  # a host below that is within what cuts of unequal stages cost


def read_incarnations(run: str) -> "list[dict[str, Any]]":
    """The lines of RUN/incarnations.jsonl that are whole; none without that file."""
    lines = []
    try:
        with open(os.path.join(run, "incarnations.jsonl"), encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    continue  # being written, or cut short by a full disk
    except OSError:
        pass
    return lines


def table(run: Run) -> "dict[str, Any] | None":
    """The table of the report, as `hadal summary --format json` has tables; None for a run that is not elastic."""
    columns = ["start", "hosts", "stages x replicas x chunks", "steps", "saved step", "restart (s)", "repeated steps", "detection (s)", "ended"]
    rows, values = [], []
    for line in read_incarnations(run.path):
        number = [line.get(name) for name in ("saved_step", "restart_seconds", "repeated_steps", "detection_seconds")]
        steps = f"{line['first_step']:,}–{line['last_step']:,}" if "first_step" in line else "none"
        rows.append([line["start"], " ".join(host["name"] for host in line["hosts"]),
                     f"{line['stages']} x {line['replicas']} x {line['chunks']}", steps,
                     *("" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in number),
                     line["end"]])
        values.append([None, None, None, None, *number, None])
    if not rows:
        return None
    lost = sum(value for row in values for value in (row[5], row[7]) if value is not None)
    note = f"Detections and restarts took {lost:,.0f} s; {sum(row[6] or 0 for row in values):,} steps were repeated."
    return {"name": "incarnations", "run": run.name, "title": f"Starts of {run.name}", "columns": columns, "rows": rows, "values": values,
            "note": note}


def slow_hosts(run: Run) -> "list[dict[str, Any]]":
    """Diagnoses ("step", "text") of hosts without which the job would be faster, one a start.

    All wait for the slowest stage. If a host's stages compute f times as long as the mean of the others, and it has s of N ranks, then
    without it the others do its share in N / (N - s) of their time: it slows the job by more than it gives if f is larger.
    """
    found = []
    starts = [line for line in read_incarnations(run.path) if "first_step" in line]
    for line, later in zip(starts, [*starts[1:], None]):
        times = _stage_times(run, line, min(line["last_step"], later["first_step"] - 1) if later else line["last_step"])
        ranks = [host["name"] for host in line["hosts"] for _ in range(host["slots"])][:line["stages"] * line["replicas"]]
        together = run.config.get("pipeline.placement") == "stages_together"
        stage_of = [rank % line["stages"] if together else rank // line["replicas"] for rank in range(len(ranks))]
        for name in dict.fromkeys(ranks):
            mine = {stage for stage, host in zip(stage_of, ranks) if host == name}
            alone = all(host == name for stage, host in zip(stage_of, ranks) if stage in mine)
            others = [seconds for stage, seconds in enumerate(times) if stage not in mine]
            if not times or not alone or not others:
                continue
            slower = max(times[stage] for stage in mine) / (sum(others) / len(others))
            gives = ranks.count(name) / len(ranks)
            if slower > max(_SLOW, 1 / (1 - gives)):
                found.append({"step": line["first_step"], "text": f"host {name} slows the job by more than it gives: its stages compute "
                              f"{slower:.2f} times as long as the others' for {100 * gives:.0f}% of the ranks; leave it out of the hosts file"})
    return found


def _stage_times(run: Run, line: "dict[str, Any]", last_step: int) -> "list[float]":
    """Seconds that each stage computes in a start's steps up to `last_step`, summed; [] if none was recorded."""
    sums: "list[float]" = []
    for event in run._events.get("step", []):
        if line["first_step"] <= event["step"] <= last_step and len(event.get("stages", [])) == line["stages"]:
            seconds = [sum(stage.get(part, 0.0) for part in ("forward", "recompute", "backward")) for stage in event["stages"]]
            sums = [a + b for a, b in zip(sums, seconds)] if sums else seconds
    return sums
