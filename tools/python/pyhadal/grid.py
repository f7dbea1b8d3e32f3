"""The runs of a grid (configs/compare.proto): each combination of one value an axis is a cell, the arguments of one `hadal train`.

Cells are in the order of their cost, cheapest first, so that a budget excludes only the most expensive ones; cells of equal cost are
in the order of the file, with the last axis varying fastest. The program reads and checks every config (`hadal config cells`).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
from typing import Any, Callable, Sequence

from pyhadal import program
from pyhadal.refusal import Refusal

_MOST_CELLS = 100_000  # some five seconds to read their configs


@dataclasses.dataclass
class Cell:
    """A run. `labels`: on each axis; `files`, `settings`: of its `hadal train FILES --set SETTING…`; `ranks` 0: the grid's;
    `cost`: multiply-adds, to compare cells by; `steps`: stop.steps of its config, 0: no limit."""

    name: str  # "method=deepnorm,depth=18": also of its run directory
    labels: "list[str]"
    files: "list[str]"
    settings: "list[str]"
    ranks: int = 0
    cost: float = 0
    steps: int = 0

    def question(self) -> "dict[str, Any]":
        return {"files": self.files, "set": self.settings}


@dataclasses.dataclass
class Grid:
    """`settings`: the fields of its file; `axes`: name, labels, and whether its values are seeds."""

    cells: "list[Cell]"
    axes: "list[dict[str, Any]]"
    settings: "dict[str, Any]" = dataclasses.field(default_factory=dict)


def ask(questions: "Sequence[dict[str, Any]]", names: "Sequence[str]" = ()) -> "list[dict[str, Any]]":
    """The answers of `hadal config cells` (tools/compare/config_cells.cc). Raises Refusal for the first error, behind the name of its question."""
    try:
        text = "".join(json.dumps(question, ensure_ascii=False) + "\n" for question in questions).encode()
    except UnicodeEncodeError:
        raise Refusal("the name of a file or a setting is not UTF-8") from None
    process = program.start(["config", "cells"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        out, _ = process.communicate(text)
    except BaseException:
        process.kill()
        process.wait()
        raise
    answers: "list[dict[str, Any]]" = [json.loads(line) for line in out.splitlines()]
    if answers and "error" in answers[-1]:
        name = f"{names[len(answers) - 1]}: " if names else ""
        raise Refusal(f"{name}{answers[-1]['error']}", answers[-1]["exit_code"])
    if process.returncode or len(answers) < len(questions):
        raise Refusal(f"hadal config cells ended with exit code {process.returncode}", 1)
    return answers


def ask_of(cells: "Sequence[Cell]", name: "Callable[[Cell], str]" = lambda cell: cell.name, **more: bool) -> "list[dict[str, Any]]":
    """`ask` of each cell's config; `more`: of the question, as effect=True."""
    return ask([{**cell.question(), **more} for cell in cells], [name(cell) for cell in cells])


def load(file: str, overrides: "Sequence[str]" = (), seeds: "Sequence[int]" = ()) -> Grid:
    """Reads a grid. `overrides`: "a.b=c" of every cell; `seeds`: the values of one more axis, named "seed".

    Raises Refusal in the program's words for files and configs; for names of axes or values that are missing, given twice or not usable in
    a directory's name; for an exclusion of an unknown axis or label; for a grid without cells or with more than 100,000.
    """
    settings = ask([{"grid": file}])[0]
    if seeds:
        values = [{"label": str(seed), "set": [f"seed={seed}"]} for seed in seeds]
        settings.setdefault("axes", []).append({"name": "seed", "values": values})
    try:
        axes = _name_axes(settings.get("axes", []))
        cells = _unroll(settings, axes, os.path.dirname(file), overrides)
        for cell, answer in zip(cells, ask_of(cells, effect=True)):
            cell.cost, cell.steps = answer["cost"], answer["steps"]
    except Refusal as refusal:
        raise Refusal(f"{file}: {refusal}", refusal.exit_code) from None
    return Grid(sorted(cells, key=lambda cell: cell.cost), axes, settings)


def is_name(text: str) -> bool:
    """Whether the text may be a part of a directory's name: letters, digits, ".", "_", "+" and "-"."""
    return re.fullmatch(r"[A-Za-z0-9._+-]+", text) is not None


def _name_axes(axes: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    _check_names("axis", [axis.get("name", "") for axis in axes])
    named = []
    for axis in axes:
        values = axis.get("values", [])
        if not values:
            raise Refusal(f"axis \"{axis['name']}\" has no values")
        labels = [value.get("label", "") for value in values]
        _check_names(f"axis \"{axis['name']}\": label", labels)
        seeds = all(not value.get("files") and [text[:5] for text in value.get("set", [])] == ["seed="] for value in values)
        named.append({"name": axis["name"], "labels": labels, "seeds": seeds})
    if not named:
        raise Refusal('the grid has no axes; add what to compare, as in  axes { name: "depth" values { label: "6" set: '
                      '"model.encoder_layers=6" } }  (configs/papers/laptop has examples)')
    return named


def _check_names(what: str, names: "list[str]") -> None:
    for place, name in enumerate(names):
        if not is_name(name):
            raise Refusal(f'{what} "{name}": a name may have only letters, digits and ".", "_", "+", "-"')
        if name in names[:place]:
            raise Refusal(f'{what} "{name}" is given twice')


def _unroll(settings: "dict[str, Any]", axes: "list[dict[str, Any]]", folder: str, overrides: "Sequence[str]") -> "list[Cell]":
    exclusions = [_exclusion(text, axes) for text in settings.get("exclude", [])]
    places = 1
    for axis in axes:
        places *= len(axis["labels"])
        if places > _MOST_CELLS:
            raise Refusal(f"the grid has more than {_MOST_CELLS} cells, with the axes up to \"{axis['name']}\" alone; split it, or give "
                          "its axes fewer values")
    cells = []
    for values in itertools.product(*(axis["values"] for axis in settings["axes"])):
        labels = [value["label"] for value in values]
        if any(all(labels[axis] in excluded for axis, excluded in exclusion.items()) for exclusion in exclusions):
            continue
        files = [*settings.get("base", []), *(file for value in values for file in value.get("files", []))]
        texts = [*settings.get("set", []), *(text for value in values for text in value.get("set", [])), *overrides]
        cells.append(Cell(",".join(f"{axis['name']}={label}" for axis, label in zip(axes, labels)), labels,
                          [os.path.join(folder, file) for file in files], texts))
    if not cells:
        raise Refusal("every cell of the grid is excluded")
    return cells


def _exclusion(text: str, axes: "list[dict[str, Any]]") -> "dict[int, list[str]]":
    """The labels of "axis=label,axis=label|label" by the axes' places."""
    names = [axis["name"] for axis in axes]
    exclusion: "dict[int, list[str]]" = {}
    for part in text.split(","):
        name, _, labels = part.partition("=")
        if name not in names:
            raise Refusal(f'exclude "{text}": there is no axis "{name}"; the axes are {", ".join(names)}')
        known = axes[names.index(name)]["labels"]
        for label in labels.split("|"):
            if label not in known:
                raise Refusal(f'exclude "{text}": axis "{name}" has no label "{label}"; it has {", ".join(known)}')
            exclusion.setdefault(names.index(name), []).append(label)
    return exclusion
