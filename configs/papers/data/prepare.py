#!/usr/bin/env python3
"""The publishers' files of a paper's corpus -> text with the paper's splits -> a corpus of `hadal prepare`.

    prepare.py iwslt14_de_en --from FOLDER          FOLDER has the archives, or what is in them
    prepare.py wmt17_en_de   --from FOLDER
    prepare.py opus100       --from FOLDER
    prepare.py headlines     --from FOLDER          train.tsv valid.tsv test.tsv: text, a tab, headline

Line counts are checked against the published ones. Text goes to OUT/text, the corpus to OUT, by default the folder
that the paper's config names. Options after `--` go to `hadal prepare`. README.md beside this file says where the
result differs from the paper's.
"""

import argparse
import contextlib
import dataclasses
import gzip
import html
import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Part:
    """Two files, line by line translations, found by name in the folder or below it."""

    source: str
    target: str  # "": the source file has both
    form: str = "lines"  # lines; talk: with lines about the talk; segments: <seg id="…">text</seg>; columns: of a TSV


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
    published: tuple = ()  # pairs of all parts of train, of test
    every: int = 0  # each so many pairs of train, one goes to valid instead
    split_first: bool = False  # before pairs are dropped by length, not after
    ratio: float = 0  # of the lengths of the sides, in words and marks, at most; 0: nothing is dropped
    longest: int = 0  # in words and marks
    lower: bool = False
    kept: tuple = ()  # pairs of train and valid that fairseq's script keeps
    method: str = "deepnorm"


def iwslt(name):
    return Part(f"IWSLT14.{name}.de-en.de.xml", f"IWSLT14.{name}.de-en.en.xml", "segments")


def table(name):
    return Part(f"{name}.tsv", "", "columns")


CORPORA = {
    # fairseq, examples/translation/prepare-iwslt14.sh
    "iwslt14_de_en": Corpus(
        sides=("de", "en"),
        config="configs/papers/paper/iwslt14_de_en.textproto",
        out="data/iwslt14-de-en",
        options={"--vocab-size": 10000, "--max-tokens": 1023},
        archives=("http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",),
        train=(Part("train.tags.de-en.de", "train.tags.de-en.en", "talk"),),
        test=tuple(map(iwslt, ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"))),
        published=(174443, 6750),
        every=23, ratio=1.5, longest=175, lower=True, kept=(160239, 7283)),
    # fairseq, examples/translation/prepare-wmt14en2de.sh
    "wmt17_en_de": Corpus(
        sides=("en", "de"),
        config="configs/papers/paper/wmt17_en_de.textproto",
        out="data/wmt17-en-de",
        options={"--vocab-size": 32000, "--max-tokens": 250},
        archives=("http://statmt.org/wmt13/training-parallel-europarl-v7.tgz",
                  "http://statmt.org/wmt13/training-parallel-commoncrawl.tgz",
                  "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
                  "http://statmt.org/wmt14/test-full.tgz"),
        train=(Part("europarl-v7.de-en.en", "europarl-v7.de-en.de"),
               Part("commoncrawl.de-en.en", "commoncrawl.de-en.de"),
               Part("news-commentary-v12.de-en.en", "news-commentary-v12.de-en.de")),
        test=(Part("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm", "segments"),),
        published=(4590101, 3003),
        every=100, split_first=True, ratio=1.5, longest=250),
    # Zhang et al. 2020 (arXiv 2004.11867); `hadal prepare --opus` reads the folder as it is.
    "opus100": Corpus(
        sides=(),
        config="configs/papers/paper/opus100.textproto",
        out="data/opus-100",
        # A tag and </s> stand beside the tokens: 1,024 in all.
        options={"--tags": "deepnet", "--vocab-size": 64000, "--vocab-temperature": 5, "--max-tokens": 1022},
        archives=("https://object.pouta.csc.fi/OPUS-100/v1.0/opus-100-corpus-v1.0.tar.gz",)),
    "headlines": Corpus(
        sides=("text", "headline"),
        config="configs/papers/paper/headlines.textproto",
        out="data/headlines",
        options={"--vocab-size": 32000, "--max-tokens": 511},
        train=(table("train"),), valid=(table("valid"),), test=(table("test"),),
        method="b2t"),
}
OPUS_TRAIN_PAIRS = {1: 99, 10_000: 95, 100_000: 73, 1_000_000: 44}  # at least so many pairs: so many language pairs


def refuse(message):
    sys.exit(f"prepare.py: {message}")


def found(folder, name):
    return sorted(path for wanted in (name, name + ".gz") for path in folder.rglob(wanted))


def find(folder, name):
    """The file of this name, or name.gz."""
    paths = found(folder, name)
    if not paths:
        refuse(f"{folder} has no file {name}, nor has a folder below it; unpack the publisher's archive there "
               "(README.md beside this script names it)")
    if len(paths) > 1:
        refuse(f"{folder} has {paths[0]} and {paths[1]}; give a folder with one of them")
    return paths[0]


def lines(path):
    """Lines without their ends. Only a line feed ends one, as in `wc -l`; bytes that are not UTF-8 pass through."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        for line in file:
            yield line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def talk(path):
    """Sentences, titles and descriptions of an IWSLT training file, without tags."""
    for line in lines(path):
        if not re.search("<(url|talkid|keywords)>", line):
            yield re.sub("</?(title|description)>", "", line).strip()


def segments(path):
    for number, line in enumerate(lines(path), 1):
        if "<seg" in line:
            segment = re.search(r"<seg\b[^>]*>(.*)</seg>", line)
            if not segment:
                refuse(f"{path}:{number}: a <seg> without </seg> on its line; the file is not the publisher's")
            yield " ".join(html.unescape(segment[1]).replace("’", "'").split())


def columns(path):
    for number, line in enumerate(lines(path), 1):
        pair = line.split("\t")
        if len(pair) != 2 or not all(side.strip() for side in pair):
            refuse(f"{path}:{number}: has {len(pair)} columns, or an empty one; a line must be text, one tab, headline")
        yield pair


READERS = {"lines": lines, "talk": talk, "segments": segments}


def different(source, target, counts):
    refuse(f"{source} has {counts[0]:,} lines of text, {target} has {counts[1]:,}; line n of one must translate line n "
           "of the other: take both from one archive")


def pairs_of(part, folder):
    source = find(folder, part.source)
    if part.form == "columns":
        yield from columns(source)
        return
    target = find(folder, part.target)
    sides = [READERS[part.form](path) for path in (source, target)]
    count, end = 0, object()
    while True:
        pair = [next(side, end) for side in sides]
        if end in pair:
            break
        count += 1
        yield pair
    counts = [count + (first is not end) + sum(1 for _ in side) for first, side in zip(pair, sides)]
    if counts[0] != counts[1]:
        different(source, target, counts)


def checked_pairs(parts, folder, published):
    """The pairs of all parts; at their end, refuses another number than the published one, unless that is None."""
    counts = {part.source: 0 for part in parts}
    for part in parts:
        for pair in pairs_of(part, folder):
            counts[part.source] += 1
            yield pair
    total = sum(counts.values())
    if total != (published or total):
        listed = ", ".join(f"{count:,} in {name}" for name, count in counts.items())
        refuse(f"{folder}: {total:,} pairs ({listed}), {published:,} are published; a file is cut, or of another "
               "release. --any-size accepts it")


def words(text):
    """Words and marks, about as the Moses tokenizer counts them."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def short_enough(corpus, pair):
    if not corpus.ratio:
        return True
    shorter, longer = sorted(words(side) for side in pair)
    return 1 <= shorter and longer <= min(corpus.longest, corpus.ratio * shorter)


class Split:
    """FOLDER/NAME.SIDE, written, and the number of pairs."""

    def __init__(self, stack, folder, name, sides):
        self.name, self.count = name, 0
        self.paths = [folder / f"{name}.{side}" for side in sides]
        self.files = [stack.enter_context(open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n"))
                      for path in self.paths]

    def add(self, pair):
        self.count += 1
        for file, side in zip(self.files, pair):
            file.write(side + "\n")


def write_text(corpus, folder, text, any_size):
    """Writes the splits train, valid and test to the folder `text`; returns them."""
    text.mkdir(parents=True, exist_ok=True)
    form = str.lower if corpus.lower else str
    number = dropped = 0
    train_pairs, test_pairs = corpus.published if corpus.published and not any_size else (None, None)
    with contextlib.ExitStack() as stack:
        train, valid, test = splits = [Split(stack, text, name, corpus.sides) for name in ("train", "valid", "test")]
        for pair in checked_pairs(corpus.train, folder, train_pairs):
            fits = short_enough(corpus, pair)
            number += corpus.split_first or fits
            dropped += not fits
            if fits:
                held_out = corpus.every and number % corpus.every == 0
                (valid if held_out else train).add([form(side) for side in pair])
        for split, parts, published in ((valid, corpus.valid, None), (test, corpus.test, test_pairs)):
            for pair in checked_pairs(parts, folder, published):
                split.add([form(side) for side in pair])
    if corpus.ratio:
        print(f"dropped {dropped:,} pairs: a side is empty, has over {corpus.longest} words and marks, or over "
              f"{corpus.ratio:g} times as many as the other")
    for split, kept in itertools.zip_longest(splits, corpus.kept):
        print(f"{split.name}: {split.count:,} pairs" + (f" (fairseq's script: {kept:,})" if kept else ""))
    return splits


def check_opus(folder, any_size):
    """Checks OPUS-100's published counts. Returns the folder for `hadal prepare --opus`."""
    trained = []
    for source in sorted(folder.rglob("opus.*-*.*")):
        name = re.fullmatch(r"opus\.(([a-z]+)-([a-z]+))-(train|dev|test)\.(\2|\3)", source.name)
        if not name or "zero-shot" in source.parts:
            continue
        target = source.with_suffix("." + name[3 if name[5] == name[2] else 2])
        if not target.exists():
            refuse(f"{source} has no translation beside it, {target.name}; unpack the archive again")
        if name[5] != name[2]:
            continue
        counts = [sum(1 for _ in lines(path)) for path in (source, target)]
        if counts[0] != counts[1]:
            different(source, target, counts)
        if name[4] == "train":
            trained.append(counts[0])
    if not trained:
        refuse(f"{folder} has no file opus.XX-YY-train.XX, nor has a folder below it; give the folder opus-100-corpus")
    for least, published in OPUS_TRAIN_PAIRS.items():
        languages = sum(count >= least for count in trained)
        if languages != published and not any_size:
            refuse(f"{folder}: {languages} language pairs have {least:,} pairs or more for training, {published} are "
                   "published; files are missing, or cut. --any-size accepts it")
    print(f"train: {len(trained)} language pairs, {sum(trained):,} pairs")
    return next((path for path in sorted(folder.rglob("supervised")) if path.is_dir()), folder)


def fetch(address, archive):
    print(f"downloading {address} (untried: this script was written where there is no network)", flush=True)
    partial = archive.with_name(archive.name + ".partial")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, open(partial, "wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        refuse(f"{address}: {error}; put the archive into {archive.parent} by other means, and leave --download out")
    partial.rename(archive)


def unpack(corpus, folder, download):
    """Unpacks the publisher's archives in the folder, unless what is needed lies there."""
    names = [name for part in (*corpus.train, *corpus.test) for name in (part.source, part.target) if name]
    if all(found(folder, name) for name in names or ["opus.*-train.*"]):
        return
    for address in corpus.archives:
        archive = folder / address.rsplit("/", 1)[1]
        if download and not archive.exists():
            fetch(address, archive)
        unpacked = archive.with_name(archive.name + ".unpacked")
        if unpacked.exists() or not archive.exists():
            continue
        try:
            with tempfile.TemporaryDirectory(dir=folder) as partial, tarfile.open(archive) as tar:
                inside = Path(partial, "archive")
                tar.extractall(inside, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
                inside.rename(unpacked)
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
            refuse(f"{archive}: cannot be unpacked ({reason}); it is cut, or not the publisher's: fetch it again")


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, passed_on = sys.argv[1:at], sys.argv[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--from", dest="folder", type=Path, required=True, help="folder of the publisher's files")
    parser.add_argument("--out", type=Path, help="output folder (default: what the paper's config names)")
    parser.add_argument("--hadal", default="hadal", help="the program (default: hadal)")
    parser.add_argument("--any-size", action="store_true", help="accept other line counts than the published ones")
    parser.add_argument("--download", action="store_true", help="fetch missing archives from the publisher; untried")
    options = parser.parse_args(own)
    corpus = CORPORA[options.corpus]
    folder, out = options.folder, options.out or Path(corpus.out)
    if options.download:
        if not corpus.archives:
            refuse(f"{options.corpus} has no publisher's address; leave --download out and give your own files")
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        refuse(f"{folder} is not a folder; --from names the one with the publisher's files")
    unpack(corpus, folder, options.download)
    if corpus.sides:
        splits = write_text(corpus, folder, out / "text", options.any_size)
        texts = [str(word) for split in splits for word in (f"--{split.name}", *split.paths)]
    else:
        texts = ["--opus", str(check_opus(folder, options.any_size))]
    given = {word.split("=")[0] for word in passed_on}
    own_vocabulary = given & {"--vocab", "--source-vocab", "--target-vocab"}
    settings = [str(word) for name, value in corpus.options.items() for word in (name, value)
                if name not in given and not (own_vocabulary and name.startswith("--vocab-"))]
    command = [options.hadal, "prepare", *texts, "--out", str(out), *settings, *passed_on]
    print("$ " + shlex.join(command), flush=True)
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        refuse(f"{options.hadal}: {error.strerror}; --hadal names the program")
    if code:
        sys.exit(code)
    moved = "" if out == Path(corpus.out) else f" --set data.train={out}/train --set data.validation={out}/valid"
    print(f"next: hadal train {corpus.config} configs/depth/18.textproto configs/method/{corpus.method}.textproto"
          f"{moved} --run-dir runs/{options.corpus}")


if __name__ == "__main__":
    main()
