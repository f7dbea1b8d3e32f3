#!/usr/bin/env python3
"""Makes a small headline corpus of Debian's package descriptions: the first paragraph, and the one-line synopsis.

    curl -O https://deb.debian.org/debian/dists/bookworm/main/i18n/Translation-en.xz       # 6 MB
    debian_synopses.py Translation-en.xz --out DIR

Writes DIR/{train,valid,test}.tsv: paragraph, a tab, synopsis; for configs/papers/data/prepare.py headlines. Paragraphs
of fewer than 15 words are left out, and so is every second use of a paragraph or of a synopsis, which descriptions of
packages built of one source often share. A pair's split is a function of the paragraph's first five words, which
related packages also share. Licence: a description has that of its package's debian/ folder; all are free (DFSG).
"""
import argparse
import lzma
import os
import re
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/python"))
from pyhadal.files import Staged, check_outputs, locked  # noqa: E402
from pyhadal.refusal import Refusal  # noqa: E402


def descriptions(path):
    """Yields (synopsis, first paragraph) of each package."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for entry in lines.read().split("\n\n"):
            match = re.search(r"^Description-en: (.*)\n((?: .*\n?)*)", entry, re.MULTILINE)
            if match:
                paragraph = match[2].split("\n .\n")[0]
                yield " ".join(match[1].split()), " ".join(paragraph.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("translation", metavar="Translation-en.xz")
    parser.add_argument("--out", required=True, metavar="DIR")
    arguments = parser.parse_args()
    seen, pairs = set(), {"train": [], "valid": [], "test": []}
    try:
        entries = list(descriptions(arguments.translation))
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        sys.exit(f"debian_synopses: {arguments.translation}: {error or 'cannot be read'}; fetch it again")
    for synopsis, paragraph in entries:
        if len(paragraph.split()) < 15 or seen & {synopsis, paragraph}:
            continue
        seen |= {synopsis, paragraph}
        bucket = zlib.crc32(" ".join(paragraph.lower().split()[:5]).encode()) % 30
        pairs[{0: "test", 1: "valid"}.get(bucket, "train")].append(f"{paragraph}\t{synopsis}\n")
    paths = {split: os.path.join(arguments.out, f"{split}.tsv") for split in pairs}
    try:
        with locked(arguments.out), Staged(os.path.join(arguments.out, ".hadal")) as files:
            check_outputs(list(paths.values()), [arguments.translation])
            for split, lines in pairs.items():
                files.open(paths[split]).writelines(lines)
    except (Refusal, OSError) as error:
        sys.exit(f"debian_synopses: {error}")
    for split, lines in pairs.items():
        print(f"{split}: {len(lines):,} pairs")


if __name__ == "__main__":
    main()
