"""`pyhadal evaluate`: scores, means, tables and refusals of folders that are written by hand."""

import contextlib
import csv
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from pyhadal import evaluate, plot
from pyhadal.__main__ import main as pyhadal_main
from pyhadal.evaluate import Evaluation, Scores
from pyhadal.refusal import Refusal
from pyhadal_compare_test import systems
from pyhadal_test import texts

CHINESE = "我们昨天看到了黑色的猫。", "你们昨天看到了黑色的猫。"


def scores(name, pairs=None, **values):
    source, target = name.split()[0].split("-")
    record = {"name": name, "source": source, "target": target, "files": name.replace(" ", "."), "segments": 1234, "empty_segments": 0,
              "tokenizer": "13a"}
    return Scores(record | ({} if pairs is None else {"training_pairs": pairs}), **values)


class EvaluateTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        self.lingua = mock.patch.object(evaluate, "require", side_effect=Refusal("lingua is missing"))
        self.lingua.start()
        self.addCleanup(self.lingua.stop)

    def folder(self, name, **test_sets):
        """An evaluation's folder. Test sets: direction (with _ for -) → hypotheses and references."""
        folder = os.path.join(self.scratch, name)
        os.makedirs(folder)
        records = []
        for direction, sides in test_sets.items():
            stem = direction.replace("_", "-")
            source, target = stem.split("-")
            records.append({"name": stem, "source": source, "target": target, "files": stem, "segments": len(sides[1]), "empty_segments": 0,
                            "tokenizer": "zh" if target == "zh" else "13a"})
            for kind, lines in zip(("hypothesis", "reference"), sides):
                Path(folder, f"{stem}.{kind}").write_text("".join(line + "\n" for line in lines), "utf-8")
        with open(os.path.join(folder, "test_sets.json"), "w", encoding="utf-8") as file:
            json.dump({"checkpoint": "runs/first/checkpoints/step_7", "test_sets": records, "written": []}, file)
        return folder

    def test_scores_are_sacrebleus_with_the_tokenizer_of_the_target(self):
        references, _, bad = systems(60, 0)
        evaluation = evaluate.load(self.folder("a", en_de=(bad, references), de_zh=([CHINESE[0]], [CHINESE[1]])))
        german, chinese = evaluation.sets
        self.assertEqual(german.bleu, BLEU().corpus_score(bad, [references]).score)
        self.assertEqual(german.chrf, CHRF(word_order=2).corpus_score(bad, [references]).score)
        self.assertEqual(chinese.bleu, BLEU(tokenize="zh").corpus_score([CHINESE[0]], [[CHINESE[1]]]).score)
        self.assertGreater(chinese.bleu, 50)
        self.assertEqual(chinese.bleu_13a, 0)  # one word, another one
        self.assertTrue(any("tok:zh" in signature for signature in evaluation.signatures))
        languages = mock.Mock(**{"wrong_languages.return_value": {name: {"hypothesis": 0.5, "reference": 0.25} for name in ("en-de", "de-zh")}})
        with mock.patch.object(evaluate, "require"), mock.patch.dict(sys.modules, {"pyhadal.languages": languages}):
            evaluate._find_wrong_languages(evaluation, "folder")
        languages.wrong_languages.assert_called_with("folder", {"en-de": ("en", "de"), "de-zh": ("de", "zh")})
        self.assertEqual((german.wrong_language, german.wrong_language_reference), (0.5, 0.25))

    def test_another_evaluation_is_compared_on_the_same_references(self):
        references, good, bad = systems(60, 0)
        other = self.folder("other", en_de=(bad, references), de_en=(good, references))
        folder = self.folder("ours", en_de=(good, references), de_en=(good, references), fr_en=(good, references))
        first, second, third = evaluate.load(folder, other).sets
        self.assertLess(first.other_bleu, 95)
        self.assertLess(first.p, 0.05)
        self.assertEqual((second.other_bleu, second.p), (second.bleu, 1))  # identical translations
        self.assertIsNone(third.other_bleu)
        with self.assertRaisesRegex(Refusal, "compare systems on the same test sets"):
            evaluate.load(folder, self.folder("others", en_de=(bad, bad)))
        with self.assertRaisesRegex(Refusal, "fewer/en-de.hypothesis and .* have different numbers of lines: 199 and 200"):
            evaluate.load(folder, self.folder("fewer", en_de=(good[1:], references)))

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(Refusal, "en-de.hypothesis and .*en-de.reference have different numbers of lines: 1 and 2"):
            evaluate.load(self.folder("short", en_de=(["a"], ["a", "b"])))
        with contextlib.redirect_stderr(io.StringIO()) as error:
            self.assertEqual(pyhadal_main(["evaluate", self.scratch]), 2)
        self.assertIn("test_sets.json: no such file", error.getvalue())
        Path(self.scratch, "test_sets.json").write_text("[]", "utf-8")
        with self.assertRaisesRegex(Refusal, r"test_sets.json: not written by hadal evaluate \(TypeError"):
            evaluate.load(self.scratch)

    def test_files(self):
        references, _, bad = systems(60, 0)
        folder = self.folder("a", en_de=(bad, references), de_en=(references, references))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(pyhadal_main(["evaluate", folder, "--pivot", "de"]), 0)
        self.assertEqual(Path(folder, "report.md").read_text("utf-8"), out.getvalue())
        self.assertIn("No shares of wrong languages: lingua is missing", out.getvalue())
        self.assertIn("| de→xx |", out.getvalue())
        with open(os.path.join(folder, "test_sets.csv"), encoding="utf-8") as file:
            self.assertEqual(float(list(csv.DictReader(file))[0]["BLEU"]), BLEU().corpus_score(bad, [references]).score)
        page = Path(folder, "report.html").read_text("utf-8")
        for part in ("<h1>runs/first/checkpoints/step_7</h1>", "No shares of wrong languages", "<td>en-de</td>"):
            self.assertIn(part, page)
        seen = texts(page[page.index("<svg"):page.index("</svg>") + len("</svg>")])
        for text in ("BLEU by direction", "target language", "source language", "92.3", "100.0"):
            self.assertIn(text, seen)
        self.assertTrue(all(os.path.exists(os.path.join(folder, name)) for name in ("means.csv", "means.tex", "test_sets.tex", "evaluation.json")))


class ReportTest(unittest.TestCase):
    def test_tables_name_each_directions_numbers(self):
        there = scores("en-de", 50_000, bleu=10, bleu_13a=11, chrf=42.5, wrong_language=0.5, wrong_language_reference=0.25, other_bleu=9, p=0.01)
        evaluation = Evaluation("run", [there, scores("de-en", bleu=20)], other="base")
        self.assertIn("| en-de | 1,234 | 50,000 | 10.0 | 13a | 11.0 | 42.5 | 50.0% | 25.0% | 9.0 | 0.010 |\n", evaluate.set_table(evaluation).to_markdown())
        self.assertIn("\n| en→xx | 1 | 10.0 | 11.0 | 42.5 | 50.0% | 1 of 1 | 1 | 0 |\n", evaluate.mean_table(evaluation).to_markdown())

    def test_the_heat_map_goes_from_rows_to_columns_and_averages_domains(self):
        sources, targets, values = evaluate.direction_bleu([scores("en-de", bleu=10), scores("en-de news", bleu=20), scores("de-fr", bleu=7)])
        self.assertEqual((sources, targets), (["de", "en"], ["de", "fr"]))
        np.testing.assert_array_equal(values, [[np.nan, 7], [15, np.nan]])
        with mock.patch("matplotlib.axes.Axes.text") as text:
            plot.matrix(sources, targets, values, title="", x_label="", y_label="", unit="")
        self.assertEqual([call.args[:3] for call in text.call_args_list], [(1, 0, "7.0"), (0, 1, "15.0")])  # x is the target

    def test_json_has_every_number_under_its_name(self):
        full = scores("en-de news", 50_000, bleu=10, bleu_13a=11, chrf=42.5, wrong_language=0.5, wrong_language_reference=0.25, other_bleu=9, p=0.01)
        bare = dict(bleu=40, bleu_13a=9, chrf=7.5)
        sets = [full, scores("de-en", **bare, other_bleu=39, p=0.2), scores("de-en", **bare, other_bleu=41, p=0.2), scores("de-en", **bare)]
        found = evaluate.to_json(Evaluation("run", sets, other="base"))
        self.assertEqual(found["test_sets"][0], {**full.record, "bleu": 10, "bleu_13a": 11, "chrf": 42.5, "wrong_language": 0.5,
                                                 "wrong_language_reference": 0.25, "other": {"bleu": 9, "p_value": 0.01}})
        self.assertEqual(found["test_sets"][3], {**sets[3].record, **bare})
        self.assertEqual(found["means"][0], {"what": "all", "directions": 4, "bleu": 32.5, "bleu_13a": 9.5, "chrf": 16.25, "wrong_language": 0.5,
                                             "compared": 3, "wins": 2, "significant_wins": 1, "significant_losses": 0})

    def test_means_are_of_the_directions_that_they_name(self):
        sets = [scores("en-de", 50_000, bleu=10, wrong_language=0.5, other_bleu=9, p=0.01), scores("de-en", 1_000_000, bleu=20, other_bleu=25, p=0.2),
                scores("de-fr", 0, bleu=60, other_bleu=61, p=0.04)]
        found = evaluate.means(Evaluation("run", sets, other="base"))
        self.assertEqual({mean.what: mean.bleu for mean in found},
                         {"all": 30, "en→xx": 10, "xx→en": 20, "without en": 60, "zero-shot: no training pairs": 60,
                          "fewer than 100,000 training pairs": 10, "900,000 training pairs or more": 20})
        first = found[0]
        self.assertEqual((first.wins, first.compared, first.significant_wins, first.significant_losses, first.wrong_language), (1, 3, 1, 1, 0.5))
        sets[0].record["training_pairs"], sets[1].record["training_pairs"] = 100_000, 899_999
        last = evaluate.means(Evaluation("run", sets))[-1]
        self.assertEqual((last.what, last.bleu), ("100,000 to 900,000 training pairs", 15))
        sets[2].record["training_pairs"] = 900_000
        self.assertEqual(evaluate.means(Evaluation("run", sets))[-1].what, "900,000 training pairs or more")
        self.assertNotIn("without eng_Latn", [mean.what for mean in evaluate.means(Evaluation("run", sets, pivot="eng_Latn"))])


if __name__ == "__main__":
    unittest.main()
