"""`hadal make-corpus`: German number words and their English translations, for a first run without other data.

    hadal make-corpus --out DIR [--pairs N] [--valid N] [--test N] [--seed S]

Writes train.de, train.en, valid.de, … into DIR, ready for `hadal prepare`: "vierhundertsieben" is line n of one file,
"four hundred and seven" line n of the other. A number has 1 to 6 digits. Its hash alone assigns it to valid, test or
train, so held-out numbers never occur in training, for any seed and sizes; the texts are a function of the seed.
"""

import argparse
import hashlib
import os
import random
from typing import Iterator

from pyhadal.files import Staged, check_outputs, locked
from pyhadal.options import number

LANGUAGES = ("de", "en")
MAX_HELD_OUT = 10_000  # of about 31,000 numbers in valid, and as many in test

GERMAN = ("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
          "siebzehn achtzehn neunzehn").split()
GERMAN_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
ENGLISH = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen").split()
ENGLISH_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def german(number: int, one: str = "eins") -> str:
    """Returns a number below a million as a German word; `one` is how a final 1 is written ("ein" before a noun)."""
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        return german(thousands, "ein") + "tausend" + (german(rest, one) if rest else "")
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return german(hundreds, "ein") + "hundert" + (german(rest, one) if rest else "")
    if number >= 20:
        tens, ones = divmod(number, 10)
        return (german(ones, "ein") + "und" if ones else "") + GERMAN_TENS[tens]
    return one if number == 1 else GERMAN[number]


def english(number: int) -> str:
    """Returns a number below a million in English words."""
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        joint = " " if rest >= 100 else " and "
        return english(thousands) + " thousand" + (joint + english(rest) if rest else "")
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return english(hundreds) + " hundred" + (" and " + english(rest) if rest else "")
    if number >= 20:
        tens, ones = divmod(number, 10)
        return ENGLISH_TENS[tens] + ("-" + ENGLISH[ones] if ones else "")
    return ENGLISH[number]


def split_of(number: int) -> str:
    """Returns "valid" for 1 number of 32, "test" for another, and "train" for the rest."""
    place = hashlib.sha256(str(number).encode()).digest()[0] % 32
    return {0: "valid", 1: "test"}.get(place, "train")


def draw(split: str, count: int, seed: int) -> Iterator[int]:
    """Yields `count` numbers of a split, more of 6 digits than of 1; those of valid and test are distinct."""
    generator, seen = random.Random(f"{split} {seed}"), set()
    while count > 0:
        digits = max(generator.randint(1, 6), generator.randint(1, 6))
        number = generator.randrange(10 ** digits)
        if split_of(number) != split or number in seen:
            continue
        if split != "train":
            seen.add(number)
        count -= 1
        yield number


def make_corpus(folder: str, sizes: dict[str, int], seed: int = 1, overwrite: bool = False) -> None:
    """Writes the files of each split whose size is not 0.

    Errors: Refusal for a file that is there without `overwrite`; OSError of writing. Nothing is half-written.
    """
    wanted = {split: size for split, size in sizes.items() if size > 0}
    paths = {split: [os.path.join(folder, f"{split}.{language}") for language in LANGUAGES] for split in wanted}
    with locked(folder), Staged(os.path.join(folder, ".hadal")) as staged:
        check_outputs([path for pair in paths.values() for path in pair], own=overwrite,
                      remedy="choose another --out, or replace it with --overwrite")
        for split, size in wanted.items():
            files = [staged.open(path) for path in paths[split]]
            for number in draw(split, size, seed):
                for file, text in zip(files, (german(number), english(number))):
                    file.write(text + "\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", required=True, metavar="DIR", help="Output folder")
    parser.add_argument("--pairs", type=number(int, 1, 10**9), default=20_000, help="Training pairs (default: %(default)s)")
    for split in ("valid", "test"):
        parser.add_argument(f"--{split}", type=number(int, 0, MAX_HELD_OUT), default=1_000,
                            help=f"Pairs of {split}, never in training (default: %(default)s)")
    parser.add_argument("--seed", type=number(int, 0, 2**64 - 1), default=1, help="Seed of the corpus (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="Replace existing files")


def run(arguments: argparse.Namespace) -> None:
    sizes = {"train": arguments.pairs, "valid": arguments.valid, "test": arguments.test}
    make_corpus(arguments.out, sizes, arguments.seed, arguments.overwrite)
    print(f"wrote {arguments.pairs:,} training, {arguments.valid:,} validation and {arguments.test:,} test pairs (seed "
          f"{arguments.seed}) to {arguments.out}")
