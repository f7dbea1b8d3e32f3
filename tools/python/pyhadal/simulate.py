"""Draws the timeline that `hadal simulate` gives as JSON on standard input."""

from __future__ import annotations

import argparse
import json
import sys

from pyhadal import plot
from pyhadal.files import check_outputs, write_whole
from pyhadal.refusal import Refusal
from pyhadal.report import draw_timeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--svg", required=True, metavar="FILE", help="the picture's file")


def run(arguments: argparse.Namespace) -> None:
    check_outputs([arguments.svg])
    try:
        timeline = json.load(sys.stdin)
    except ValueError as error:
        raise Refusal(f"standard input is not JSON: {error}") from None
    write_whole(arguments.svg, plot.standalone(draw_timeline(timeline, "A step of each rank in time, simulated")))
