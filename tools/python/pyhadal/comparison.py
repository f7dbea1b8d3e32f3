"""Reports the runs of a comparison: what is wrong with them, tables of results, BLEU and its significance, curves.

Reads DIR/grid.json, which `hadal compare` writes (compare_grid.py), and the runs. Writes
DIR/comparison.html, .md and .json, and every table as DIR/tables/NAME.csv and .tex. A table has the first axis in its rows
and the second in its columns; each combination of further axes has tables of its own. Runs that differ in their seed alone
are one cell: their mean ± standard deviation.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from pyhadal import page
from pyhadal.files import write_whole
from pyhadal.grid_runs import TRANSLATION, rate_text
from pyhadal.instruments import INSTRUMENTS, read_instruments
from pyhadal.refusal import Refusal
from pyhadal.run import Run
from pyhadal.significance import METHOD, ScoredText, p_values, read_lines, score_text
from pyhadal.table import Cell, Table, number_cell

SIGNIFICANT = 0.05
_MARKS = {"trains": "good", "between": "fair", "too short": "fair", "fails": "bad", "diverged": "bad"}
_INSTRUMENT_NOTE = (
    "‖ΔF‖: change of the decoder's output on a few fixed sentences since the start, per target token. Gradients at the first "
    "step: of the activations after the stack's first sublayer over those after its last (1: it arrives, 0: it vanishes on its "
    "way down), and before a LayerNorm over after it (the skip multiplies it by the residual gain). At the end: mean cosine "
    "between the streams after neighbouring sublayers; share of hidden units that ReLU passes.")


@dataclasses.dataclass
class ComparedRun:
    """One run of the grid. `record`: what grid.json says of it; without steps if it has not run."""

    record: dict[str, Any]
    directory: str
    log: str
    translation: "ScoredText | None" = None

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def state(self) -> str:
        return "not run" if self.record["state"] == "none" else self.record["state"]

    @property
    def steps(self) -> "int | None":
        return self.record.get("steps")

    @functools.cached_property
    def run(self) -> "Run | None":
        if self.steps is None:
            return None
        run = Run(self.directory)
        run.narrow("step", "nll", "step_seconds", "target_tokens")
        return run

    @functools.cached_property
    def instruments(self) -> "dict[str, float]":
        return {} if self.run is None else read_instruments(self.run)

    @functools.cached_property
    def diagnoses(self) -> "list[str]":
        """What hadal found wrong with the run and has not found to be over, as "step 60: …"."""
        found: "dict[str, str]" = {}
        for record in [] if self.run is None else self.run.diagnoses.to_dict("records"):
            step, text = record["step"], record["text"]
            kind = _diagnosis_kind(text)
            if text.startswith("over: "):
                found.pop(kind, None)
            else:
                found[kind] = f"step {step:,}: {text}"
        return list(found.values())

    @property
    def verdict(self) -> str:
        """"" for a run that trains or of which nothing is known; a diagnosis says more than "too short"."""
        verdict = str(self.record.get("verdict", "not known"))
        if self.state == "failed" and self.steps is None:
            return "error"
        if verdict in ("trains", "not known"):
            return ""
        if verdict != "diverged" and self.diagnoses:
            return _diagnosis_name(self.diagnoses[0])
        return verdict

    def trouble(self) -> "list[str]":
        """What a reader must know before the numbers, in words."""
        found = []
        if self.state == "failed":
            found.append(f"ended with exit code {self.record['exit_code']}: {_last_error(self.log)} ({self.log})")
        elif self.state == "diverged":
            found.append(f"diverged, its numbers were not finite: {_last_error(self.log)}")
        elif self.state == "cut" and self.steps is not None:
            found.append(f"was cut by run_minutes at step {self.steps:,}")
        return found + self.diagnoses


@dataclasses.dataclass
class Entry:
    """The runs at one place of a table: one, or several that differ in their seed."""

    labels: "tuple[str, ...]"  # on the axes that are not seeds
    runs: "list[ComparedRun]"
    p: "float | None" = None  # of the difference of its BLEU to the best of its column
    best: bool = False        # its BLEU

    def values(self, key: str) -> "list[float]":
        return [run.record[key] for run in self.runs if run.record.get(key) is not None]

    @property
    def translations(self) -> "list[ScoredText]":
        return [run.translation for run in self.runs if run.translation is not None]

    @property
    def bleus(self) -> "list[float]":
        return [text.score for text in self.translations]


@dataclasses.dataclass
class Panel:
    """A table's entries: those of one combination of the third and later axes."""

    name: str  # "warmup=none"; "" if there are at most two axes
    rows: "list[str]"
    columns: "list[str]"
    entries: "dict[tuple[str, str], Entry]"  # by labels of row and column
    unlike: "dict[str, str]" = dataclasses.field(default_factory=dict)  # column → why its runs cannot be ranked

    def column(self, label: str) -> "list[Entry]":
        return [self.entries[row, label] for row in self.rows if (row, label) in self.entries]


@dataclasses.dataclass
class Comparison:
    title: str
    note: str
    rule: "dict[str, float]"
    axes: "list[dict[str, Any]]"  # name, labels; without those of seeds
    seeds: int          # values of the seed axes
    runs: "list[ComparedRun]"
    panels: "list[Panel]"
    signature: str = ""  # of BLEU; "" without translations


def _diagnosis_kind(text: str) -> str:
    """A diagnosis and its end ("over: …") have the same kind (pipeline/instruments/run_diagnosis.h)."""
    kinds = {"the encoder's gradient": "no encoder gradient", "gradients vanish from encoder": "vanish in encoder",
             "gradients of the encoder": "vanish in encoder", "gradients vanish from decoder": "vanish in decoder",
             "gradients of the decoder": "vanish in decoder", "the loss stays": "frequencies", "the loss has not moved": "frequencies",
             "the nll is": "frequencies"}
    return next((kind for words, kind in kinds.items() if words in text), text)


def _diagnosis_name(text: str) -> str:
    """The first words of "step 60: gradients vanish from encoder layer 4 down since …": "gradients vanish"."""
    return re.split(r" below | from | of the decoder's| since | at step |[:(,.]", text.split(": ", 1)[-1])[0].strip()


def _last_error(log: str) -> str:
    """The last error in what a run's processes printed."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return "there is no log"
    errors = [line for line in lines if re.match(r"hadal \w+( \[[^]]*\])?: ", line)]
    return (errors or lines or ["the log is empty"])[-1]


def load(directory: str, reference: str = "") -> Comparison:
    """`reference`: a file of the test set's references, or "". Raises Refusal for what cannot be read or does not fit."""
    path = os.path.join(directory, "grid.json")
    try:
        with open(path, encoding="utf-8") as file:
            grid = json.load(file)
        runs = [ComparedRun(cell, os.path.join(directory, cell["directory"]), os.path.join(directory, cell["log"]))
                for cell in grid["cells"]]
        axes, seed_axes = ([axis for axis in grid["axes"] if axis["seeds"] == seeds] for seeds in (False, True))
    except FileNotFoundError:
        raise Refusal(f"{path}: no such file; `hadal compare GRID --out {directory} --report-only` writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{path}: not written by hadal compare ({type(error).__name__}: {error})") from None
    shown = [i for i, axis in enumerate(grid["axes"]) if not axis["seeds"]]
    comparison = Comparison(grid["title"], grid["note"], grid["rule"], axes, sum(len(axis["labels"]) for axis in seed_axes), runs,
                            _panels(axes, _entries(runs, shown)))
    if reference:
        _score(comparison, reference)
    return comparison


def _entries(runs: Iterable[ComparedRun], shown: Sequence[int]) -> "list[Entry]":
    found: "dict[tuple[str, ...], Entry]" = {}
    for run in runs:
        labels = tuple(run.record["labels"][i] for i in shown)
        found.setdefault(labels, Entry(labels, [])).runs.append(run)
    return list(found.values())


def _panels(axes: "list[dict[str, Any]]", entries: "Iterable[Entry]") -> "list[Panel]":
    rows = axes[0]["labels"] if axes else [""]
    columns = axes[1]["labels"] if len(axes) > 1 else [""]
    panels: dict[str, Any] = {}
    order = [axis["labels"] for axis in axes]
    for entry in sorted(entries, key=lambda entry: [order[i].index(label) for i, label in enumerate(entry.labels)][2:]):
        name = ",".join(f"{axis['name']}={label}" for axis, label in list(zip(axes, entry.labels))[2:])
        panel = panels.setdefault(name, Panel(name, rows, columns, {}))
        row, column = (*entry.labels, "", "")[:2]
        panel.entries[row, column] = entry
    return list(panels.values())


def _score(comparison: Comparison, reference: str) -> None:
    metric, references = BLEU(), read_lines(reference)
    for run in comparison.runs:
        path = os.path.join(run.directory, TRANSLATION)
        if not os.path.exists(path):
            continue
        lines = read_lines(path)
        if len(lines) != len(references):
            raise Refusal(f"{path} has {len(lines)} lines, and the reference {reference} has {len(references)}: "
                          "translations of another test set; without --report-only, --test-source translates this one")
        if lines:
            run.translation = score_text(metric, lines, references)
    if any(run.translation for run in comparison.runs):
        comparison.signature = str(metric.get_signature())
    for panel in comparison.panels:
        for label in panel.columns:
            _rank(panel, label, metric)


def _rank(panel: Panel, label: str, metric: BLEU) -> None:
    """Finds the best BLEU of a column and tests the others against it; not where the runs have unlike steps."""
    entries = [entry for entry in panel.column(label) if entry.bleus]
    if _unlike(run for entry in entries for run in entry.runs if run.translation) or not entries:
        return
    best = max(range(len(entries)), key=lambda i: statistics.mean(entries[i].bleus))
    entries[best].best = True
    for entry, p in zip(entries, p_values(metric, [entry.translations for entry in entries], best)):
        entry.p = None if entry.best else p


def _unlike(runs: "Iterable[ComparedRun]") -> str:
    """Why runs cannot be ranked; "" if they have the same steps."""
    steps = sorted({run.steps for run in runs if run.steps is not None})
    return f"the runs made {steps[0]:,} to {steps[-1]:,} steps" if len(steps) > 1 else ""


def _spread(values: "list[float]", digits: str) -> str:
    """"4.117" of one value, "4.117 ± 0.020 (3)" of three."""
    if len(values) == 1:
        return format(values[0], digits)
    return f"{format(statistics.mean(values), digits)} ± {format(statistics.stdev(values), digits)} ({len(values)})"


def _words(entry: Entry) -> str:
    """What is not as it should be in an entry's runs: " fails (cut)", " 1 of 3 diverged"."""
    words = []
    for what in [run.verdict for run in entry.runs] + [run.state for run in entry.runs if run.state not in ("done", "diverged")]:
        if what and what not in words:
            words.append(what)
    several = len(entry.runs) > 1

    def times(what: str) -> str:
        count = sum(what in (run.verdict, run.state) for run in entry.runs)
        return f"{count} of {len(entry.runs)} {what}" if several else what
    return ", ".join(times(what) for what in words)


def _mark(entry: Entry) -> str:
    marks = {_MARKS.get(run.record.get("verdict", ""), "") for run in entry.runs}
    return next((mark for mark in ("bad", "fair", "good") if mark in marks), "")


def _nll_cell(entry: "Entry | None") -> Cell:
    if entry is None:
        return Cell("")
    values = entry.values("best_validation_nll")
    shown = _spread(values, ".3f") if values else ""
    if not values and entry.values("steps") and not _words(entry):
        shown = f"{max(entry.values('steps')):,} steps"
    return Cell(" ".join(filter(None, [shown, _words(entry)])), statistics.mean(values) if values else None, mark=_mark(entry))


def _bleu_cell(entry: "Entry | None") -> Cell:
    if entry is None or not entry.bleus:
        return Cell("" if entry is None else "–")
    text = _spread(entry.bleus, ".1f") + (" ≈" if entry.p is not None and entry.p >= SIGNIFICANT else "")
    return Cell(text, statistics.mean(entry.bleus), best=entry.best, mark=_mark(entry))


def _panel_table(comparison: Comparison, panel: Panel, title: str, cell: "Callable[[Entry | None], Cell]", note: str) -> Table:
    names = [axis["name"] for axis in comparison.axes]
    header = [f"{names[0]} \\ {names[1]}", *panel.columns] if len(names) > 1 else [names[0] if names else "", "result"]
    table = Table(header, title=f"{title}, {panel.name}" if panel.name else title, note=note)
    for row in panel.rows:
        table.add(Cell(row), *(cell(panel.entries.get((row, column))) for column in panel.columns))
    return table


def _seed_note(comparison: Comparison) -> str:
    return " ±: standard deviation over the seeds, their number behind it." if comparison.seeds else ""


def _nll_note(comparison: Comparison, panel: Panel) -> str:
    levels = {run.record["unigram_nll"] for run in comparison.runs if "unigram_nll" in run.record}
    level = f" ({levels.pop():.3f} on these sentences)" if len(levels) == 1 else ""
    rule = comparison.rule
    note = (f"Best validation nll of each run, in nats per target token. A run trains if that is at least {rule['trains_below_unigram']:g} "
            f"below the nll of a model that knows only the target's token frequencies{level}; it fails if it was never "
            f"{rule['fails_below_unigram']:g} below that; it was too short if its training nll was still falling then; it diverged if "
            "its numbers were not finite, and is between otherwise. A diagnosis, where there is one, stands in place of these words.")
    return note + _seed_note(comparison) + _unlike_note(panel, lambda run: run.state != "diverged", "their nll cannot be compared")


def _bleu_note(comparison: Comparison, panel: Panel) -> str:
    note = (f"BLEU {comparison.signature}. Bold: the best of a column. ≈: p ≥ {SIGNIFICANT} of the difference to the best "
            f"({METHOD}).")
    if comparison.seeds:
        note += " p compares the means over the seeds; it speaks of the choice of test sentences, not of the choice of seeds."
    return note + _seed_note(comparison) + _unlike_note(panel, lambda run: run.translation is not None, "none is named the best")


def _unlike_note(panel: Panel, counts: "Callable[[ComparedRun], bool]", effect: str) -> str:
    note = ""
    for label in panel.columns:
        why = _unlike(run for entry in panel.column(label) for run in entry.runs if counts(run))
        if why:
            note += f" {f'Column {label}: {why}' if label else why.capitalize()}, so {effect}."
    return note


def _in_table_order(comparison: Comparison) -> "list[tuple[Entry, ComparedRun]]":
    return [(entry, run) for panel in comparison.panels for column in panel.columns for entry in panel.column(column)
            for run in entry.runs]


def _tokens_per_second(run: ComparedRun) -> "float | None":
    seconds = float(run.run.metrics["step_seconds"].sum()) if run.run is not None else 0.0
    return float(run.run.metrics["target_tokens"].sum()) / seconds if run.run is not None and seconds > 0 else None


def _run_table(comparison: Comparison) -> Table:
    table = Table(["run", "state", "steps", "loss", "best validation nll", "at step", "below unigram", "verdict", "BLEU", "p",
                   "tokens/s", "wall hours", "CPU hours"], title="Runs",
                  note="`hadal report` on a run's directory shows its depth over all recorded steps, and where its time went.")
    for entry, run in _in_table_order(comparison):
        get = run.record.get
        rate = _tokens_per_second(run)
        table.add(run.name, run.state, number_cell(run.steps, ","), number_cell(get("loss"), "#.4g"),
                  number_cell(get("best_validation_nll"), "#.4g"), number_cell(get("best_step"), ","), number_cell(get("below_unigram"), ".3f"),
                  get("verdict", "–"), number_cell(run.translation.score if run.translation else None, ".1f"), number_cell(entry.p, ".3f"),
                  Cell("–") if rate is None else Cell(rate_text(rate), rate), number_cell(run.record["wall_seconds"] / 3600, ".3f"),
                  number_cell(run.record["cpu_seconds"] / 3600, ".3f"))
    return table


def _instrument_table(comparison: Comparison) -> Table:
    table = Table(["run", *INSTRUMENTS.values()], title="Instruments", note=_INSTRUMENT_NOTE)
    for _, run in _in_table_order(comparison):
        if run.instruments:
            table.add(run.name, *(number_cell(run.instruments.get(name), "#.3g") for name in INSTRUMENTS))
    return table


def tables(comparison: Comparison) -> "dict[str, Table]":
    """Every table of the page by the name of its files."""
    found = {}
    for number, panel in enumerate(comparison.panels, 1):
        suffix = f"_{number}" if len(comparison.panels) > 1 else ""
        found["nll" + suffix] = _panel_table(comparison, panel, "Validation nll", _nll_cell, _nll_note(comparison, panel))
        if any(entry.bleus for entry in panel.entries.values()):
            found["bleu" + suffix] = _panel_table(comparison, panel, "BLEU", _bleu_cell, _bleu_note(comparison, panel))
    found["runs"] = _run_table(comparison)
    instruments = _instrument_table(comparison)
    if instruments.rows:
        found["instruments"] = instruments
    return found


def troubles(comparison: Comparison) -> "list[str]":
    """One sentence or two for each thing that is wrong with a run."""
    return [f"{run.name}: {text}" for _, run in _in_table_order(comparison) for text in run.trouble()]


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Every number of the page."""
    axes = comparison.axes
    cells = []
    for run in comparison.runs:
        record = {key: value for key, value in run.record.items() if key not in ("directory", "log")}
        record.update(diagnoses=run.trouble(), instruments=run.instruments)
        if run.translation:
            record["bleu"] = run.translation.score
        if run.run is not None:
            record["validation_nll"] = [[event["step"], event["nll"]] for event in run.run._events.get("validation", [])]
        cells.append(record)
    results = []
    for entry in (entry for panel in comparison.panels for entry in panel.entries.values()):
        result: dict[str, Any] = {"labels": {axis["name"]: label for axis, label in zip(axes, entry.labels)},
                                  "runs": [run.name for run in entry.runs]}
        for key, values in (("best_validation_nll", entry.values("best_validation_nll")), ("bleu", entry.bleus)):
            if values:
                result[key] = {"mean": statistics.mean(values), "runs": len(values)}
            if len(values) > 1:
                result[key]["standard_deviation"] = statistics.stdev(values)
        if entry.bleus:
            result.update(best_bleu=entry.best, p_value=entry.p)
        results.append(result)
    return {"title": comparison.title, "note": comparison.note, "rule": comparison.rule, "bleu_signature": comparison.signature,
            "test": METHOD, "results": results, "cells": cells}


def write(out: str, reference: str = "") -> None:
    """Writes the report of OUT/grid.json. Errors: those of `load`; OSError."""
    from pyhadal import compare_pictures

    comparison = load(out, reference)
    found, notes = tables(comparison), troubles(comparison)
    html = page.render("compare.html", title=comparison.title, note=comparison.note, troubles=notes, tables=found,
                       pictures=compare_pictures.draw(comparison))
    write_whole(os.path.join(out, "comparison.html"), html)
    write_whole(os.path.join(out, "comparison.md"),
                     page.markdown_page(comparison.title, list(found.values()), [*filter(None, [comparison.note]), *notes]))
    write_whole(os.path.join(out, "comparison.json"), json.dumps(to_json(comparison), ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    write_tables(found, os.path.join(out, "tables"))
    print(f"report: {out}/comparison.html, .md, .json, tables/*.csv, .tex")


def write_tables(found: "dict[str, Table]", folder: str) -> None:
    """Each table as NAME.csv and NAME.tex."""
    os.makedirs(folder, exist_ok=True)
    for name, table in found.items():
        write_whole(os.path.join(folder, name + ".csv"), table.to_csv())
        write_whole(os.path.join(folder, name + ".tex"), table.to_latex())
