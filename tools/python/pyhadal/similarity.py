"""Draws what `hadal inspect similarity` has measured: how alike the outputs of a checkpoint's layers are."""

from __future__ import annotations

import argparse
import json

from pyhadal import plot
from pyhadal.files import check_outputs, write_whole
from pyhadal.page import render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measured", metavar="STEM.json")
    parser.add_argument("page", metavar="STEM.html")


def run(arguments: argparse.Namespace) -> None:
    check_outputs([arguments.page])
    with open(arguments.measured, encoding="utf-8") as file:
        measured = json.load(file)
    pictures = [plot.square(measured[stack], stack.capitalize(), "mean cosine of a token", "layer") for stack in ("encoder", "decoder")
                if stack in measured]
    write_whole(arguments.page, render("similarity.html", title="Similarity of layers", measured=measured, pictures=pictures))
    print(arguments.page)
