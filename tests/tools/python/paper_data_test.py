"""configs/papers/data/prepare.py on tiny trees of the publishers' layouts: splits to the line, corpora, refusals.

The program is $HADAL.
"""

import contextlib
import dataclasses
import gzip
import importlib.util
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SCRIPT = CONFIGS / "papers/data/prepare.py"


def load_script():
    spec = importlib.util.spec_from_file_location("prepare", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    sys.modules["prepare"] = script  # dataclasses look it up
    spec.loader.exec_module(script)
    return script


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
    """150 pairs in three files; pair 100, for validation, is in the second; pair 50 is much longer in German."""
    for name, first, last in (("europarl-v7", 1, 81), ("commoncrawl", 81, 121), ("news-commentary-v12", 121, 151)):
        inside = folder if name == "commoncrawl" else folder / "training"
        write(inside / f"{name}.de-en.en", [english(n) for n in range(first, last)])
        write(inside / f"{name}.de-en.de",
              ["Wort " * 40 if n == 50 else german(n) for n in range(first, last)])
    write(folder / "test-full/newstest2014-deen-src.en.sgm", segments([english(900), english(901)]))
    write(folder / "test-full/newstest2014-deen-ref.de.sgm", segments([german(900), german(901)]))


def opus100(folder):
    for pair, sizes in (("de-en", {"train": 40, "dev": 3, "test": 2}), ("en-fr", {"train": 30, "dev": 2, "test": 2})):
        for first, (split, size) in zip((0, 100, 200), sizes.items()):
            for side in pair.split("-"):
                text = english if side == "en" else german
                write(folder / f"opus-100-corpus/v1.0/supervised/{pair}/opus.{pair}-{split}.{side}",
                      [text(first + n) for n in range(size)])
    for side in ("de", "fr"):  # of no use to the recipe
        write(folder / f"opus-100-corpus/v1.0/zero-shot/de-fr/opus.de-fr-test.{side}", [german(1)])


def headlines(folder):
    for split, first, last in (("train", 0, 30), ("valid", 30, 34), ("test", 34, 37)):
        write(folder / f"{split}.tsv",
              [f"{english(n)} {english(n + 1)} {english(n + 2)}\tPart {n}" for n in range(first, last)])


class PaperDataTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree, self.out = Path(scratch.name) / "tree", Path(scratch.name) / "out"

    def run_script(self, corpus, *options, code=0):
        """Returns stdout, or stderr where it is to fail."""
        command = [sys.executable, SCRIPT, corpus, "--from", self.tree, "--out", self.out, *options[:1],
                   "--hadal", os.environ["HADAL"], *options[1:]]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stderr if code else ran.stdout

    def prepare(self, corpus):
        return self.run_script(corpus, "--any-size", "--", "--vocab-size", "90")

    def refused(self, corpus, *words, options=("--any-size",)):
        message = self.run_script(corpus, *options, code=1)
        for word in words:
            self.assertIn(word, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertFalse((self.out / "train.json").exists())

    def text(self, name):
        return (self.out / "text" / name).read_text(encoding="utf-8").splitlines()

    def corpora(self):
        """Pairs of train, valid and test."""
        return [json.loads((self.out / f"{split}.json").read_text())["samples"] for split in ("train", "valid", "test")]

    def test_iwslt14_takes_every_23rd_kept_pair_for_validation_and_five_sets_for_the_test(self):
        iwslt14(self.tree)
        output = self.prepare("iwslt14_de_en")
        kept = [n for n in range(50) if n not in (4, 8)]
        valid = [kept[22], kept[45]]
        self.assertEqual(self.text("valid.en"), [english(n).lower() for n in valid])
        train = [n for n in kept[1:] if n not in valid]
        self.assertEqual(self.text("train.de"), ["ein titel"] + [german(n).lower() for n in train])
        self.assertEqual(self.text("train.en"), ["one title"] + [english(n).lower() for n in train])
        self.assertEqual(self.text("test.en"), [f"it's {name} & more." for name in (
            "ted.dev2010", "tedx.dev2012", "ted.tst2010", "ted.tst2011", "ted.tst2012")])
        self.assertIn("dropped 2 pairs", output)
        self.assertEqual(self.corpora(), [46, 2, 5])

    def test_wmt17_takes_every_100th_pair_of_the_three_texts_together(self):
        wmt17(self.tree)
        plain = self.tree / "commoncrawl.de-en.de"  # the others are as they are
        (self.tree / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
        output = self.prepare("wmt17_en_de")
        self.assertEqual(self.text("valid.de"), [german(100)])
        self.assertEqual(self.text("train.en"), [english(n) for n in range(1, 151) if n not in (50, 100)])
        self.assertEqual(self.text("test.de"), [german(900), german(901)])
        self.assertIn("dropped 1 pairs", output)
        self.assertEqual(self.corpora(), [148, 1, 2])

    def test_opus100_is_prepared_in_both_directions(self):
        opus100(self.tree)
        self.assertIn("train: 2 language pairs, 70 pairs\n", self.prepare("opus100"))
        self.assertEqual(self.corpora(), [140, 10, 8])

    def test_headlines_are_cut_at_the_tab(self):
        headlines(self.tree)
        self.prepare("headlines")
        self.assertEqual(self.text("test.headline"), ["Part 34", "Part 35", "Part 36"])
        self.assertEqual(self.text("valid.text")[0], f"{english(30)} {english(31)} {english(32)}")
        self.assertEqual(self.corpora(), [30, 4, 3])

    def test_options_that_are_passed_on_replace_the_recipes(self):
        headlines(self.tree)
        for passed in (["--vocab", "spm.model"], ["--vocab-size=90"]):
            command = [sys.executable, SCRIPT, "headlines", "--from", self.tree, "--out", self.out, "--any-size", "--hadal", "echo", "--", *passed]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            self.assertTrue(told[-2].endswith(" ".join(["--max-tokens 511", *passed])), told)
            self.assertNotIn("--vocab-size 32000", told[-2])
            self.assertIn(f"configs/method/b2t.textproto --set data.train={self.out}/train --set data.validation={self.out}/valid "
                          "--run-dir runs/headlines", told[-1])
        self.assertIn("--no-such-option", self.run_script("headlines", "--any-size", "--", "--no-such-option", code=2))
        refused = subprocess.run([*command[:command.index("echo")], "no-such-program"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(refused.stderr, "prepare.py: no-such-program: No such file or directory; --hadal names the program\n")

    def test_pairs_are_dropped_by_words_and_marks(self):
        script = load_script()
        corpus = script.CORPORA["iwslt14_de_en"]  # 1.5 times as many at most, and 175
        for source, target, fits in ((175, 175, True), (176, 176, False), (3, 2, True), (2, 3, True), (4, 2, False), (0, 0, False)):
            self.assertEqual(script.short_enough(corpus, ["a." * (source // 2) + "a" * (source % 2), "a " * target]), fits)
        self.assertTrue(script.short_enough(script.CORPORA["headlines"], ["a " * 999, "a"]))

    def test_debian_synopses_are_headlines_of_first_paragraphs(self):
        long = "A library that reads and writes files of a format that many programs of this kind understand"
        entries = [
            f"Package: a\nDescription-en: reads  files\n {long},\n here for C.\n .\n More.\n",
            f"Package: b\nDescription-en: reads files\n {long}, again.\n",
            "Package: c\nDescription-en: short\n Too few words.\n",
            f"Package: d\nDescription-en: tools\n With tools. {long}.\n",
        ]
        self.tree.mkdir()
        source = self.tree / "Translation-en.xz"
        source.write_bytes(lzma.compress("\n".join(entries).encode()))
        out = self.tree / "tsv"
        command = [CONFIGS.parent / "examples/debian_synopses.py", source, "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        lines = [line for split in ("train", "valid", "test") for line in (out / f"{split}.tsv").read_text().splitlines()]
        self.assertEqual(sorted(lines), [f"{long}, here for C.\treads files", f"With tools. {long}.\ttools"])
        for damaged in (source.read_bytes()[:40], b"", b"<html>moved</html>"):
            source.write_bytes(damaged)
            refused = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, r"\Adebian_synopses: .*Translation-en.xz: .*fetch it again\n\Z")

    def test_archives_are_unpacked_once_and_downloaded_only_when_asked(self):
        iwslt14(self.tree)
        archive = self.tree.parent / "published" / "de-en.tgz"
        archive.parent.mkdir()
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self.tree / "de-en", "de-en")
        empty = self.tree.parent / "empty"
        script = load_script()
        corpus = dataclasses.replace(script.CORPORA["iwslt14_de_en"], archives=(archive.as_uri(),))
        empty.mkdir()
        script.unpack(corpus, empty, download=False)
        self.assertEqual(list(empty.iterdir()), [])
        with contextlib.redirect_stdout(io.StringIO()) as output:
            script.unpack(corpus, empty, download=True)
            archive.unlink()
            script.unpack(corpus, empty, download=True)
        self.assertRegex(output.getvalue(), "^downloading file:.*untried.*\n$")
        self.assertEqual(sorted(path.name for path in empty.iterdir()), ["de-en.tgz", "de-en.tgz.unpacked"])
        self.tree = empty
        self.prepare("iwslt14_de_en")
        self.assertEqual(self.corpora(), [46, 2, 5])

    def test_published_counts_are_accepted_and_others_refused_with_both_numbers(self):
        iwslt14(self.tree)
        self.refused("iwslt14_de_en", "50 pairs (50 in train.tags.de-en.de), 174,443 are published", options=())
        script = load_script()
        corpus = script.CORPORA["iwslt14_de_en"]
        tiny = dataclasses.replace(corpus, published=(50, 5))
        with contextlib.redirect_stdout(io.StringIO()):
            splits = script.write_text(tiny, self.tree, self.out / "text", any_size=False)
        self.assertEqual([split.count for split in splits], [46, 2, 5])

    def test_a_test_set_of_another_size_is_refused(self):
        wmt17(self.tree)
        script = load_script()
        corpus = script.CORPORA["wmt17_en_de"]
        tiny = dataclasses.replace(corpus, published=(150, 3003))
        with self.assertRaisesRegex(SystemExit, "2 pairs .*newstest2014-deen-src.en.sgm.*3,003 are published"):
            script.write_text(tiny, self.tree, self.out / "text", any_size=False)

    def test_files_that_are_missing_double_or_of_different_length_are_refused(self):
        wmt17(self.tree)
        with open(self.tree / "commoncrawl.de-en.de", "a", encoding="utf-8") as file:
            file.write("Noch ein Satz.\n")
        self.refused("wmt17_en_de", "commoncrawl.de-en.en has 40 lines", "commoncrawl.de-en.de has 41")
        write(self.tree / "old/commoncrawl.de-en.de", [german(1)])
        self.refused("wmt17_en_de", "old/commoncrawl.de-en.de", "give a folder with one of them")
        shutil.rmtree(self.tree / "old")
        (self.tree / "commoncrawl.de-en.de").unlink()
        self.refused("wmt17_en_de", "has no file commoncrawl.de-en.de")
        shutil.rmtree(self.tree)
        self.refused("wmt17_en_de", "is not a folder")

    def test_an_archive_that_is_cut_is_refused(self):
        iwslt14(self.tree)
        archive = self.tree / "de-en.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self.tree / "de-en", "de-en")
        whole = archive.read_bytes()
        shutil.rmtree(self.tree / "de-en")
        for damaged in (whole[: len(whole) // 2], whole[:5], b"", b"<html>moved</html>"):
            archive.write_bytes(damaged)
            self.refused("iwslt14_de_en", "de-en.tgz: cannot be unpacked", "fetch it again")
            self.assertEqual([path.name for path in self.tree.iterdir()], ["de-en.tgz"])

    def test_opus100_that_is_not_whole_is_refused(self):
        opus100(self.tree)
        self.refused("opus100", "2 language pairs", "99 are published", options=())
        train = self.tree / "opus-100-corpus/v1.0/supervised/de-en/opus.de-en-train.de"
        write(train, [german(1)])
        self.refused("opus100", "opus.de-en-train.de has 1 lines", "opus.de-en-train.en has 40")
        train.unlink()
        self.refused("opus100", "opus.de-en-train.en has no translation beside it, opus.de-en-train.de")
        shutil.rmtree(self.tree / "opus-100-corpus")
        self.refused("opus100", "has no file opus.XX-YY-train.XX")

    def test_lines_of_a_headlines_file_that_are_not_pairs_are_refused_by_number(self):
        headlines(self.tree)
        for line in ("no headline", "a\tb\tc", "text\t "):
            write(self.tree / "valid.tsv", ["text\theadline", line])
            self.refused("headlines", "valid.tsv:2: has")
        self.refused("headlines", "no publisher's address", options=("--download",))

    def test_each_corpus_goes_where_its_config_reads_it(self):
        for corpus in load_script().CORPORA.values():
            config = (CONFIGS.parent / corpus.config).read_text()
            self.assertIn(f'train: "{corpus.out}/train" validation: "{corpus.out}/valid"', config)
            self.assertTrue((CONFIGS / f"method/{corpus.method}.textproto").exists())


if __name__ == "__main__":
    unittest.main()
