"""Plots curves as text, for terminals and logs: a frame of characters with a line for each curve.

    6.52 ┤━┓
         │ ┗━┓         ────────
    2.10 ┤   ┗━━━━━━━━━
         └────────────────
          0      step   1,000
          ━━ deep 2.100   ── shallow 4.321
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Iterable, Iterator, Sequence

_CEILING = 1.25  # times the highest start
# A curve's pen: flat, upright, from right to down, from down to right, from right to up, from up to right.
_PENS = ("━┃┓┗┛┏", "─│╮╰╯╭", "═║╗╚╝╔")
_ASCII_PENS = ("*" * 6, "o" * 6, "+" * 6)
_INKS = ("\033[32m", "\033[31m", "\033[36m")


@dataclasses.dataclass
class Curve:
    label: str
    points: "list[tuple[float, float]]"  # x ascending

    @property
    def finite(self) -> "list[tuple[float, float]]":
        return [point for point in self.points if math.isfinite(point[1])]


def shows_unicode() -> bool:
    """Whether standard output shows Unicode, by HADAL_ASCII and the locale's variables, as of the program's own progress."""
    if os.environ.get("HADAL_ASCII"):
        return False
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return "." not in locale or locale.split(".", 1)[1].lower().startswith(("utf-8", "utf8"))


def shows_colours() -> bool:
    """Whether standard output is a terminal with colours, as of the program's own progress."""
    try:
        columns = os.get_terminal_size(1).columns or int(os.environ.get("HADAL_COLUMNS") or 0)
    except (OSError, ValueError):
        columns = 0
    return columns > 0 and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


@dataclasses.dataclass
class Style:
    columns: int = 60  # of the plotting area, at least 8
    rows: int = 12  # at least 3
    unicode: bool = True  # False: ASCII
    color: bool = False


def plot_curves(curves: "Sequence[Curve]", style: Style, title: str = "", x_label: str = "step") -> str:
    """The plot, with a newline after each line; or one line that there is nothing to plot.

    A column shows the mean of its points; columns without points are interpolated. Where curves cross, the first is on top. Points
    that are not finite are left out, and the legend counts them. If a curve falls, as a loss does, the frame ends at 1.25 times the
    highest first value, and what is above runs along the top edge: a run that diverges does not flatten the others.
    """
    points = [point for curve in curves for point in curve.finite]
    if not points:
        return "nothing to plot: no finite value yet\n"
    x_range = min(x for x, _ in points), max(x for x, _ in points)
    y_range = _y_range([[y for _, y in curve.finite] for curve in curves if curve.finite])
    cells = [[" "] * style.columns for _ in range(style.rows)]
    pens = [((_PENS if style.unicode else _ASCII_PENS)[i % 3], _INKS[i % 3] if style.color else "") for i in range(len(curves))]
    for curve, (pen, ink) in reversed(list(zip(curves, pens))):
        for row, column, glyph in _strokes(_rows_of(curve, x_range, y_range, style), pen):
            cells[row][column] = _paint(glyph, ink)
    low, high = y_range
    labels = {row: human(high - (high - low) * row / (style.rows - 1), 3) for row in range(0, style.rows, max(1, (style.rows - 1) // 3))}
    margin = max(map(len, labels.values()))
    tick, edge, corner, line = "┤│└─" if style.unicode else "+|+-"
    text = f"{title}\n" if title else ""
    for row, line_cells in enumerate(cells):
        text += f"{labels.get(row, ''):>{margin}} {tick if row in labels else edge}" + "".join(line_cells).rstrip() + "\n"
    text += " " * (margin + 1) + corner + line * style.columns + "\n"
    first, last = (f"{round(x):,}" for x in x_range)
    gap = style.columns - len(first) - len(last) - len(x_label)
    between = " " * (gap // 2) + x_label + " " * (gap - gap // 2) if gap >= 2 else " "
    text += " " * (margin + 2) + first + between + last + "\n"
    return text + " " * (margin + 2) + "   ".join(_legend(curve, *pen) for curve, pen in zip(curves, pens)) + "\n"


def human(value: float, digits: int) -> str:
    """`digits` significant digits, without an exponent between 1e-3 and 1e6."""
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding
    if not -3 <= exponent < 6:
        return f"{value:.{min(digits, 3) - 1}e}"
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def _y_range(values: "list[list[float]]") -> "tuple[float, float]":
    low, high = min(map(min, values)), max(map(max, values))
    start = max(column[0] for column in values)
    if start > 0 and any(column[-1] < column[0] for column in values):
        high = min(high, _CEILING * start)
    if high <= low:
        space = max(1e-9, 0.05 * abs(low))
        return low - space, low + space
    return low, high


def _rows_of(curve: Curve, x_range: "tuple[float, float]", y_range: "tuple[float, float]", style: Style) -> "dict[int, int]":
    """The curve's row in each column from its first to its last point."""
    (x_low, x_high), (y_low, y_high) = x_range, y_range
    of_column: "dict[int, list[float]]" = {}
    for x, y in curve.finite:
        share = (x - x_low) / (x_high - x_low) if x_high > x_low else 0
        of_column.setdefault(math.floor(share * (style.columns - 1) + 0.5), []).append(min(max(y, y_low), y_high))
    means = {column: sum(values) / len(values) for column, values in of_column.items()}
    rows: "dict[int, int]" = {}
    for left, right in zip(means, [*list(means)[1:], max(means, default=0) + 1]):
        for column in range(left, right):
            value = means[left] if column == left else means[left] + (means[right] - means[left]) * (column - left) / (right - left)
            rows[column] = style.rows - 1 - math.floor((value - y_low) / (y_high - y_low) * (style.rows - 1) + 0.5)
    return rows


def _strokes(rows: "dict[int, int]", pen: "Iterable[str]") -> "Iterator[tuple[int, int, str]]":
    """Yields (row, column, glyph)."""
    flat, upright, fall_from, fall_to, rise_from, rise_to = pen
    for column, here in rows.items():
        before = rows.get(column - 1, here)
        if before == here:
            yield here, column, flat
            continue
        yield before, column, fall_from if here > before else rise_from
        for row in range(min(before, here) + 1, max(before, here)):
            yield row, column, upright
        yield here, column, fall_to if here > before else rise_to


def _legend(curve: Curve, pen: str, ink: str) -> str:
    text = f"{_paint(pen[0] * 2, ink)} {curve.label}"
    finite = curve.finite
    if finite:
        text += " " + human(finite[-1][1], 4)
    lost = len(curve.points) - len(finite)
    return text + (f" ({lost} point{'s' if lost > 1 else ''} not finite)" if lost else "")


def _paint(text: str, ink: str) -> str:
    return f"{ink}{text}\033[0m" if ink else text
