#!/usr/bin/env python3
"""The publishers' files of a paper's corpus -> text with the paper's splits -> a corpus of `hadal prepare`.

    prepare.py iwslt14_de_en --from FOLDER          FOLDER has the archives, or what is in them
    prepare.py wmt17_en_de   --from FOLDER
    prepare.py opus100       --from FOLDER
    prepare.py headlines     --from FOLDER          train.tsv valid.tsv test.tsv: text, a tab, headline

Line counts are checked against the published ones. Text goes to OUT/text, the corpus to OUT, by default the folder that the paper's
config names. Options after `--` go to `hadal prepare`. README.md beside this file says where the result differs from the paper's.
"""

import argparse
import contextlib
import dataclasses
import gzip
import html
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Part:
    """Two files, line by line translations, found by name below the folder. {}: the language; source: the part before, target: behind."""
    source: str
    target: str
    pairs: Optional[int]  # published; None: not published
    segments: bool = False  # the lines between <seg id="…"> and </seg> are the text


@dataclasses.dataclass(frozen=True)
class Corpus:
    sides: tuple  # names of source and target in OUT/text
    config: str  # of configs/papers; a depth and a method are laid over it
    out: str  # what the config names, without /train
    options: dict  # of `hadal prepare`
    archives: tuple = ()  # the publishers' addresses
    train: tuple = ()
    valid: tuple = ()
    test: tuple = ()
    every: int = 0  # each so many pairs of train, one goes to valid instead
    split_first: bool = False  # before pairs are dropped by length, not after
    ratio: float = 0  # of the lengths of the sides, in words and marks, at most; 0: nothing is dropped
    longest: int = 0  # in words and marks
    lower: bool = False
    kept: tuple = ()  # pairs of train and valid that the paper's preprocessing keeps
    method: str = "deepnorm"


def iwslt(name, pairs):
    return Part(f"IWSLT14.{name}.de-en.de.xml", f"IWSLT14.{name}.de-en.en.xml", pairs, segments=True)


CORPORA = {
    # fairseq, examples/translation/prepare-iwslt14.sh
    "iwslt14_de_en": Corpus(
        sides=("de", "en"), config="configs/papers/paper/iwslt14_de_en.textproto", out="data/iwslt14-de-en",
        options={"--vocab-size": 10000, "--max-tokens": 1023},
        archives=("http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",),
        train=(Part("train.tags.de-en.de", "train.tags.de-en.en", 174443),),
        test=(iwslt("TED.dev2010", 887), iwslt("TEDX.dev2012", 1165), iwslt("TED.tst2010", 1565), iwslt("TED.tst2011", 1433),
              iwslt("TED.tst2012", 1700)),
        every=23, ratio=1.5, longest=175, lower=True, kept=(160239, 7283)),
    # fairseq, examples/translation/prepare-wmt14en2de.sh
    "wmt17_en_de": Corpus(
        sides=("en", "de"), config="configs/papers/paper/wmt17_en_de.textproto", out="data/wmt17-en-de",
        options={"--vocab-size": 32000, "--max-tokens": 250},
        archives=("http://statmt.org/wmt13/training-parallel-europarl-v7.tgz", "http://statmt.org/wmt13/training-parallel-commoncrawl.tgz",
                  "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz", "http://statmt.org/wmt14/test-full.tgz"),
        train=(Part("europarl-v7.de-en.en", "europarl-v7.de-en.de", 1920209), Part("commoncrawl.de-en.en", "commoncrawl.de-en.de", 2399123),
               Part("news-commentary-v12.de-en.en", "news-commentary-v12.de-en.de", 270769)),
        test=(Part("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm", 3003, segments=True),),
        every=100, split_first=True, ratio=1.5, longest=250),
    # Zhang et al. 2020 (arXiv 2004.11867); `hadal prepare --opus` reads the folder as it is.
    "opus100": Corpus(
        sides=(), config="configs/papers/paper/opus100.textproto", out="data/opus-100",
        options={"--tags": "deepnet", "--vocab-size": 64000, "--vocab-temperature": 5, "--max-tokens": 1023},
        archives=("https://object.pouta.csc.fi/OPUS-100/v1.0/opus-100-corpus-v1.0.tar.gz",)),
    "headlines": Corpus(
        sides=("text", "headline"), config="configs/papers/paper/headlines.textproto", out="data/headlines",
        options={"--vocab-size": 32000, "--max-tokens": 511},
        train=(Part("train.tsv", "", None),), valid=(Part("valid.tsv", "", None),), test=(Part("test.tsv", "", None),),
        method="b2t"),
}
OPUS_TRAIN_PAIRS = {1: 99, 10_000: 95, 100_000: 73, 1_000_000: 44}  # at least so many pairs: so many language pairs
OPUS_HELD_OUT = 2000  # pairs of a dev or test file, at most


def refuse(message):
    sys.exit(f"prepare.py: {message}")


def find(folder, name):
    """The file of this name, or name.gz, anywhere below the folder."""
    found = sorted(path for wanted in (name, name + ".gz") for path in folder.rglob(wanted))
    if not found:
        refuse(f"{folder} has no file {name}, in no folder below it; unpack the publisher's archive there (README.md lists them), "
               "or --download it")
    if len(found) > 1:
        refuse(f"{folder} has {found[0]} and {found[1]}; give a folder with one of them")
    return found[0]


def lines(path):
    """The lines as text, without their ends. Only a line feed ends one, as in `wc -l`. Bytes that are no UTF-8 pass through."""
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        for line in file:
            yield line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def segments(path):
    """The text of each <seg id="…">…</seg>."""
    for number, line in enumerate(lines(path), 1):
        if "<seg" not in line:
            continue
        found = re.search(r"<seg\b[^>]*>(.*)</seg>", line)
        if not found:
            refuse(f"{path}:{number}: a <seg> that does not end on its line")
        yield html.unescape(found[1]).strip()


def talk(path):
    """The text of an IWSLT training file: sentences, titles and descriptions, without tags; other tagged lines are about the talk."""
    for line in lines(path):
        if not re.search("<(url|talkid|keywords)>", line):
            yield re.sub("</?(title|description)>", "", line).strip()


def columns(path):
    for number, line in enumerate(lines(path), 1):
        pair = line.split("\t")
        if len(pair) != 2 or not all(side.strip() for side in pair):
            refuse(f"{path}:{number}: {len(pair)} columns, or an empty one; a line is a text, one tab, and its headline")
        yield pair


def pairs_of(part, folder, any_size):
    """Each pair of the part; at its end the number of pairs is checked."""
    source = find(folder, part.source)
    count = 0
    if not part.target:
        for count, pair in enumerate(columns(source), 1):
            yield pair
        return
    target = find(folder, part.target)
    read = segments if part.segments else talk if part.source.startswith("train.tags.") else lines
    sides = [read(source), read(target)]
    nothing = object()
    while True:
        pair = [next(side, nothing) for side in sides]
        if nothing in pair:
            break
        count += 1
        yield pair
    if pair != [nothing, nothing]:
        counts = [count + (first is not nothing) + sum(1 for _ in side) for first, side in zip(pair, sides)]
        refuse(f"{source} has {counts[0]:,} lines of text, {target} {counts[1]:,}; they must be line by line translations: take both "
               "from one archive")
    check(f"{source} and its translation", count, part.pairs, any_size)


def check(what, count, published, any_size):
    if published is None or count == published or any_size:
        return
    refuse(f"{what}: {count:,} pairs, {published:,} are published; the file is cut, or of another release. --any-size takes it")


def words(text):
    """Words and marks, about as the Moses tokenizer counts them."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def short_enough(corpus, pair):
    if not corpus.ratio:
        return True
    source, target = (words(side) for side in pair)
    return (1 <= source <= corpus.longest and 1 <= target <= corpus.longest and source <= corpus.ratio * target
            and target <= corpus.ratio * source)


class Split:
    """Writes OUT/text/SPLIT.SIDE and counts."""

    def __init__(self, stack, folder, name, sides):
        self.name, self.count = name, 0
        self.paths = [folder / f"{name}.{side}" for side in sides]
        self.files = [stack.enter_context(open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n")) for path in self.paths]

    def add(self, pair):
        self.count += 1
        for file, side in zip(self.files, pair):
            file.write(side + "\n")


def write_text(corpus, folder, text, any_size):
    """Returns the splits, in the order train, valid, test."""
    text.mkdir(parents=True, exist_ok=True)
    form = str.lower if corpus.lower else str
    with contextlib.ExitStack() as stack:
        train, valid, test = (Split(stack, text, name, corpus.sides) for name in ("train", "valid", "test"))
        number = dropped = 0
        for part in corpus.train:
            for pair in pairs_of(part, folder, any_size):
                fits = short_enough(corpus, pair)
                number += corpus.split_first or fits
                dropped += not fits
                if fits:
                    (valid if corpus.every and number % corpus.every == 0 else train).add([form(side) for side in pair])
        for split, parts in ((valid, corpus.valid), (test, corpus.test)):
            for part in parts:
                for pair in pairs_of(part, folder, any_size):
                    split.add([form(side.replace("’", "'") if part.segments else side) for side in pair])
    if corpus.ratio:
        print(f"dropped {dropped:,} pairs: a side empty, over {corpus.longest} words and marks, or {corpus.ratio:g} times as long as the other")
    for split, kept in zip((train, valid, test), corpus.kept + (None,) * 3):
        print(f"{split.name}: {split.count:,} pairs" + (f" (the paper's preprocessing keeps {kept:,})" if kept else ""))
    return train, valid, test


def check_opus(folder, any_size):
    """OPUS-100's published counts; `hadal prepare` checks the rest."""
    counts = {}
    for path in sorted(folder.rglob("opus.*-*.*")):
        found = re.fullmatch(r"opus\.([a-z]+)-([a-z]+)-(train|dev|test)\.(\1|\2)", path.name)
        if found and "zero-shot" not in path.parts:
            counts.setdefault((f"{found[1]}-{found[2]}", found[3]), {})[found[4]] = sum(1 for _ in lines(path)), path
    if not counts:
        refuse(f"{folder} has no file opus.XX-YY-train.XX, in no folder below it; give the folder opus-100-corpus")
    for (direction, split), sides in counts.items():
        missing = set(direction.split("-")) - set(sides)
        if missing:
            refuse(f"{next(iter(sides.values()))[1]} has no translation beside it, opus.{direction}-{split}.{missing.pop()}")
        (first, path), (second, other) = sides.values()
        if first != second:
            refuse(f"{path} has {first:,} lines of text, {other} {second:,}; they must be line by line translations: take both from one "
                   "archive")
        if split != "train" and first > OPUS_HELD_OUT and not any_size:
            refuse(f"{path}: {first:,} pairs, at most {OPUS_HELD_OUT:,} are published; --any-size takes it")
    trained = [next(iter(sides.values()))[0] for (_, split), sides in counts.items() if split == "train"]
    for least, published in OPUS_TRAIN_PAIRS.items():
        found = sum(count >= least for count in trained)
        if found != published and not any_size:
            refuse(f"{folder}: {found} language pairs have {least:,} or more pairs for training, {published} are published; files are missing "
                   "or cut. --any-size takes it")
    print(f"{len(trained)} language pairs, {sum(trained):,} pairs for training")


def unpack(corpus, folder, download):
    """Unpacks the publishers' archives that lie in the folder, each once; downloads what is not there if asked."""
    for address in corpus.archives:
        archive = folder / address.rsplit("/", 1)[1]
        unpacked = folder / (archive.name.split(".t")[0] + ".unpacked")
        if not archive.exists() and download:
            print(f"downloading {address} (this has not been tried: no network was at hand)", flush=True)
            partial = archive.with_name(archive.name + ".partial")
            try:
                with urllib.request.urlopen(address, timeout=60) as answer, open(partial, "wb") as file:
                    shutil.copyfileobj(answer, file)
            except OSError as error:
                refuse(f"{address}: {error}; fetch it by other means into {folder}, and run this again without --download")
            partial.rename(archive)
        if not archive.exists() or unpacked.exists():
            continue
        fresh = unpacked.with_name(unpacked.name + ".partial")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(fresh, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        except (OSError, EOFError, tarfile.TarError) as error:
            refuse(f"{archive}: {error}; it is cut or not the publisher's: fetch it again")
        fresh.rename(unpacked)


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, passed_on = sys.argv[1:at], sys.argv[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--from", dest="folder", type=Path, required=True, help="folder of the publisher's files")
    parser.add_argument("--out", type=Path, help="output folder (default: what the paper's config names)")
    parser.add_argument("--hadal", default="hadal", help="the program (default: hadal)")
    parser.add_argument("--any-size", action="store_true", help="accept counts that differ from the published ones")
    parser.add_argument("--download", action="store_true", help="fetch missing archives from the publisher's address; untried")
    options = parser.parse_args(own)
    corpus = CORPORA[options.corpus]
    folder, out = options.folder, options.out or Path(corpus.out)
    if options.download and not corpus.archives:
        refuse(f"{options.corpus} has no publisher's address; give your own files")
    if options.download:
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        refuse(f"{folder} is not a folder; --from names the one with the publisher's files")
    unpack(corpus, folder, options.download)
    if corpus.sides:
        splits = write_text(corpus, folder, out / "text", options.any_size)
        texts = [word for split in splits if split.count for word in (f"--{split.name}", *map(str, split.paths))]
    else:
        check_opus(folder, options.any_size)
        supervised = sorted(path for path in folder.rglob("supervised") if path.is_dir())
        texts = ["--opus", str(supervised[0] if supervised else folder)]
    settings = [str(word) for name, value in corpus.options.items() if name not in passed_on for word in (name, value)]
    command = [options.hadal, "prepare", *texts, "--out", str(out), *settings, *passed_on]
    print("$ " + " ".join(command), flush=True)
    try:
        code = subprocess.run(command).returncode
    except OSError as error:
        refuse(f"{options.hadal}: {error.strerror}; --hadal names the program")
    if code:
        sys.exit(code)
    moved = "" if str(out) == corpus.out else f" --set data.train={out}/train --set data.validation={out}/valid"
    print(f"next: hadal train {corpus.config} configs/depth/18.textproto configs/method/{corpus.method}.textproto{moved} "
          f"--run-dir runs/{options.corpus}")


if __name__ == "__main__":
    main()
