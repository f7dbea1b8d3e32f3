"""Draws runs as one HTML page: diagnoses, curves, translations, depth, times, memory, scaling, config.

Every number is that of `hadal summary --format json` or of the run's own records; nothing is computed a second time.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
from typing import Any, Iterator, Sequence

import numpy as np

from pyhadal import incarnations, plot, program
from pyhadal.files import check_outputs, write_whole
from pyhadal.page import markdown_page, render
from pyhadal.refusal import Refusal
from pyhadal.run import Run
from pyhadal.table import Table
from pyhadal.trace import read_timeline

# Colours of the parts of a step and of a timeline's kinds.
_COLOURS = {
    "forward": "#3b7dd8", "recompute": "#7fb3f0", "backward": "#d9822b", "backward weights": "#e8b276",
    "compute slower than profiled": "#8c3b3b", "optimizer": "#6b4fa0", "sums, norm, optimizer": "#6b4fa0",
    "waiting for a core": "#b59a00", "checkpoint": "#c2559d", "bubble": "#a9a9a9", "imbalance": "#e05a5a",
    "exposed transfers": "#3aa675", "wait": "#e05a5a", "communication": "#14746f", "unexplained": "#8d6e63",
}
_EACH_END = 20  # warnings shown of a run that warns at each step, at its begin and at its end
_MOST_ROWS = 64  # of a table of stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="STEM", help="path of the .html, .json and .md (default: report in the first run)")
    parser.add_argument("--profile", help="of `hadal bench profile`: its predictions are shown next to the measurements")
    parser.add_argument("--machine", help="a described machine, likewise")


def run(arguments: argparse.Namespace) -> None:
    stem = arguments.out or os.path.join(arguments.runs[0], "report")
    for extension in (".html", ".json", ".md"):
        stem = stem.removesuffix(extension)
    paths = [stem + extension for extension in (".html", ".json", ".md")]
    check_outputs(paths, own=os.path.abspath(stem) == os.path.abspath(os.path.join(arguments.runs[0], "report")))
    options = [f"--{name}={value}" for name in ("profile", "machine") if (value := getattr(arguments, name))]
    summary = with_incarnations(program.summarize(arguments.runs, options))
    page = make_page(summary)
    for path, text in zip(paths, [page, json.dumps(summary, indent=2, ensure_ascii=False) + "\n", make_markdown(summary)]):
        write_whole(path, text)
        print(path)


def with_incarnations(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with what elastic jobs have recorded of their starts: a table each, and the hosts that slow them."""
    for record in summary["runs"]:
        run = Run(record["directory"])
        if (table := incarnations.table(run)) is not None:
            summary["tables"].append(table)
            record["diagnoses"] += incarnations.slow_hosts(run)
    return summary


def make_page(summary: dict[str, Any]) -> str:
    """The page of what `hadal summary --format json` says. Reads the runs' curves and depth from their directories."""
    runs = [Run(run["directory"]) for run in summary["runs"]]
    names = [run["name"] for run in summary["runs"]]
    tables = tables_by_name(summary)
    return render("report.html", title=f"hadal report: {names[0]}" if len(names) == 1 else "hadal report", summary=summary,
                  diagnoses=_diagnoses(summary), warnings=_warnings(summary), tables=tables,
                  scaling=list(_scaling(summary)), curves=list(_curves(runs, names)), samples=_samples(runs, names),
                  depth=list(_depth(runs, names)), times=list(_times(summary, tables)))


def make_markdown(summary: dict[str, Any]) -> str:
    """The tables as Markdown, below the diagnoses."""
    said = [f"{record['run']}" + (f", step {record['step']}" if record["step"] is not None else "") + f": {record['text']}"
            for record in _diagnoses(summary)]
    said += [f"No {what}: {summary[f'no_{what}']}" for what in ("predictions", "scaling") if f"no_{what}" in summary]
    return markdown_page("hadal report", [Table.from_json(table) for table in summary["tables"]], said)


def tables_by_name(summary: dict[str, Any]) -> "dict[str, list[Table]]":
    """The summary's tables; those of each run are several. A name without tables has an empty list."""
    tables = collections.defaultdict(list)
    for table in summary["tables"]:
        tables[table["name"]].append(Table.from_json(table))
    return tables


def _diagnoses(summary: dict[str, Any]) -> "list[dict[str, Any]]":
    found = []
    for run in summary["runs"]:
        if run["failure"]:
            found.append({"run": run["name"], "step": None, "text": f"failed: {run['failure']}"})
        found += [{"run": run["name"], **record} for record in run["diagnoses"]]
    return found


def _warnings(summary: dict[str, Any]) -> "list[dict[str, Any]]":
    shown = []
    for run in summary["runs"]:
        records = [{"run": run["name"], **record} for record in run["warnings"]]
        left_out = len(records) - 2 * _EACH_END
        if left_out > 0:
            more = {"run": run["name"], "step": None, "text": f"{left_out} more warnings, in metrics.jsonl"}
            records = [*records[:_EACH_END], more, *records[-_EACH_END:]]
        shown += records
    return shown


def _over_steps(runs: "Sequence[Run]", names: "Sequence[str]", metric: str) -> "list[plot.Series]":
    return [plot.Series(name, run.metrics["step"], run.metrics[metric].astype(float), index)
            for index, (run, name) in enumerate(zip(runs, names)) if metric in run.metrics]


def _validations(runs: "Sequence[Run]", names: "Sequence[str]", metric: str, what: str) -> "list[plot.Series]":
    found = []
    for index, (run, name) in enumerate(zip(runs, names)):
        if metric in run.validations:
            rows = run.validations[["step", metric]].dropna()
            found.append(plot.Series(f"{name}: {what}", rows["step"], rows[metric].astype(float), index, dots=True))
    return [series for series in found if len(series.x)]


def _curves(runs: "Sequence[Run]", names: "Sequence[str]") -> "Iterator[str]":
    """Training and validation nll have one axis; the loss with label smoothing, another quantity, has its own."""
    title, unit = plot.metric_titles("nll")
    yield plot.lines(_over_steps(runs, names, "nll") + _validations(runs, names, "nll", "validation"), title, "step", unit)
    of_speech = any(run.frame_width > 0 for run in runs)  # a word error rate of a translation says little
    for metric, what in (("bleu", "BLEU"), ("chrf", "chrF++"), *((("wer", "WER"), ("cer", "CER")) if of_speech else ())):
        if series := _validations(runs, names, metric, what):
            yield plot.lines(series, *_titles(metric), from_zero=True)
    if any(_is_smoothed(run) for run in runs):
        yield plot.lines(_over_steps(runs, names, "loss"), *_titles("loss"))
    for metric in ("gradient_norm", "learning_rate", "tokens_per_second"):
        if series := _over_steps(runs, names, metric):
            of_norms = metric == "gradient_norm"
            yield plot.lines(series, *_titles(metric), logarithmic=of_norms, from_zero=not of_norms)


def _titles(metric: str) -> "tuple[str, str, str]":
    title, unit = plot.metric_titles(metric)
    return title, "step", unit


def _is_smoothed(run: Run) -> bool:
    frame = run.metrics
    return "nll" in frame and "loss" in frame and bool((frame["loss"].notna() & (frame["loss"] != frame["nll"])).any())


def _samples(runs: "Sequence[Run]", names: "Sequence[str]") -> "list[dict[str, Any]]":
    """The first translations and the last ones, to be read in order."""
    found = []
    for run, name in zip(runs, names):
        records = run.samples.to_dict("records")
        if records:
            found.append({"name": name, "samples": records if len(records) <= 5 else [records[0], *records[-4:]]})
    return found


def _depth(runs: "Sequence[Run]", names: "Sequence[str]") -> "Iterator[str]":
    """Each series as maps of the runs on one scale, and as curves over the depth."""
    updates = []
    for index, (run, name) in enumerate(zip(runs, names)):
        records = run.events("depth")
        if "model_update" in records:
            rows = records[["update", "model_update"]].dropna()
            updates.append(plot.Series(name, rows["update"], rows["model_update"].astype(float), index))
    if updates:
        title, unit = plot.metric_titles("model_update")
        yield plot.lines(updates, title, "update", unit, from_zero=True)
    for series, (title, unit, logarithmic) in plot.DEPTH_SERIES.items():
        maps = [plot.DepthMap(name, *run.depth(series), run.encoder_sublayers) for run, name in zip(runs, names)]
        maps = [one for one in maps if len(one.steps)]
        if not maps:
            continue
        yield plot.depth_maps(maps, title, unit, logarithmic=logarithmic)
        yield plot.lines(_profiles(maps), f"{title}, over the depth", "sublayer, encoder then decoder", unit,
                         logarithmic=logarithmic)


def _profiles(maps: "Sequence[plot.DepthMap]") -> "list[plot.Series]":
    """Over the depth: of one run at four steps, of several runs their last records."""
    chosen = [(maps[0], record) for record in plot.choose(len(maps[0].steps), 4)] if len(maps) == 1 else \
             [(one, len(one.steps) - 1) for one in maps]
    lines = []
    for index, (one, record) in enumerate(chosen):
        places = np.flatnonzero(~np.isnan(one.values[record]))
        step = f"step {one.steps[record]:,}"
        lines.append(plot.Series(step if len(maps) == 1 else f"{one.name}, {step}", places, one.values[record][places], index))
    return lines


def _scaling(summary: dict[str, Any]) -> "Iterator[str]":
    if "scaling" not in summary:
        return
    rows = summary["scaling"]["rows"]
    parts = list(rows[0]["causes"])
    yield plot.stacked_bars([f"{row['name']} ({row['cores']})" for row in rows], parts, [_COLOURS[part] for part in parts],
                            [[100 * row["causes"][part] for part in parts] for row in rows],
                            "What each run loses against the first", "percent of its core time",
                            [f"{100 * row['lost_share']:.1f}% lost" for row in rows])
    cores = [row["cores"] for row in rows]
    if len(set(cores)) < 2:
        return
    best = [row for index, row in enumerate(rows) if row["cores"] not in cores[:index]]  # of as many cores the cheapest first
    yield plot.lines([plot.Series("the best on so many cores", [row["cores"] for row in best],
                                  [100 * row["efficiency"] for row in best], 0),
                      plot.Series("runs", cores, [100 * row["efficiency"] for row in rows], 0, dots=True),
                      plot.Series("ideal", [row["cores"] for row in best], [100.0] * len(best), 6)],
                     "Scaling efficiency", "cores (ranks × threads)", "percent", from_zero=True)


def _times(summary: dict[str, Any], tables: "dict[str, list[Table]]") -> "Iterator[dict[str, Any]]":
    for run in summary["runs"]:
        stages = [table for table in tables["stages"] if table.run == run["name"]]
        pictures, notes = [_stage_bars(table) for table in stages if table.rows], []
        try:
            timeline = read_timeline(run["trace"]) if "trace" in run else None
        except Refusal as refusal:
            timeline = None
            notes.append(str(refusal))
        if timeline:
            pictures.append(draw_timeline(timeline, f"Step {timeline['step']:,} of {run['name']} in time, traced"))
            notes.append(f"Clocks agree within {1e6 * timeline['clock_error_seconds']:.1f} µs. The file in the run's trace folder "
                         "opens in ui.perfetto.dev.")
        memory = [table for table in tables["memory"] if table.run == run["name"]]
        yield {"pictures": pictures, "notes": notes, "tables": [_chosen(table) for table in stages + memory]}


def _stage_bars(table: Table) -> str:
    parts = [column.removesuffix(" (ms)") for column in table.columns if column.endswith(" (ms)")]
    values = [[row[1 + index].value or 0.0 for index in range(len(parts))] for row in table.rows]
    return plot.stacked_bars([f"stage {row[0].text}" for row in table.rows], parts, [_COLOURS[part] for part in parts], values,
                             table.title, "milliseconds of a step")


def _chosen(table: Table) -> Table:
    """Of very many stages an even selection; the JSON has all."""
    rows = plot.choose(len(table.rows), _MOST_ROWS)
    note = table.note + (f" {len(rows)} of {len(table.rows)} rows." if len(rows) < len(table.rows) else "")
    return Table(table.columns, [table.rows[row] for row in rows], table.title, note, table.run)


def draw_timeline(timeline: dict[str, Any], title: str) -> str:
    """A timeline of pyhadal.trace or `hadal simulate`."""
    kinds = [(name, _COLOURS[name]) for name in timeline["kinds"]]
    return plot.timeline(kinds, [(row["name"], row["spans"]) for row in timeline["rows"]], title)
