"""The report of `hadal compare`: significance, tables, diagnoses, pictures and files of comparisons that are written by hand."""

import contextlib
import csv
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from pyhadal import compare_pictures, comparison as compare, significance
from pyhadal.instruments import read_instruments
from pyhadal.plot import Series
from pyhadal.run import Run
from pyhadal_test import make_run, texts

VANISH = "gradients vanish from encoder layer 4 down since step 11: each of the encoder's 3 lowest sublayers gets less. What usually helps: another method"
JUMP = "the loss jumped at step 3, from nll 2.000 (step 2) to 4.000 in the mean of 10 updates"


def systems(worse, better, segments=200):
    """References, and two systems: `worse` segments of the second and `better` of the first have a wrong word."""
    whole = [f"the {i} small cats of {i * 7} houses sat on their mats today" for i in range(segments)]
    wrong = [line.replace("cats", "dogs") for line in whole]
    return whole, [wrong[i] if worse <= i < worse + better else whole[i] for i in range(segments)], wrong[:worse] + whole[worse:]


def p_value(worse, better, metric=None, **options):
    metric = metric or BLEU()
    references, good, bad = systems(worse, better)
    texts_of = [[significance.score_text(metric, system, references)] for system in (good, bad)]
    return significance.p_values(metric, texts_of, against=0, **options)[1]


class SignificanceTest(unittest.TestCase):
    def test_scores_are_sacrebleus(self):
        references, _, bad = systems(60, 0)
        for metric in (BLEU(), BLEU(tokenize="char"), CHRF(word_order=2)):
            text = significance.score_text(metric, bad, references)
            self.assertEqual(text.score, metric.corpus_score(bad, [references]).score)
            self.assertEqual(len(text.counts), len(references))

    def test_identical_outputs_have_p_1(self):
        self.assertEqual(p_value(0, 0), 1)
        self.assertEqual(p_value(0, 0, CHRF()), 1)

    def test_p_follows_the_number_of_sentences_that_differ(self):
        self.assertLess(p_value(60, 0), 0.01)
        self.assertGreater(p_value(30, 30), 0.2)
        # One sentence that differs is missing from a share of (1 - 1/n)^n, about 1/e, of resamples drawn with replacement.
        self.assertTrue(0.3 < p_value(1, 0, resamples=4000) < 0.75)

    def test_every_system_has_the_same_resamples(self):
        references, good, bad = systems(12, 0)
        for system in (good, bad):  # sentences that are hard for both
            system[100:] = ["nothing of it is right here at all"] * 100
        texts_of = [[significance.score_text(BLEU(), system, references)] for system in (good, bad)]
        self.assertLess(significance.p_values(BLEU(), texts_of, against=0)[1], 0.01)

    def test_is_symmetric_and_depends_on_the_seed_alone(self):
        references, good, bad = systems(12, 4)
        a, b = (significance.score_text(BLEU(), system, references) for system in (good, bad))
        p = significance.p_values(BLEU(), [[a], [b]], 0)[1]
        self.assertEqual(p, significance.p_values(BLEU(), [[a], [b]], 1)[0])
        self.assertEqual(p, p_value(12, 4))
        self.assertAlmostEqual(p, p_value(12, 4, seed=99), delta=0.05)

    def test_a_system_of_several_seeds_is_their_mean(self):
        references, good, bad = systems(60, 0)
        a, b = (significance.score_text(BLEU(), system, references) for system in (good, bad))
        self.assertEqual(significance.p_values(BLEU(), [[a, b], [b, a]], 0), [1, 1])
        self.assertLess(significance.p_values(BLEU(), [[a, b], [b, b]], 0)[1], 0.05)


class Grid:
    """A folder as the launcher leaves it. Axes: name → labels; "seed" is the axis of seeds."""

    def __init__(self, folder, axes):
        self.folder, self.axes, self.cells = folder, axes, []

    def add(self, *labels, nll=4.5, steps=(5.0, 4.0), step=None, state="done", verdict="trains", diagnoses=(), translation=None, log="", **more):
        """Adds a run whose steps have these nll, and which ends at `step`; no steps: it has not run."""
        name = ",".join(f"{axis}={label}" for axis, label in zip(self.axes, labels))
        cell = {"name": name, "labels": labels, "directory": f"runs/{name}", "log": f"logs/{name}.log", "state": state, "exit_code": 0,
                "wall_seconds": 3600, "cpu_seconds": 1800, "unigram_nll": 5.0, **more}
        directory = os.path.join(self.folder, cell["directory"])
        if steps:
            step = step or len(steps)
            cell.update(steps=step, verdict=verdict, model="m", parameters=7)
            if nll is not None:
                cell.update(best_validation_nll=nll, best_step=step, below_unigram=5 - nll)
            events = [{"event": "run", "encoder_sublayers": 2}]
            events += [{"event": "step", "step": i + 1, "nll": value, "step_seconds": 0.5, "target_tokens": 1000} for i, value in enumerate(steps)]
            events += [{"event": "validation", "step": step, "nll": nll}] if nll is not None else []
            events += [{"event": "diagnosis", "step": 60 + i, "text": text} for i, text in enumerate(diagnoses)]
            events += [{"event": "depth", "step": s, "update": s, "model_update": s / 4, "output_gradient": [1, 4, 8, 2],
                        "norm_input_gradient": [1, 2 * s, None, 2], "norm_output_gradient": [2, 4, None, 4], "similarity": [0.5, 0.25 * s, None, 0.75],
                        "active": [None, 0.5, None, 0.25]} for s in (1, 10, 11)]
            make_run(directory, events)
            if translation:
                self._write(os.path.join(cell["directory"], "test.translation"), "\n".join(translation) + "\n")
        if log:
            self._write(cell["log"], log)
        self.cells.append(cell)
        return cell

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_text(text, "utf-8")
        return path

    def load(self, reference=None):
        axes = [{"name": name, "labels": labels, "seeds": name == "seed"} for name, labels in self.axes.items()]
        record = {"title": "Which <methods> train", "note": "", "rule": {"trains_below_unigram": 0.3, "fails_below_unigram": 0.05}, "axes": axes,
                  "cells": self.cells}
        self._write("grid.json", json.dumps(record))
        self.reference = self._write("reference", "\n".join(reference) + "\n") if reference else ""
        return compare.load(self.folder, self.reference)


class CompareTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def grid(self, **axes):
        return Grid(self.folder, axes or {"method": ["a", "b"], "depth": ["6", "18"]})

    @staticmethod
    def shown(comparison, name):
        return [[cell.text for cell in row] for row in compare.tables(comparison)[name].rows]

    def test_methods_are_rows_and_depths_are_columns(self):
        grid = self.grid()
        grid.add("a", "6")
        grid.add("b", "6", nll=None, state="diverged", verdict="diverged")
        grid.add("a", "18", steps=(), state="none")
        grid.add("b", "18", nll=None, verdict="not known")
        comparison = grid.load()
        table = compare.tables(comparison)["nll"]
        self.assertEqual(table.columns, ["method \\ depth", "6", "18"])
        self.assertEqual(self.shown(comparison, "nll"), [["a", "4.500", "not run"], ["b", "diverged", "2 steps"]])
        self.assertNotIn("±", table.note)
        self.assertEqual([row[1].mark for row in table.rows], ["good", "bad"])
        self.assertIn("(5.000 on these sentences)", table.note)
        self.assertNotIn("bleu", compare.tables(comparison))
        self.assertEqual(self.shown(comparison, "runs")[0][:8] + self.shown(comparison, "runs")[0][10:],
                         ["method=a,depth=6", "done", "2", "–", "4.500", "2", "0.500", "trains", "2.00k", "1.000", "0.500"])

    def test_further_axes_have_tables_of_their_own(self):
        grid = self.grid(method=["a"], depth=["6"], warmup=["none", "40"])
        grid.add("a", "6", "40", nll=4.1)
        grid.add("a", "6", "none", nll=4.2)
        comparison = grid.load()
        self.assertEqual([panel.name for panel in comparison.panels], ["warmup=none", "warmup=40"])
        self.assertEqual(compare.tables(comparison)["nll_2"].title, "Validation nll, warmup=40")
        self.assertEqual(self.shown(comparison, "nll_1") + self.shown(comparison, "nll_2"), [["a", "4.200"], ["a", "4.100"]])

    def test_runs_that_differ_in_their_seed_are_one_cell(self):
        grid = self.grid(method=["a", "b"], seed=["1", "2"])
        for seed, nll in (("1", 4.0), ("2", 4.2)):
            grid.add("a", seed, nll=nll)
        grid.add("b", "1", nll=4.3)
        grid.add("b", "2", nll=None, state="diverged", verdict="diverged", step=1)
        comparison = grid.load()
        self.assertEqual(self.shown(comparison, "nll"), [["a", "4.100 ± 0.141 (2)"], ["b", "4.300 1 of 2 diverged"]])
        table = compare.tables(comparison)["nll"]
        self.assertEqual(table.rows[1][1].mark, "bad")
        self.assertIn("±: standard deviation over the seeds", table.note)
        self.assertNotIn("cannot be compared", table.note)  # a run that diverged has fewer steps
        runs = [compare.ComparedRun({"verdict": verdict}, "", "") for verdict in ("trains", "between")]
        self.assertEqual(compare._mark(compare.Entry((), runs)), "fair")
        self.assertEqual([compare._bleu_cell(entry).text for entry in (compare.Entry((), []), None)], ["–", ""])
        result = compare.to_json(comparison)["results"][0]["best_validation_nll"]
        self.assertEqual((result["mean"], result["runs"]), (4.1, 2))
        self.assertAlmostEqual(result["standard_deviation"], 0.1414, places=4)

    def test_the_best_bleu_of_a_column_is_tested_against_the_others(self):
        reference, good, bad = systems(60, 0)
        grid = self.grid()
        grid.add("a", "6", translation=bad)
        grid.add("b", "6", translation=good)
        grid.add("a", "18", translation=good)
        grid.add("b", "18", translation=good)
        comparison = grid.load(reference)
        table = compare.tables(comparison)["bleu"]
        self.assertEqual([[cell.text for cell in row[1:]] for row in table.rows], [["92.3", "100.0"], ["100.0", "100.0 ≈"]])
        self.assertEqual([[cell.best for cell in row[1:]] for row in table.rows], [[False, True], [True, False]])
        rows = self.shown(comparison, "runs")
        self.assertEqual([row[8] for row in rows], ["92.3", "100.0", "100.0", "100.0"])
        self.assertLess(float(rows[0][9]), 0.05)
        self.assertEqual([row[9] for row in rows[1:]], ["–", "–", "1.000"])
        self.assertIn("tok:13a", table.note)
        self.assertIn("seed 12345", table.note)
        results = {tuple(result["labels"].values()): result for result in compare.to_json(comparison)["results"]}
        self.assertLess(results["a", "6"]["p_value"], 0.05)
        self.assertEqual(results["b", "18"]["p_value"], 1)
        self.assertNotIn("100.0", [cell.text for row in compare.tables(comparison)["nll"].rows for cell in row])
        with self.assertRaisesRegex(compare.Refusal, "has 200 lines, and the reference .* has 199"):
            grid.load(reference[1:])

    def test_runs_of_unlike_steps_have_no_winner_and_no_p(self):
        reference, good, bad = systems(60, 0)
        grid = self.grid()
        grid.add("a", "6", translation=bad, step=91, state="cut")
        grid.add("b", "6", translation=good, step=113, state="cut")
        comparison = grid.load(reference)
        tables = compare.tables(comparison)
        self.assertFalse(any(cell.best for row in tables["bleu"].rows for cell in row))
        for name in ("nll", "bleu"):
            self.assertIn("Column 6: the runs made 91 to 113 steps", tables[name].note)
        self.assertNotIn("best.", tables["nll"].note)  # that table names none
        self.assertEqual({result.get("p_value") for result in compare.to_json(comparison)["results"]}, {None})
        self.assertIn("method=a,depth=6: was cut by run_minutes at step 91", compare.troubles(comparison))

    def test_a_run_carries_its_own_diagnosis(self):
        grid = self.grid()
        grid.add("a", "6", nll=5.2, verdict="too short", diagnoses=[VANISH])
        grid.add("b", "6", nll=5.2, verdict="too short", diagnoses=[
            VANISH, VANISH.replace("encoder", "decoder"),
            *(f"over: the gradients of the {stack}'s lower layers no longer vanish" for stack in ("encoder", "decoder"))])
        grid.add("a", "18", diagnoses=[JUMP])
        grid.add("b", "18", steps=(), state="failed", exit_code=3,
                 log="hadal train: loading\nhadal train: manifest.json is damaged\nPrimary job terminated normally, but 1 process returned\n")
        comparison = grid.load()
        self.assertEqual(self.shown(comparison, "nll"), [["a", "5.200 gradients vanish", "4.500"], ["b", "5.200 too short", "error, failed"]])
        troubles = compare.troubles(comparison)
        self.assertIn(f"method=a,depth=6: step 60: {VANISH}", troubles)
        self.assertTrue(any("depth=18: ended with exit code 3: hadal train: manifest.json is damaged" in text for text in troubles))
        self.assertFalse(any("method=b,depth=6" in text for text in troubles))

    def test_instruments(self):
        grid = self.grid()
        cell = grid.add("a", "6")
        found = read_instruments(Run(os.path.join(self.folder, cell["directory"])))
        self.assertEqual({name: found[name] for name in ("gradient_ratio_encoder", "gradient_ratio_decoder", "early_model_update", "model_update")},
                         {"gradient_ratio_encoder": 0.25, "gradient_ratio_decoder": 4, "early_model_update": 2.5, "model_update": 2.75})
        self.assertAlmostEqual(found["norm_gradient_ratio"], 0.5)
        self.assertAlmostEqual(found["similarity"], (0.5 + 2.75 + 0.75) / 3)
        self.assertAlmostEqual(found["active"], 0.375)
        comparison = grid.load()
        with mock.patch.object(compare_pictures._Pictures, "add") as added:
            compare_pictures._depth(comparison, comparison.panels[0])
        points = {call[0][0]: [list(values) for values in call[0][3](comparison.runs[0].run)] for call in added.call_args_list}
        for title, x, y in (("Change of the model, ‖ΔF‖", [1, 10, 11], [0.25, 2.5, 2.75]),
                            ("Gradient of the activations, first record", [0, 1, 2, 3], [1, 4, 8, 2]),
                            ("Gradient before a norm over that after it", [0, 1, 3], [0.5, 0.5, 0.5]),
                            ("Similarity to the previous sublayer", [0, 1, 3], [0.5, 2.75, 0.75]), ("Active hidden units", [1, 3], [0.5, 0.25])):
            self.assertEqual(points[title], [x, y], title)
        self.assertIn("Gradient of the parameters, last record", points)

    def test_every_table_is_a_csv_and_a_latex_file_and_the_page_is_one_file(self):
        reference, good, bad = systems(60, 0)
        grid = self.grid()
        cell = grid.add("a", "6", translation=bad, nll=4.0 + 1 / 3)
        with open(os.path.join(self.folder, cell["directory"], "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"event":"validation","step":2,"nll":null}\n')
        grid.add("b", "6", translation=good, nll=5.2, verdict="fails", diagnoses=[VANISH])
        grid.load(reference)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            compare.write(self.folder, grid.reference)
        self.assertIn("comparison.html", out.getvalue())
        names = sorted(os.listdir(os.path.join(self.folder, "tables")))
        self.assertEqual(names, sorted(f"{name}.{kind}" for name in ("bleu", "instruments", "nll", "runs") for kind in ("csv", "tex")))
        with open(os.path.join(self.folder, "tables", "nll.csv"), encoding="utf-8") as file:
            self.assertEqual(float(list(csv.reader(file))[1][1]), 4.0 + 1 / 3)
        whole = json.loads(Path(self.folder, "comparison.json").read_text("utf-8"), parse_constant=self.fail)
        self.assertEqual(whole["cells"][0]["validation_nll"], [[2, 4.0 + 1 / 3], [2, None]])
        self.assertEqual(whole["cells"][0]["instruments"]["model_update"], 2.75)
        self.assertIn("- method=b,depth=6: step 60: gradients vanish from", Path(self.folder, "comparison.md").read_text("utf-8"))
        page = Path(self.folder, "comparison.html").read_text("utf-8")
        for absent in ("<script", "<link", "src=", "<methods>"):
            self.assertNotIn(absent, page)
        self.assertLess(page.index("gradients vanish from"), page.index("<table"))  # diagnoses come first
        self.assertIn("<h3>depth 6</h3>", page)
        self.assertNotIn("<h3>depth 18</h3>", page)

    def test_a_folder_that_is_no_comparison_is_refused(self):
        with self.assertRaisesRegex(compare.Refusal, "grid.json: no such file"):
            compare.load(self.folder)
        Path(self.folder, "grid.json").write_text("{}", "utf-8")
        with self.assertRaisesRegex(compare.Refusal, r"grid.json: not written by hadal compare \(KeyError: 'cells'\)"):
            compare.load(self.folder)

    def test_losses_of_seeds_are_a_mean_with_a_band(self):
        grid = self.grid(method=["a", "b"], seed=["1", "2"])
        for seed, nll in (("1", 4.0), ("2", 5.0)):
            grid.add("a", seed, steps=(6.0, nll))
        grid.add("b", "1", steps=(6.0, 4.4))
        entry = grid.load().panels[0].entries["a", ""]
        band = compare_pictures._series("a", 0, entry, compare_pictures.training_nll)
        self.assertEqual([list(values) for values in (band.x, band.y, band.low, band.high)], [[1, 2], [6, 4.5], [6, 4], [6, 5]])
        self.assertEqual(band.name, "a (2 seeds)")
        apart = iter([(np.array([step]), np.array([5.0])) for step in (1.0, 2.0)])
        self.assertIsNone(compare_pictures._series("a", 0, entry, lambda _: next(apart)), "no step of both")
        groups = compare_pictures.draw(grid.load())
        self.assertEqual(list(groups), ["Curves", "Depth"])
        seen = texts(groups["Curves"][0].pictures[1])
        for text in ("Training, means over blocks of steps", "step", "nll, nats per target token", "a (2 seeds)", "b"):
            self.assertIn(text, seen)


    def test_losses_are_drawn_by_columns_and_by_rows(self):
        grid = self.grid(method=["a", "b", "c"], depth=["6", "18"])
        for method, nll in (("a", 4.0), ("b", 5.0), ("c", 400.0)):
            grid.add(method, "6", nll=nll, steps=(6.0, nll))
        grid.add("a", "18", nll=4.5)
        with mock.patch("pyhadal.compare_pictures.lines", return_value="") as drawn:
            compare_pictures._losses(comparison := grid.load(), comparison.panels[0])
        found = [(call.args[1], {one.name: list(one.y) for one in call.args[0]}) for call in drawn.call_args_list]
        self.assertEqual(found[:2], [("Validation", {"a": [4], "b": [5], "c (leaves the picture)": [7.5]}),
                                     ("Training, means over blocks of steps", {"a": [6, 4], "b": [6, 5], "c (leaves the picture)": [6, 9]})])
        self.assertEqual(found[4:6], [("Validation: a", {"depth 6": [4], "depth 18": [4.5]}), ("Validation: b", {"depth 6": [5]})])


class PicturesTest(unittest.TestCase):
    def test_curves_are_merged_where_all_are_drawn(self):
        merged = compare_pictures.merge([(np.array([1.0, 2, 3]), np.array([1.0, 2, 3])), (np.array([2.0, 4, 6]), np.array([4.0, 2, np.nan]))])
        self.assertEqual([list(values) for values in merged], [[2, 3], [3, 3], [2, 3], [4, 3]])

    def test_a_loss_that_explodes_leaves_the_picture_to_the_others(self):
        held = compare_pictures.hold_back([Series("a", [1, 2], np.array([6.0, 5.0])), Series("b", [1, 2, 3], np.array([6.0, 1e6, np.nan]))])
        self.assertEqual([one.name for one in held], ["a", "b (leaves the picture)"])
        self.assertEqual(list(held[1].y), [6, 9, 9])
        lines = [Series(str(first), [1], [first], low=np.array([first - 1]), high=np.array([first + 1])) for first in (2.0, 4.0, 40.0)]
        held = compare_pictures.hold_back(lines)  # of the median of their first points
        self.assertEqual([(one.low[0], one.y[0], one.high[0]) for one in held], [(1, 2, 3), (3, 4, 5), (6, 6, 6)])

    def test_a_logarithmic_picture_leaves_out_what_it_cannot_show(self):
        run = mock.Mock(**{"depth.return_value": ([1, 2], np.array([[0, np.nan, 3.0], [0, 5.0, -1.0]]))})
        for record, logarithmic, wanted in ((0, True, [[2], [3]]), (-1, False, [[0, 1, 2], [0, 5, -1]])):
            self.assertEqual([list(values) for values in compare_pictures.over_depth("a", record, logarithmic)(run)], wanted)

    def test_training_is_drawn_as_means_of_blocks(self):
        with tempfile.TemporaryDirectory() as folder:
            steps = [None if s == 3 else float(s) for s in range(1, 401)] + [None]  # a skipped step, and an end without a loss
            run = Run(make_run(folder, [{"event": "step", "step": i + 1, "nll": nll} for i, nll in enumerate(steps)]))
            x, y = compare_pictures.training_nll(run)
        self.assertEqual(len(x), 40)
        self.assertAlmostEqual(y[0], np.mean([1, 2, *range(4, 12)]))
        self.assertTrue(np.isnan(y[-1]))


if __name__ == "__main__":
    unittest.main()
