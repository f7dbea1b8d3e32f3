"""One step of a traced run as a timeline of each rank's work, from the file that `hadal train --trace` writes: an event a line."""

from __future__ import annotations

import json
import os
from typing import Any, Iterator

from pyhadal.refusal import Refusal

KINDS = ("forward", "recompute", "backward", "backward weights", "wait", "sums, norm, optimizer")
_LETTERS = "FRBW"  # of the first kinds
_RECOMPUTE, _BACKWARD, _WAIT, _UPDATE = 1, 2, 4, 5


def read_timeline(path: "str | os.PathLike[str]") -> dict[str, Any]:
    """The middle one of the trace's steps, as report.draw_timeline takes it; time 0 is the begin of the step.

    {"step", "clock_error_seconds", "kinds", "end_seconds", "rows": [{"name": "rank 0", "spans": [[begin, end, kind, "F3"], …]}, …]},
    a rank's spans in order of time, not overlapping. Raises Refusal if the file is no trace, or has no complete step. Memory: a step.
    """
    try:
        steps = sorted({event["args"]["step"] for event in _events(path, '"cat":"step"')})
        if not steps:
            raise Refusal(f"{path}: the trace has no complete step; train with --trace steps=A-B")
        step, origin = steps[len(steps) // 2], float("inf")
        ranks: "dict[int, Any]" = {}
        for event in _events(path, f'"step":{step}'):
            if event["ph"] != "X" or event["args"]["step"] != step:
                continue
            begin, kind = 1e-6 * event["ts"], _kind(event["cat"], event["name"])
            if event["cat"] == "step":
                origin = min(origin, begin)
            if kind is not None:
                number = event["args"].get("micro_batch", -1)
                label = f"{_LETTERS[kind]}{number}" if kind < len(_LETTERS) and number >= 0 else ""
                ranks.setdefault(event["pid"], []).append([begin, begin + 1e-6 * event["dur"], kind, label])
        with open(path, encoding="utf-8") as file:
            clock_error = json.loads(file.readline().rstrip(",\n") + "}")["otherData"]["clock_error_us"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{path}: the trace cannot be read: {error}", exit_code=3) from None
    rows = []
    for rank in sorted(ranks):
        spans = [[begin - origin, end - origin, kind, label] for begin, end, kind, label in ranks[rank]]
        rows.append({"name": f"rank {rank}", "spans": _cut_out(spans)})
    return {"step": step, "clock_error_seconds": 1e-6 * clock_error, "kinds": KINDS, "rows": rows,
            "end_seconds": max((span[1] for row in rows for span in row["spans"]), default=0.0)}


def _events(path: "str | os.PathLike[str]", text: str) -> "Iterator[dict[str, Any]]":
    """The events whose line contains `text`."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith('{"ph":') and text in line:
                yield json.loads(line.rstrip(",\n"))


def _kind(category: str, name: str) -> "int | None":
    """The kind of a slice in the timeline; None: not drawn."""
    if category in KINDS[:len(_LETTERS)]:
        return KINDS.index(category)
    if name.startswith("wait"):
        return _WAIT
    return _UPDATE if category in ("global norm", "optimizer") or "tied" in category or "replicas" in category else None


def _cut_out(spans: "list[list[Any]]") -> "list[list[Any]]":
    """Takes recomputations out of the backwards that contain them."""
    flat: list[Any] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        rest = None
        if flat and flat[-1][2] == _BACKWARD and span[2] == _RECOMPUTE and flat[-1][1] > span[0]:
            rest = [span[1], *flat[-1][1:]]
            flat[-1][1] = span[0]
        flat += [span] if rest is None else [span, rest]
    return [span for span in flat if span[1] > span[0]]
