"""Draws a metric of one or several runs as SVG, with each run's depth map above it."""

from __future__ import annotations

import argparse
from pyhadal import plot
from pyhadal.files import check_outputs, write_whole
from pyhadal.refusal import Refusal
from pyhadal.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or metrics.jsonl files")
    parser.add_argument("--metric", default="loss", help="a number of event step, or valid/NAME of event validation")
    parser.add_argument("--label", action="append", default=[], help="name of each run in the legend")
    parser.add_argument("--svg", required=True, metavar="FILE", help="the picture's file")
    parser.add_argument("--depth", choices=plot.DEPTH_SERIES, help="above it each run's sublayers over the steps")
    parser.add_argument("--dark", action="store_true", help="colours for a dark page")


def run(arguments: argparse.Namespace) -> None:
    if arguments.label and len(arguments.label) != len(arguments.runs):
        raise Refusal(f"{len(arguments.label)} labels for {len(arguments.runs)} runs; give one per run, or none")
    check_outputs([arguments.svg], arguments.runs)
    runs = [Run(path) for path in arguments.runs]
    names = arguments.label or [run.name for run in runs]
    series = [read_series(run, name, arguments.metric, index) for index, (run, name) in enumerate(zip(runs, names))]
    maps = [read_map(run, name, arguments.depth) for run, name in zip(runs, names)] if arguments.depth else []
    svg = plot.curve_with_maps(series, arguments.metric, maps, arguments.depth)
    write_whole(arguments.svg, plot.standalone(svg, arguments.dark))


def read_series(run: Run, name: str, metric: str, index: int) -> plot.Series:
    """The values of a metric over the steps. Raises Refusal, with the names that exist, if no line has it."""
    of_validation = metric.startswith("valid/")
    frame = run.validations if of_validation else run.metrics
    key = metric[len("valid/"):] if of_validation else metric
    if key not in _numbers(frame):
        known = [*_numbers(run.metrics), *(f"valid/{column}" for column in _numbers(run.validations))]
        if not known:
            raise Refusal(f"{run.metrics_path}: has no step yet")
        raise Refusal(f"{run.metrics_path}: no line has '{metric}'; available: {', '.join(sorted(known))}")
    rows = frame[["step", key]]
    return plot.Series(name, rows["step"].to_numpy(float), rows[key].to_numpy(float), index, dots=len(rows) == 1)


def _numbers(frame) -> "list[str]":
    """The columns that hold numbers, without the step."""
    if frame.empty:
        return []
    return [name for name in frame.select_dtypes("number").columns if name != "step"]


def read_map(run: Run, name: str, series: str) -> plot.DepthMap:
    """A run's records of one number of every sublayer. Raises Refusal if it has none."""
    steps, values = run.depth(series)
    if not steps:
        raise Refusal(f"{run.metrics_path}: no record of the depth holds '{series}'; were instruments.enabled?")
    return plot.DepthMap(name, steps, values, run.encoder_sublayers)
