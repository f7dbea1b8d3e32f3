"""`hadal make-corpus`: the words of a number, the split of numbers, the files."""

import argparse
import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from pyhadal import make_corpus as corpus
from pyhadal.refusal import Refusal


class Words(unittest.TestCase):
    def test_german_and_english_words_of_numbers(self):
        for number, german, english in (
                (0, "null", "zero"), (1, "eins", "one"), (12, "zwölf", "twelve"), (16, "sechzehn", "sixteen"),
                (21, "einundzwanzig", "twenty-one"), (30, "dreißig", "thirty"), (76, "sechsundsiebzig", "seventy-six"),
                (100, "einhundert", "one hundred"), (101, "einhunderteins", "one hundred and one"),
                (407, "vierhundertsieben", "four hundred and seven"),
                (1000, "eintausend", "one thousand"), (1001, "eintausendeins", "one thousand and one"),
                (1100, "eintausendeinhundert", "one thousand one hundred"),
                (21_021, "einundzwanzigtausendeinundzwanzig", "twenty-one thousand and twenty-one"),
                (101_000, "einhunderteintausend", "one hundred and one thousand"),
                (999_999, "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
                 "nine hundred and ninety-nine thousand nine hundred and ninety-nine")):
            self.assertEqual((corpus.german(number), corpus.english(number)), (german, english))

    def test_no_two_numbers_have_the_same_words(self):
        numbers = list(range(3000)) + list(range(100_000, 103_000))
        for words in (corpus.german, corpus.english):
            self.assertEqual(len({words(number) for number in numbers}), len(numbers))


class Splits(unittest.TestCase):
    def test_held_out_numbers_are_distinct_and_of_their_split_for_any_seed(self):
        for seed in (1, 2):
            for split in ("valid", "test"):
                numbers = list(corpus.draw(split, 500, seed))
                self.assertEqual(len(set(numbers)), 500)
                self.assertEqual({corpus.split_of(number) for number in numbers}, {split})
            self.assertEqual({corpus.split_of(number) for number in corpus.draw("train", 2000, seed)}, {"train"})

    def test_a_shorter_text_is_the_beginning_of_a_longer_one(self):
        self.assertEqual(list(corpus.draw("train", 50, 3)), list(corpus.draw("train", 80, 3))[:50])
        self.assertNotEqual(list(corpus.draw("train", 50, 3)), list(corpus.draw("train", 50, 4)))

    def test_longer_numbers_are_more_frequent(self):
        lengths = [len(str(number)) for number in corpus.draw("train", 3000, 1)]
        counts = [lengths.count(digits) for digits in range(1, 7)]
        self.assertEqual(counts, sorted(counts))
        self.assertGreater(counts[0], 50)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "text")  # not there yet

    def lines(self, name):
        return Path(self.folder, name).read_text("utf-8").splitlines()

    def test_line_n_of_one_file_is_line_n_of_the_other(self):
        corpus.make_corpus(self.folder, {"train": 30, "valid": 10, "test": 0})
        self.assertEqual(sorted(os.listdir(self.folder)), ["train.de", "train.en", "valid.de", "valid.en"])
        numbers = list(corpus.draw("train", 30, 1))
        self.assertEqual(self.lines("train.de"), [corpus.german(number) for number in numbers])
        self.assertEqual(self.lines("train.en"), [corpus.english(number) for number in numbers])

    def test_the_command_writes_what_its_options_say(self):
        parser = argparse.ArgumentParser()
        corpus.add_arguments(parser)
        with contextlib.redirect_stdout(io.StringIO()):
            corpus.run(parser.parse_args(["--out", self.folder, "--pairs", "5", "--valid", "3", "--test", "2", "--seed", "7"]))
        for split, count in (("train", 5), ("valid", 3), ("test", 2)):
            self.assertEqual(self.lines(f"{split}.de"), [corpus.german(number) for number in corpus.draw(split, count, 7)])

    def test_existing_files_are_kept_without_overwrite(self):
        corpus.make_corpus(self.folder, {"train": 5})
        before = self.lines("train.en")
        with self.assertRaisesRegex(Refusal, "train.de already exists.*--overwrite"):
            corpus.make_corpus(self.folder, {"test": 5, "train": 5}, seed=2)
        self.assertEqual(self.lines("train.en"), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["train.de", "train.en"])
        with mock.patch("os.replace", side_effect=OSError), self.assertRaises(OSError):
            corpus.make_corpus(self.folder, {"train": 5}, seed=2, overwrite=True)
        self.assertEqual(os.listdir(self.folder), ["train.de"], "the last file, which stands for all, never beside others' lines")
        corpus.make_corpus(self.folder, {"train": 5}, overwrite=True)
        os.makedirs(os.path.join(self.folder, ".hadal.partial", "mine"))
        with self.assertRaisesRegex(Refusal, ".hadal.partial already exists"):
            corpus.make_corpus(self.folder, {"train": 5}, seed=2, overwrite=True)
        os.removedirs(os.path.join(self.folder, ".hadal.partial", "mine"))
        corpus.make_corpus(self.folder, {"train": 5}, seed=2, overwrite=True)
        self.assertNotEqual(self.lines("train.en"), before)


if __name__ == "__main__":
    unittest.main()
