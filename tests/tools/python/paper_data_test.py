"""configs/papers/data/prepare.py on tiny trees laid out as the publishers': splits to the line, the corpus, refusals. The program is $HADAL."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SCRIPT = CONFIGS / "papers/data/prepare.py"


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def german(number):
    return f"Satz {number} ist Teil {number % 7} dieser kleinen Sammlung."


def english(number):
    return f"Sentence {number} is part {number % 7} of this small collection."


def segments(texts):
    return ["<doc>", *(f'<seg id="{number}"> {text} </seg>' for number, text in enumerate(texts, 1)), "</doc>"]


def iwslt14(folder):
    """50 pairs in a talk; the 5th is much longer in German, the 9th empty."""
    texts = {"de": [german(n) for n in range(50)], "en": [english(n) for n in range(50)]}
    texts["de"][4] = "Wort " * 40
    texts["en"][8] = ""
    texts["de"][0] = "<title>Ein Titel</title>"
    texts["en"][0] = "<title>One title</title>"
    for side in ("de", "en"):
        head = ["<url>http://nowhere.invalid/1</url>", "<keywords>a, b</keywords>", "<talkid>1</talkid>"]
        write(folder / f"de-en/train.tags.de-en.{side}", head + texts[side])
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            text = f"Das ist {name} &amp; mehr." if side == "de" else f"It’s {name} &amp; more."
            write(folder / f"de-en/IWSLT14.{name}.de-en.{side}.xml", segments([text]))


def wmt17(folder):
    """150 pairs in three files; pair 100, the one for validation, is in the second."""
    for name, first, last in (("europarl-v7", 1, 81), ("commoncrawl", 81, 121), ("news-commentary-v12", 121, 151)):
        inside = folder if name == "commoncrawl" else folder / "training"
        write(inside / f"{name}.de-en.en", [english(n) for n in range(first, last)])
        write(inside / f"{name}.de-en.de", [german(n) for n in range(first, last)])
    write(folder / "test-full/newstest2014-deen-src.en.sgm", segments([english(900), english(901)]))
    write(folder / "test-full/newstest2014-deen-ref.de.sgm", segments([german(900), german(901)]))


def opus100(folder):
    for pair, sizes in (("de-en", {"train": 40, "dev": 3, "test": 2}), ("en-fr", {"train": 30, "dev": 2, "test": 2})):
        for first, (split, size) in zip((0, 100, 200), sizes.items()):
            for side in pair.split("-"):
                text = english if side == "en" else german
                write(folder / f"opus-100-corpus/v1.0/supervised/{pair}/opus.{pair}-{split}.{side}", [text(first + n) for n in range(size)])
    for side in ("de", "fr"):  # of no use to the recipe
        write(folder / f"opus-100-corpus/v1.0/zero-shot/de-fr/opus.de-fr-test.{side}", [german(1)])


def headlines(folder):
    for split, first, last in (("train", 0, 30), ("valid", 30, 34), ("test", 34, 37)):
        write(folder / f"{split}.tsv", [f"{english(n)} {english(n + 1)} {english(n + 2)}\tPart {n}" for n in range(first, last)])


class PaperDataTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree, self.out = Path(scratch.name) / "tree", Path(scratch.name) / "out"

    def run_script(self, corpus, *options, code=0):
        """Returns stdout, or stderr where it is to fail."""
        ran = subprocess.run([sys.executable, SCRIPT, corpus, "--from", self.tree, "--out", self.out, "--hadal", os.environ["HADAL"], *options],
                             capture_output=True, text=True, cwd=self.tree.parent)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stderr if code else ran.stdout

    def prepare(self, corpus):
        return self.run_script(corpus, "--any-size", "--", "--vocab-size", "90")

    def text(self, name):
        return (self.out / "text" / name).read_text(encoding="utf-8").splitlines()

    def pairs(self, corpus):
        return json.loads((self.out / f"{corpus}.json").read_text())["samples"]

    def test_iwslt14_takes_every_23rd_kept_pair_for_validation_and_five_sets_for_the_test(self):
        iwslt14(self.tree)
        output = self.prepare("iwslt14_de_en")
        kept = [n for n in range(50) if n not in (4, 8)]
        valid = [kept[22], kept[45]]
        self.assertEqual(self.text("valid.en"), [english(n).lower() for n in valid])
        self.assertEqual(self.text("train.de"), ["ein titel"] + [german(n).lower() for n in kept[1:] if n not in valid])
        self.assertEqual(self.text("train.en"), ["one title"] + [english(n).lower() for n in kept[1:] if n not in valid])
        self.assertEqual(self.text("test.en"), [f"it's {name} & more." for name in ("ted.dev2010", "tedx.dev2012", "ted.tst2010", "ted.tst2011",
                                                                                   "ted.tst2012")])
        self.assertIn("dropped 2 pairs", output)
        self.assertEqual([self.pairs(split) for split in ("train", "valid", "test")], [46, 2, 5])

    def test_wmt17_takes_every_100th_pair_of_the_three_texts_together(self):
        wmt17(self.tree)
        self.prepare("wmt17_en_de")
        self.assertEqual(self.text("valid.de"), [german(100)])
        self.assertEqual(self.text("train.en"), [english(n) for n in range(1, 151) if n != 100])
        self.assertEqual(self.text("test.de"), [german(900), german(901)])
        self.assertEqual([self.pairs(split) for split in ("train", "valid", "test")], [149, 1, 2])

    def test_opus100_is_prepared_in_both_directions(self):
        opus100(self.tree)
        self.assertIn("2 language pairs, 70 pairs for training", self.prepare("opus100"))
        self.assertEqual([self.pairs(split) for split in ("train", "valid", "test")], [140, 10, 8])

    def test_headlines_are_cut_at_the_tab(self):
        headlines(self.tree)
        self.prepare("headlines")
        self.assertEqual(self.text("test.headline"), ["Part 34", "Part 35", "Part 36"])
        self.assertEqual(self.text("valid.text")[0], f"{english(30)} {english(31)} {english(32)}")
        self.assertEqual([self.pairs(split) for split in ("train", "valid", "test")], [30, 4, 3])


if __name__ == "__main__":
    unittest.main()
