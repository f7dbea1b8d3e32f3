"""Scores the test sets that `hadal evaluate` has translated: BLEU, chrF++ and wrong languages, and their means.

    python3 -m pyhadal evaluate FOLDER [--against FOLDER] [--pivot en]

Reads FOLDER/test_sets.json and each NAME.hypothesis and NAME.reference. Writes report.html (with a heat map of the
directions), report.md, evaluation.json, and its tables as means.csv, means.tex, test_sets.csv and test_sets.tex; prints
report.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from pyhadal import page
from pyhadal.comparison import write_tables
from pyhadal.files import write_whole
from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.significance import METHOD, p_values, read_lines, score_text
from pyhadal.table import Cell, Table, number_cell

SIGNIFICANT = 0.05
_FEW_PAIRS, _MANY_PAIRS = 100_000, 900_000
_TOKENIZER_NOTE = ("BLEU takes the tokenizer of the target language (zh: Chinese; char: others without spaces between words; 13a: the "
                   "rest); BLEU 13a is sacreBLEU's default for every language.")


@dataclasses.dataclass
class Scores:
    """One test set, a direction or a domain of one. `record`: what test_sets.json says of it. Scores from 0 to 100."""

    record: dict[str, Any]
    bleu: float = 0
    bleu_13a: float = 0  # by sacreBLEU's default tokenizer, whatever the language
    chrf: float = 0      # chrF++
    wrong_language: "float | None" = None            # share of the outputs that are not blank
    wrong_language_reference: "float | None" = None  # the same of the references: the classifier's own mistakes
    other_bleu: "float | None" = None                # another system's
    p: "float | None" = None                         # of the difference to it

    @property
    def source(self) -> str:
        return str(self.record["source"])

    @property
    def target(self) -> str:
        return str(self.record["target"])

    @property
    def pairs(self) -> "int | None":
        return self.record.get("training_pairs")


@dataclasses.dataclass
class Mean:
    """The mean of some test sets."""

    what: str  # "en→xx"
    sets: int
    bleu: float
    bleu_13a: float
    chrf: float
    wrong_language: "float | None"  # of those that have it
    compared: int = 0  # test sets that the other system has translated, too
    wins: int = 0      # with a higher BLEU than the other's
    significant_wins: int = 0
    significant_losses: int = 0


@dataclasses.dataclass
class Evaluation:
    checkpoint: str
    sets: "list[Scores]"
    pivot: str = "en"
    other: str = ""          # the folder compared with; "": none
    language_note: str = ""  # why there are no shares of wrong languages, or which classifier found them
    signatures: "list[str]" = dataclasses.field(default_factory=list)


def load(folder: str, against: str = "", pivot: str = "en") -> Evaluation:
    """Scores a folder's test sets. Raises Refusal for files that are missing or do not fit each other."""
    path = os.path.join(folder, "test_sets.json")
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        evaluation = Evaluation(record["checkpoint"], [Scores(each) for each in record["test_sets"]], pivot, against)
    except FileNotFoundError:
        raise Refusal(f"{path}: no such file; is {folder} the --out of hadal evaluate?") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{path}: not written by hadal evaluate ({type(error).__name__}: {error})") from None
    signatures: dict[str, Any] = {}
    for scores in evaluation.sets:
        score(scores, folder, against, signatures)
    evaluation.signatures = [f"{name}: {signature}" for name, signature in signatures.items()]
    _find_wrong_languages(evaluation, folder)
    return evaluation


def score(scores: Scores, folder: str, against: str, signatures: "dict[str, str]") -> None:
    """Fills the scores of one test set; adds the metrics' signatures by their names."""
    stem = os.path.join(folder, scores.record["files"])
    hypotheses, references = read_lines(stem + ".hypothesis"), read_lines(stem + ".reference")
    _check_lengths(stem + ".hypothesis", hypotheses, stem + ".reference", references)
    default, bleu, chrf = BLEU(), BLEU(tokenize=scores.record["tokenizer"]), CHRF(word_order=2)
    text = score_text(bleu, hypotheses, references)
    scores.bleu = text.score
    scores.bleu_13a = score_text(default, hypotheses, references).score
    scores.chrf = score_text(chrf, hypotheses, references).score
    for name, metric in (("BLEU 13a", default), (f"BLEU {scores.record['tokenizer']}", bleu), ("chrF++", chrf)):
        signatures[name] = str(metric.get_signature())
    other = os.path.join(against, scores.record["files"]) if against else ""
    if not other or not os.path.exists(other + ".hypothesis"):
        return
    if read_lines(other + ".reference") != references:
        raise Refusal(f"--against {against}: {scores.record['files']}.reference differs from this evaluation's; compare systems on the "
                      "same test sets")
    theirs = read_lines(other + ".hypothesis")
    _check_lengths(other + ".hypothesis", theirs, stem + ".reference", references)
    their_text = score_text(bleu, theirs, references)
    scores.other_bleu = their_text.score
    scores.p = p_values(bleu, [[text], [their_text]], against=0)[1]


def _check_lengths(a: str, lines_a: "list[str]", b: str, lines_b: "list[str]") -> None:
    if len(lines_a) != len(lines_b):
        raise Refusal(f"{a} and {b} have different numbers of lines: {len(lines_a)} and {len(lines_b)}")


def _find_wrong_languages(evaluation: Evaluation, folder: str) -> None:
    try:
        require("lingua")
        from pyhadal.languages import classifier, wrong_languages

        shares = wrong_languages(folder, {each.record["files"]: (each.source, each.target) for each in evaluation.sets})
    except Refusal as refusal:
        evaluation.language_note = f"No shares of wrong languages: {refusal}"
        return
    for each in evaluation.sets:
        found = shares[each.record["files"]]
        each.wrong_language, each.wrong_language_reference = found["hypothesis"], found["reference"]
    evaluation.language_note = (f"Wrong language: share of the lines that are not blank, by {classifier()}, which chooses among the "
                                "languages of these test sets; of the references it is its own error.")


def means(evaluation: Evaluation) -> "list[Mean]":
    """All; from and into the pivot; neither side the pivot; by pairs of the training corpus. Without those of no test set."""
    sets, pivot = evaluation.sets, evaluation.pivot
    has_pivot = any(pivot in (each.source, each.target) for each in sets)

    def pairs(least: int, below: float) -> "Callable[[Scores], bool]":
        return lambda each: each.pairs is not None and least <= each.pairs < below
    groups: "list[tuple[str, Callable[[Scores], bool]]]" = [
        ("all", lambda each: True),
        (f"{pivot}→xx", lambda each: each.source == pivot),
        (f"xx→{pivot}", lambda each: each.target == pivot),
        (f"without {pivot}", lambda each: has_pivot and pivot not in (each.source, each.target)),
        ("zero-shot: no training pairs", pairs(0, 1)),
        ("fewer than 100,000 training pairs", pairs(1, _FEW_PAIRS)),
        ("100,000 to 900,000 training pairs", pairs(_FEW_PAIRS, _MANY_PAIRS)),
        ("900,000 training pairs or more", pairs(_MANY_PAIRS, float("inf")))]
    chosen = [(what, [each for each in sets if is_in(each)]) for what, is_in in groups]
    return [_mean(what, some) for what, some in chosen if some]


def _mean(what: str, sets: "list[Scores]") -> Mean:
    wrong = [each.wrong_language for each in sets if each.wrong_language is not None]
    compared = [(each.bleu - each.other_bleu, each.p) for each in sets if each.other_bleu is not None]
    significant = [gain for gain, p in compared if p is not None and p < SIGNIFICANT]
    return Mean(what, len(sets), statistics.fmean(each.bleu for each in sets), statistics.fmean(each.bleu_13a for each in sets),
                statistics.fmean(each.chrf for each in sets), statistics.fmean(wrong) if wrong else None, len(compared),
                sum(gain > 0 for gain, _ in compared), sum(gain > 0 for gain in significant), sum(gain < 0 for gain in significant))


def mean_table(evaluation: Evaluation) -> Table:
    compared = ["wins", f"p < {SIGNIFICANT}: better", "worse"] if evaluation.other else []
    table = Table(["mean over", "directions", "BLEU", "BLEU 13a", "chrF++", "wrong language", *compared], title="Means")
    for mean in means(evaluation):
        cells = [Cell(f"{mean.wins} of {mean.compared}"), number_cell(mean.significant_wins, "d"), number_cell(mean.significant_losses, "d")]
        table.add(mean.what, number_cell(mean.sets, ","), number_cell(mean.bleu, ".1f"), number_cell(mean.bleu_13a, ".1f"), number_cell(mean.chrf, ".1f"),
                  number_cell(mean.wrong_language, ".1%"), *(cells if evaluation.other else []))
    return table


def set_table(evaluation: Evaluation) -> Table:
    table = Table(["direction", "segments", "training pairs", "BLEU", "tokenizer", "BLEU 13a", "chrF++", "wrong language", "of references",
                   *(["other's BLEU", "p"] if evaluation.other else [])], title="Test sets")
    for each in evaluation.sets:
        other = [number_cell(each.other_bleu, ".1f"), number_cell(each.p, ".3f")] if evaluation.other else []
        table.add(each.record["name"], number_cell(each.record["segments"], ","), number_cell(each.pairs, ","), number_cell(each.bleu, ".1f"),
                  each.record["tokenizer"], number_cell(each.bleu_13a, ".1f"), number_cell(each.chrf, ".1f"), number_cell(each.wrong_language, ".1%"),
                  number_cell(each.wrong_language_reference, ".1%"), *other)
    return table


def notes(evaluation: Evaluation) -> "list[str]":
    """What the columns are, one sentence each."""
    other = [f"Other: {evaluation.other}; p: {METHOD}, of the BLEU difference; identical translations have p = 1."]
    return [*evaluation.signatures, _TOKENIZER_NOTE, evaluation.language_note, *(other if evaluation.other else [])]


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """Every number of the page."""
    sets = []
    for each in evaluation.sets:
        record = {**each.record, "bleu": each.bleu, "bleu_13a": each.bleu_13a, "chrf": each.chrf}
        for key in ("wrong_language", "wrong_language_reference"):
            if getattr(each, key) is not None:
                record[key] = getattr(each, key)
        if each.other_bleu is not None:
            record["other"] = {"bleu": each.other_bleu, "p_value": each.p}
        sets.append(record)
    found = []
    for mean in means(evaluation):
        record = {"what": mean.what, "directions": mean.sets, "bleu": mean.bleu, "bleu_13a": mean.bleu_13a, "chrf": mean.chrf}
        if mean.wrong_language is not None:
            record["wrong_language"] = mean.wrong_language
        if mean.compared:
            record.update(compared=mean.compared, wins=mean.wins, significant_wins=mean.significant_wins,
                          significant_losses=mean.significant_losses)
        found.append(record)
    other = {"other": evaluation.other, "test": METHOD} if evaluation.other else {}
    return {"checkpoint": evaluation.checkpoint, "signatures": evaluation.signatures, **other, "means": found, "test_sets": sets}


def direction_bleu(sets: "Iterable[Scores]") -> "tuple[list[str], list[str], np.ndarray[Any, Any]]":
    """Sources, targets, and BLEU from source (row) to target (column), the mean over domains; NaN where there is no test set."""
    values: "dict[tuple[str, str], list[float]]" = {}
    for each in sets:
        values.setdefault((each.source, each.target), []).append(each.bleu)
    sources, targets = (sorted({pair[side] for pair in values}) for side in (0, 1))
    matrix = np.full((len(sources), len(targets)), np.nan)
    for (source, target), scores in values.items():
        matrix[sources.index(source), targets.index(target)] = statistics.fmean(scores)
    return sources, targets, matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="the --out of `hadal evaluate`")
    parser.add_argument("--against", default="", metavar="FOLDER", help="another evaluation's --out, to compare with")
    parser.add_argument("--pivot", default="en", help="language whose directions get separate means (en)")


def run(arguments: argparse.Namespace) -> None:
    from pyhadal import plot

    folder = arguments.folder
    evaluation = load(folder, arguments.against, arguments.pivot)
    found = {"means": mean_table(evaluation), "test_sets": set_table(evaluation)}
    heat_map = plot.matrix(*direction_bleu(evaluation.sets), title="BLEU by direction", x_label="target language",
                           y_label="source language", unit="BLEU, 0 to 100")
    html = page.render("evaluate.html", title=evaluation.checkpoint, heat_map=heat_map, tables=found, notes=notes(evaluation))
    markdown = page.markdown_page(evaluation.checkpoint, list(found.values())) + "\n" + page.markdown_list(notes(evaluation))
    write_whole(os.path.join(folder, "report.html"), html)
    write_whole(os.path.join(folder, "report.md"), markdown)
    write_whole(os.path.join(folder, "evaluation.json"), json.dumps(to_json(evaluation), ensure_ascii=False, indent=1) + "\n")
    write_tables(found, folder)
    print(markdown, end="")
