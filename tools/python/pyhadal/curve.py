"""Draws a metric of one or several runs: as text, or as SVG with each run's depth map above it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyhadal.command import printable
from pyhadal.files import check_outputs, write_whole
from pyhadal.options import number
from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.run import Run, names_of
from pyhadal.text_plot import Curve, Style, plot_curves, shows_colours, shows_unicode

if TYPE_CHECKING:
    from pyhadal import plot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="Run directories, or metrics.jsonl files")
    parser.add_argument("-m", "--metric", default="loss",
                        help="Field of event step (loss, nll, learning_rate …), or valid/nll, valid/bleu … (default: %(default)s)")
    parser.add_argument("-l", "--label", action="extend", nargs="+", default=[], help="Name of each run in the legend")
    parser.add_argument("--width", type=number(int, 8, 1000), default=60, help="Columns of the text (default: %(default)s)")
    parser.add_argument("--height", type=number(int, 3, 1000), default=12, help="Its rows (default: %(default)s)")
    parser.add_argument("--svg", metavar="FILE", help="Write a picture to this file instead")
    parser.add_argument("--depth", metavar="SERIES",
                        help="Above it each run's sublayers over the steps, as a heat map (docs/metrics.md, event depth)")
    parser.add_argument("--dark", action="store_true", help="Colours for a dark page")


def run(arguments: argparse.Namespace) -> None:
    if arguments.label and len(arguments.label) != len(arguments.runs):
        raise Refusal(f"{len(arguments.label)} labels for {len(arguments.runs)} runs; give one per run, or none")
    if (arguments.depth or arguments.dark) and not arguments.svg:
        raise Refusal("--depth and --dark are for pictures; give --svg FILE")
    if arguments.svg:
        require("matplotlib")
        from pyhadal import plot

        if arguments.depth and arguments.depth not in plot.DEPTH_SERIES:
            raise Refusal(f"--depth {arguments.depth} is not one of {', '.join(plot.DEPTH_SERIES)}")
        check_outputs([arguments.svg], arguments.runs)
    runs = [Run(path) for path in arguments.runs]
    names = arguments.label or names_of(runs)
    points = [run.points(arguments.metric) for run in runs]
    if arguments.svg:
        write_whole(arguments.svg, draw(runs, names, points, arguments))
        return
    style = Style(arguments.width, arguments.height, shows_unicode(), shows_colours())
    print(plot_curves([Curve(printable(name), each) for name, each in zip(names, points)], style, arguments.metric), end="")


def draw(runs: "list[Run]", names: "list[str]", points: "list[list[tuple[float, float]]]", arguments: argparse.Namespace) -> str:
    """The picture."""
    import numpy as np

    from pyhadal import plot

    series = [plot.Series(name, np.array(each, float)[:, 0], np.array(each, float)[:, 1], index, dots=len(each) == 1)
              for index, (name, each) in enumerate(zip(names, points))]
    maps = [read_map(run, name, arguments.depth) for run, name in zip(runs, names)] if arguments.depth else []
    return plot.standalone(plot.curve_with_maps(series, arguments.metric, maps, arguments.depth), arguments.dark)


def read_map(run: Run, name: str, series: str) -> "plot.DepthMap":
    """A run's records of one number of every sublayer. Raises Refusal if it has none."""
    from pyhadal import plot

    steps, values = run.depth(series)
    if not steps:
        raise Refusal(f"{run.metrics_path}: no record of the depth holds '{series}'; were instruments.enabled?")
    return plot.DepthMap(name, steps, values, run.encoder_sublayers)
