"""Pictures of a comparison: losses of the runs of each column and of each row, and their depth's instruments side by side.

A line is a run, or the mean of runs that differ in their seed, with a band from their least to their greatest value.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Tuple

import numpy as np

from pyhadal.comparison import Comparison, Entry, Panel
from pyhadal.instruments import norm_gradient_ratios
from pyhadal.plot import Series, lines
from pyhadal.run import Run

Points = Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]  # x and y
_NLL = "nll, nats per target token"
_DEPTH = "sublayer, encoder then decoder"
_MOST_BLOCKS = 40  # of a smoothed curve


@dataclasses.dataclass
class Group:
    """Pictures under one heading, as <svg> elements."""

    heading: str
    pictures: "list[str]"


def validation_nll(run: Run) -> Points:
    frame = run.validations
    return (frame["step"].to_numpy(float), frame["nll"].to_numpy(float)) if len(frame) else _nothing()


def training_nll(run: Run) -> Points:
    """Means over blocks of steps, at most 40 of them; skipped steps are left out, a run that ends without a loss shows it."""
    nll = run.metrics["nll"].to_numpy(float)
    finite = np.flatnonzero(np.isfinite(nll))
    kept = np.isfinite(nll) | (np.arange(len(nll)) > (finite[-1] if len(finite) else -1))
    steps = run.metrics["step"].to_numpy(float)[kept]
    blocks = [block for block in np.array_split(np.arange(len(steps)), min(_MOST_BLOCKS, len(steps))) if len(block)]
    return np.array([steps[block].mean() for block in blocks]), np.array([nll[kept][block].mean() for block in blocks])


def model_update(run: Run) -> Points:
    records = run.events("depth")
    if "model_update" not in records:
        return _nothing()
    return records["update"].to_numpy(float), _positive(records["model_update"].to_numpy(float))


def over_depth(series: str, record: int, logarithmic: bool) -> "Callable[[Run], Points]":
    """A series over the sublayers that have it, at a record: 0 the first, −1 the last."""
    def points(run: Run) -> Points:
        _, values = run.depth(series)
        if not len(values):
            return _nothing()
        chosen = _positive(values[record]) if logarithmic else values[record]
        has = ~np.isnan(chosen)
        return np.flatnonzero(has).astype(float), chosen[has]
    return points


def norm_ratios(run: Run) -> Points:
    ratios = _positive(norm_gradient_ratios(run))
    has = np.isfinite(ratios)
    return np.flatnonzero(has).astype(float), ratios[has]


def _nothing() -> Points:
    return np.array([]), np.array([])


def _positive(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(values > 0, values, np.nan)  # what a logarithmic axis can show


def merge(points: "Sequence[Points]") -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """x, mean, least and greatest y of several curves, at the x of the first one that lie within all; between its points a curve is a line."""
    low, high = max(x[0] for x, _ in points), min(x[-1] for x, _ in points)
    common = np.array([at for at in points[0][0] if low <= at <= high])
    rows = np.array([np.interp(common, x, y) for x, y in points])
    return common, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0)


def _series(name: str, colour: int, entry: "Entry | None", points: "Callable[[Run], Points]") -> "Series | None":
    runs = [run.run for run in entry.runs if run.run is not None] if entry else []
    curves = [curve for curve in map(points, runs) if len(curve[0])]
    if not curves:
        return None
    if len(curves) == 1:
        return Series(name, curves[0][0], curves[0][1], colour=colour)
    x, y, low, high = merge(curves)
    return Series(f"{name} ({len(curves)} seeds)", x, y, colour=colour, low=low, high=high) if len(x) else None


def hold_back(series: "list[Series]") -> "list[Series]":
    """A loss that explodes would flatten all others: no line goes higher than 1.5 times the median of the first points."""
    starts = [one.y[0] for one in series if np.isfinite(one.y[0])]
    if not starts:
        return series
    ceiling = 1.5 * statistics.median_high(starts)
    held = []
    for one in series:
        leaves = bool((~(np.asarray(one.y) <= ceiling)).any())
        held.append(dataclasses.replace(
            one, name=one.name + (" (leaves the picture)" if leaves else ""), y=_below(one.y, ceiling),
            low=None if one.low is None else _below(one.low, ceiling), high=None if one.high is None else _below(one.high, ceiling)))
    return held


def _below(values: "Sequence[float] | np.ndarray[Any, Any]", ceiling: float) -> np.ndarray[Any, Any]:
    return np.where(np.asarray(values) <= ceiling, values, ceiling)  # also for a loss that is not finite


class _Pictures:
    """The pictures of one group of lines: (name, entry) each."""

    def __init__(self, entries: "list[tuple[str, Entry | None]]"):
        self._entries = entries
        self.drawn: "list[str]" = []

    def add(self, title: str, x_label: str, y_label: str, points: "Callable[[Run], Points]", *, loss: bool = False,
            logarithmic: bool = False) -> None:
        found = [_series(name, i, entry, points) for i, (name, entry) in enumerate(self._entries)]
        series = [one for one in found if one is not None]
        if series:
            self.drawn.append(lines(hold_back(series) if loss else series, title, x_label, y_label, logarithmic=logarithmic))


def _heading(comparison: Comparison, panel: Panel, column: str) -> str:
    return ", ".join(filter(None, [f"{comparison.axes[1]['name']} {column}" if column else "", panel.name]))


def _losses(comparison: Comparison, panel: Panel) -> "list[Group]":
    groups = []
    for column in panel.columns:
        pictures = _Pictures([(row, panel.entries.get((row, column))) for row in panel.rows])
        pictures.add("Validation", "step", _NLL, validation_nll, loss=True)
        pictures.add("Training, means over blocks of steps", "step", _NLL, training_nll, loss=True)
        groups.append(Group(_heading(comparison, panel, column), pictures.drawn))
    if len(panel.columns) > 1:
        drawn, names = [], [axis["name"] for axis in comparison.axes]
        for row in panel.rows:
            pictures = _Pictures([(f"{names[1]} {column}", panel.entries.get((row, column))) for column in panel.columns])
            pictures.add(f"Validation: {row}", "step", _NLL, validation_nll, loss=True)
            drawn += pictures.drawn
        groups.append(Group(", ".join(filter(None, [f"each {names[0]} over {names[1]}", panel.name])), drawn))
    return groups


def _depth(comparison: Comparison, panel: Panel) -> "list[Group]":
    groups = []
    for column in panel.columns:
        pictures = _Pictures([(row, panel.entries.get((row, column))) for row in panel.rows])
        pictures.add("Change of the model, ‖ΔF‖", "update", "root mean square, per target token", model_update, logarithmic=True)
        for what, series in (("activations", "output_gradient"), ("parameters", "parameter_gradient")):
            for when, record in (("first record", 0), ("last record", -1)):
                if series == "parameter_gradient" or record == 0:
                    pictures.add(f"Gradient of the {what}, {when}", _DEPTH, "2-norm, nats per target token",
                                 over_depth(series, record, True), logarithmic=True)
        pictures.add("Gradient before a norm over that after it", _DEPTH, "ratio, at the first record", norm_ratios, logarithmic=True)
        pictures.add("Similarity to the previous sublayer", _DEPTH, "mean cosine, at the last record", over_depth("similarity", -1, False))
        pictures.add("Active hidden units", _DEPTH, "share, at the last record", over_depth("active", -1, False))
        groups.append(Group(_heading(comparison, panel, column), pictures.drawn))
    return groups


def draw(comparison: Comparison) -> "dict[str, list[Group]]":
    """Groups of pictures by their section: "Curves" and "Depth". Groups without a picture are left out."""
    sections = {"Curves": [group for panel in comparison.panels for group in _losses(comparison, panel)],
                "Depth": [group for panel in comparison.panels for group in _depth(comparison, panel)]}
    return {name: kept for name, groups in sections.items() if (kept := [group for group in groups if group.pictures])}
