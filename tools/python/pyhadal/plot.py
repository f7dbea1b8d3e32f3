"""Pictures as SVG, in one style. Text stays text, so that it can be searched, and takes the page's colours, light or dark.

Every function returns an <svg> element, for a page or for a file of its own (`standalone`). Axes have titles with units.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import re
from typing import Any, Sequence

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pyhadal.files import MARK

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no remarks about its font cache on the user's terminal

# Colours of runs, distinguishable for colour-blind readers (Okabe and Ito), then by the line's style.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"]
STYLES = ["-", "--", ":", "-."]

# Replaced by the page's own colours: see _themed.
_INK, _GRID = "#333333", "#e2e2e2"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hadal",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "grid.color": _GRID,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "image.cmap": "viridis",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

# (title, unit) of the numbers of metrics.jsonl, for axes. docs/metrics.md describes them.
METRICS = {
    "loss": ("Loss with label smoothing", "nats per target token"),
    "nll": ("Loss without label smoothing", "nats per target token"),
    "perplexity": ("Perplexity", "exp(nll)"),
    "learning_rate": ("Learning rate", "factor of the update"),
    "gradient_norm": ("Gradient norm", "2-norm, nats per target token"),
    "tokens_per_second": ("Throughput", "target tokens per second"),
    "step_seconds": ("Time of a step", "seconds"),
    "target_tokens": ("Target tokens of a step", "tokens"),
    "epoch": ("Epoch", "passes over the corpus"),
    "measured_bubble": ("Idle share, measured", "share of the step"),
    "bleu": ("BLEU of the validation", "BLEU, 0 to 100"),
    "chrf": ("chrF++ of the validation", "chrF++, 0 to 100"),
    "wer": ("Word error rate of the validation", "errors per word"),
    "cer": ("Character error rate of the validation", "errors per character"),
    "model_update": ("Change of the model since its first weights", "‖ΔF‖, root mean square"),
}

# (title, unit, logarithmic) of the series over the depth, by their names in event depth of metrics.jsonl.
DEPTH_SERIES = {
    "parameter_gradient": ("Gradient of the parameters", "2-norm, nats per token", True),
    "update_ratio": ("Size of the update", "‖ΔW‖ / ‖W‖ of one update", True),
    "output_gradient": ("Gradient of the activations", "2-norm, nats per token", True),
    "norm_output_gradient": ("Gradient after the LayerNorm", "2-norm, nats per token", True),
    "norm_input_gradient": ("Gradient before the LayerNorm", "2-norm, nats per token", True),
    "output": ("Activations after the sublayer", "root mean square, ‖x‖/√d", True),
    "norm_input": ("Input of the LayerNorm", "root mean square, ‖s‖/√d", True),
    "similarity": ("Similarity to the previous sublayer", "mean cosine of a row", False),
    "active": ("Active hidden units", "share of non-zero numbers after ReLU", False),
    "second_stream": ("Second stream after the sublayer", "root mean square, ‖d‖/√d_model", True),
}


def metric_titles(metric: str) -> "tuple[str, str]":
    """The title of a picture of a metric and of its y axis. `metric` may begin with "valid/"."""
    of_validation = metric.startswith("valid/")
    name = metric[len("valid/"):] if of_validation else metric
    title, unit = METRICS.get(name, (name, name))
    if of_validation and "validation" not in title:
        title += ", validation"
    return title, unit


@dataclasses.dataclass
class Series:
    """A line, or dots, over x. `low`, `high`: a band around it, as of several seeds. `colour`: its run's number."""

    name: str
    x: "Sequence[float] | np.ndarray[Any, Any]"
    y: "Sequence[float] | np.ndarray[Any, Any]"
    colour: int = 0
    dots: bool = False
    low: "Sequence[float] | np.ndarray[Any, Any] | None" = None
    high: "Sequence[float] | np.ndarray[Any, Any] | None" = None


def thin(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], columns: int = 500) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """At most two finite points, the lowest and the highest, of each of `columns` parts of the x range: spikes stay.

    One point that is not finite of each part stays too: the line is interrupted there.
    """
    if len(x) <= 2 * columns:
        return x, y
    part = np.minimum(((x - x[0]) / max(x[-1] - x[0], 1e-300) * columns).astype(int), columns - 1)
    kept = set()
    for begin, end in zip(*_runs(part)):
        inside = y[begin:end]
        finite = np.isfinite(inside)
        if finite.any():
            kept.update({begin + int(np.argmin(np.where(finite, inside, np.inf))),
                         begin + int(np.argmax(np.where(finite, inside, -np.inf)))})
        if not finite.all():
            kept.add(begin + int(np.argmin(finite)))
    order = sorted(kept)
    return x[order], y[order]


def _runs(values: np.ndarray[Any, Any]) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """The begins and ends of stretches of equal values."""
    changes = np.flatnonzero(np.diff(values)) + 1
    return np.concatenate([[0], changes]), np.concatenate([changes, [len(values)]])


def _name(text: str) -> str:
    """The text as Matplotlib draws it as it is: $ begins no formula, and _ at its begin does not keep it out of a legend."""
    return ("\u200b" if text.startswith("_") else "") + text.replace("$", r"\$")


def draw_series(axes: Any, series: "Sequence[Series]") -> None:
    """Draws series into axes, with a legend below if there are several; it counts points that are not finite."""
    for one in series:
        x, y = np.asarray(one.x, float), np.asarray(one.y, float)
        lost = int((~np.isfinite(y)).sum())
        label = _name(one.name) + (f" ({lost} not finite)" if lost else "")
        colour, style = COLOURS[one.colour % len(COLOURS)], STYLES[one.colour // len(COLOURS) % len(STYLES)]
        if one.low is not None:
            axes.fill_between(x, one.low, one.high, color=colour, alpha=0.2, linewidth=0)
        if one.dots:
            axes.plot(x, y, "o", color=colour, label=label, markersize=5)
        else:
            axes.plot(*thin(x, y), style, color=colour, label=label, linewidth=1.3,
                      marker="o" if len(x) == 1 else None, markersize=4)
    if len(series) > 1 or any("not finite" in text.get_label() for text in axes.get_lines()):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncol=2, borderaxespad=0)


def lines(series: "Sequence[Series]", title: str, x_label: str, y_label: str, *, logarithmic: bool = False,
          from_zero: bool = False, width: float = 5.6, height: float = 3.0) -> str:
    """Lines and dots over x. Inches of 72 points. `logarithmic`: the y axis, where any value is above 0."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot(title=_name(title), xlabel=x_label, ylabel=y_label)
        values = np.concatenate([np.asarray(one.y, float) for one in series]) if series else np.array([])
        values = values[np.isfinite(values)]
        draw_series(axes, series)
        if logarithmic and (values > 0).any():
            axes.set_yscale("log")
        elif from_zero and len(values):
            axes.set_ylim(min(0, values.min()), max(0, values.max()) * 1.05 or 1)
        if all(float(x).is_integer() for one in series for x in one.x):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        return to_svg(figure)


@dataclasses.dataclass
class DepthMap:
    """A number of every sublayer at some steps. `values`: [records, sublayers]; NaN: no such tensor; inf: not finite."""

    name: str
    steps: Sequence[int]
    values: np.ndarray[Any, Any]
    encoder_sublayers: int = 0  # the first ones; a line separates them from the decoder's


def depth_maps(maps: "Sequence[DepthMap]", title: str, unit: str, *, logarithmic: bool = True, width: float = 11.4,
               x_label: str = "recorded step", y_label: str = "sublayer, encoder then decoder") -> str:
    """Heat maps of runs, on one perceptual scale (viridis), depth upwards. White: no such tensor. Red: not finite."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, _maps_height(maps)), layout="constrained")
        _draw_maps(figure, maps, title, unit, logarithmic, x_label, y_label)
        return to_svg(figure)


def curve_with_maps(series: "Sequence[Series]", metric: str, maps: "Sequence[DepthMap]", depth: str = "") -> str:
    """A metric over the steps of runs, below their depth maps if there are any. `depth`: a name of DEPTH_SERIES."""
    width, height = 8.8, 3.0
    title, y_label = metric_titles(metric)
    if not maps:
        return lines(series, title, "step", y_label, width=width, height=height)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, _maps_height(maps) + height), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=[_maps_height(maps), height])
        map_title, unit, logarithmic = DEPTH_SERIES[depth]
        _draw_maps(above, maps, map_title, unit, logarithmic, "recorded step", "sublayer, encoder then decoder")
        draw_series(below.add_subplot(title=title, xlabel="step", ylabel=y_label), series)
        return to_svg(figure)


def _maps_height(maps: "Sequence[DepthMap]") -> float:
    return 3.2 * -(-len(maps) // 3) + 0.3


def _draw_maps(figure: Any, maps: "Sequence[DepthMap]", title: str, unit: str, logarithmic: bool, x_label: str, y_label: str) -> None:
    columns = min(len(maps), 3)
    grid = figure.subplots(-(-len(maps) // columns), columns, squeeze=False)
    norm = _common_norm(maps, logarithmic)
    for axes, one in zip(grid.flat, maps):
        _draw_map(axes, one, norm)
        axes.set(xlabel=x_label, ylabel=y_label)
    for axes in list(grid.flat)[len(maps):]:
        axes.set_axis_off()
    cut = logarithmic and any((one.values[one.values > 0] < norm.vmin).any() for one in maps)
    figure.colorbar(matplotlib.cm.ScalarMappable(norm), ax=grid, label=unit, fraction=0.03, extend="min" if cut else "neither")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")


_MOST_DECADES = 1e10  # of a logarithmic scale, below the highest value; what is lower counts as its lowest end


def _common_norm(maps: "Sequence[DepthMap]", logarithmic: bool) -> Normalize:
    values = np.concatenate([one.values.ravel() for one in maps])
    values = values[np.isfinite(values) & ((values > 0) if logarithmic else True)]
    low, high = (values.min(), values.max()) if len(values) else (1, 1)
    if logarithmic:  # so that a vanished gradient does not take the colours from all others
        low = max(low, high / _MOST_DECADES)
    if low == high:
        low, high = (low / 2, high * 2) if logarithmic else (low - 0.5, high + 0.5)
    return (LogNorm if logarithmic else Normalize)(low, high, clip=True)


def _draw_map(axes: Any, one: DepthMap, norm: Normalize) -> None:
    values = np.asarray(one.values, float).T  # [sublayers, records]
    pixels = matplotlib.colormaps["viridis"](norm(np.where(np.isfinite(values), values, norm.vmin)))
    pixels[np.isnan(values)] = (1, 1, 1, 0)
    pixels[np.isinf(values)] = (0.9, 0.1, 0.1, 1)
    axes.grid(False)
    axes.imshow(pixels, origin="lower", aspect="auto", interpolation="none")
    axes.set_title(_name(one.name))
    chosen = np.unique(np.linspace(0, len(one.steps) - 1, min(6, len(one.steps))).round().astype(int))
    axes.set_xticks(chosen, [f"{one.steps[i]:,}" for i in chosen])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if 0 < one.encoder_sublayers < len(values):
        axes.axhline(one.encoder_sublayers - 0.5, color="white", linewidth=1)


def square(values: "Sequence[Sequence[float]]", title: str, unit: str, axis: str) -> str:
    """A square of numbers, the same order to the right and upwards."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 4.6), layout="constrained")
        axes = figure.add_subplot(title=title, xlabel=axis, ylabel=axis)
        axes.grid(False)
        image = axes.imshow(np.asarray(values, float), origin="lower", interpolation="none")
        figure.colorbar(image, label=unit)
        return to_svg(figure)


def choose(count: int, most: int) -> "list[int]":
    """The indices of the rows to draw of `count`: all, or `most` of them, evenly spread, with both ends."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most)).round()})


def stacked_bars(names: "Sequence[str]", parts: "Sequence[str]", colours: "Sequence[str]",
                 values: "Sequence[Sequence[float]]", title: str, x_label: str, totals: "Sequence[str]" = (),
                 width: float = 11.4, most: int = 64) -> str:
    """Horizontal bars. values: [names][parts]; parts below zero (gains) are drawn to the left. Of many an even selection."""
    rows = choose(len(names), most)
    if len(rows) < len(names):
        title += f" ({len(rows)} of {len(names)})"
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, 1.5 + 0.3 * len(rows)))
        axes = figure.add_subplot(title=_name(title), xlabel=x_label)
        left, right = np.zeros(len(rows)), np.zeros(len(rows))
        for index, part in enumerate(parts):
            lengths = np.array([values[row][index] for row in rows])
            axes.barh(range(len(rows)), lengths, left=np.where(lengths < 0, left, right), color=colours[index], label=part)
            left, right = left + np.minimum(lengths, 0), right + np.maximum(lengths, 0)
        axes.set_yticks(range(len(rows)), [_name(names[row]) for row in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        for place, row in enumerate(rows):
            if row < len(totals):
                axes.annotate(totals[row], (right[place], place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.legend(loc="upper left", bbox_to_anchor=(1.08, 1), borderaxespad=0)
        return to_svg(figure)


def timeline(kinds: "Sequence[tuple[str, str]]", rows: "Sequence[tuple[str, Sequence[tuple[float, float, int, str]]]]",
             title: str, width: float = 11.4, most: int = 64) -> str:
    """A step of each rank in time. kinds: (name, colour); rows: (name, [(begin, end, kind, label)…]) in seconds.

    Labels are drawn where there are few spans.
    """
    drawn = choose(len(rows), most)
    if len(drawn) < len(rows):
        title += f" ({len(drawn)} of {len(rows)} ranks)"
    spans = sum(len(rows[row][1]) for row in drawn)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, 1.5 + 0.3 * len(drawn)))
        axes = figure.add_subplot(title=_name(title), xlabel="milliseconds since the step's first event")
        used = {}
        for place, row in enumerate(drawn):
            for kind, (name, colour) in enumerate(kinds):
                bars = [(1e3 * begin, 1e3 * (end - begin)) for begin, end, which, _ in rows[row][1] if which == kind]
                if bars:
                    used[name] = axes.broken_barh(bars, (place - 0.4, 0.8), facecolors=colour, rasterized=spans > 2000)
            if spans <= 200:
                _label_spans(axes, rows[row][1], place)
        axes.set_yticks(range(len(drawn)), [rows[row][0] for row in drawn])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.legend(used.values(), used.keys(), loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
        return to_svg(figure)


def _label_spans(axes: Any, spans: "Sequence[tuple[float, float, int, str]]", place: int) -> None:
    longest = max((end for _, end, _, _ in spans), default=0)
    for begin, end, _, label in spans:
        if label and end - begin > 0.02 * longest:
            axes.text(500 * (begin + end), place, label, ha="center", va="center", fontsize=8, color="white", clip_on=True)


def to_svg(figure: Figure) -> str:
    """The figure as an <svg> element whose text and grid take the page's colours (templates/page.html)."""
    out = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(out, format="svg", bbox_inches="tight", dpi=110,
                   metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    svg = re.sub(r"^.*?(?=<svg)", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in ((_INK, "ink"), (_GRID, "grid")):
        svg = svg.replace(colour, f"var(--{variable}, {colour})")
    return svg


def standalone(svg: str, dark: bool = False) -> str:
    """A picture as a file of its own, on a light or a dark page: without variables, which few viewers know."""
    ink, grid = ("#dddddd", "#444444") if dark else (_INK, _GRID)
    svg = svg.replace(f"var(--ink, {_INK})", ink).replace(f"var(--grid, {_GRID})", grid)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{MARK}\n{svg}'


def matrix(rows: "Sequence[str]", columns: "Sequence[str]", values: np.ndarray[Any, Any], *, title: str, x_label: str, y_label: str,
           unit: str) -> str:
    """A number for each row and column, written into its field and shown as a colour; NaN: an empty field."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(2.5 + 0.5 * len(columns), 1.8 + 0.34 * len(rows)))
        axes = figure.add_subplot(title=title, xlabel=x_label, ylabel=y_label)
        highest = np.nanmax(values, initial=1e-9)
        image = axes.imshow(values, cmap="viridis", vmin=0, vmax=highest, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=9,
                          color="black" if value > 0.6 * highest else "white")
        axes.set_xticks(range(len(columns)), [*map(_name, columns)])
        axes.set_yticks(range(len(rows)), [*map(_name, rows)])
        axes.grid(False)
        figure.colorbar(image, label=unit)
        return to_svg(figure)
