#!/usr/bin/env python3
"""Divides one file with both sides of a parallel text into training, validation and test text.

    hold_out.py corpus.tmx --direction de-en --valid 1000 --test 1000 --out text

The file is TMX, JSON Lines ({"de": "…", "en": "…"}, also inside "translation") or two columns with a tab. Writes
text/{train,valid,test}.{de,en}, a pair a line, and replaces no file. Pairs with one source stay together: nothing that
is held out occurs in training text. Valid and test have each source once, drawn by a checksum of it. Empty sides are
left out.
"""
import argparse
import json
import os
import sys
import xml.etree.ElementTree as xml
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/python"))
from pyhadal.options import number  # noqa: E402

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
CODES = {"bpt", "ept", "it", "ph", "ut", "sub"}  # TMX's inline codes: no text


def text_of(element):
    """The text of a segment, without inline codes."""
    parts = [element.text or ""]
    for child in element:
        parts += ["" if child.tag in CODES else text_of(child), child.tail or ""]
    return "".join(parts)


def tmx_pairs(path, languages):
    for _, unit in xml.iterparse(path):
        if unit.tag != "tu":
            continue
        texts = {}
        for variant in unit.iter("tuv"):
            name = (variant.get(LANGUAGE) or variant.get("lang") or "").lower()
            texts.setdefault(name, variant.find("seg"))
            texts.setdefault(name.split("-")[0], variant.find("seg"))
        yield tuple("" if texts.get(one) is None else text_of(texts[one]) for one in languages)
        unit.clear()


def line_pairs(path, languages):
    with open(path, encoding="utf-8-sig", newline="\n") as lines:
        for count, line in enumerate(lines, 1):
            if line.lstrip().startswith("{"):
                pair = json.loads(line)
                pair = pair.get("translation", pair)
                yield tuple(str(pair.get(one) or "") for one in languages)
            elif "\t" in line:
                yield tuple(line.split("\t")[:2])
            else:
                sys.exit(f"hold_out: {path}:{count}: neither JSON nor two columns with a tab")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--direction", required=True, metavar="SOURCE-TARGET")
    parser.add_argument("--valid", type=number(int, 0, 10**6), default=1000, help="pairs (default: 1000)")
    parser.add_argument("--test", type=number(int, 0, 10**6), default=1000, help="pairs (default: 1000)")
    parser.add_argument("--out", required=True, metavar="DIR")
    arguments = parser.parse_args()
    languages = arguments.direction.lower().split("-")
    if len(languages) != 2:
        parser.error(f"--direction {arguments.direction}: two languages are needed, as de-en")
    try:
        with open(arguments.corpus, "rb") as file:
            is_xml = b"<tmx" in file.read(4096).replace(b"\0", b"")
        found = (tmx_pairs if is_xml else line_pairs)(arguments.corpus, languages)
        pairs = [pair for pair in (tuple(" ".join(side.split()) for side in pair) for pair in found) if all(pair)]
        sources = sorted({pair[0] for pair in pairs}, key=lambda source: (zlib.crc32(source.encode()), source))
        held_out = arguments.valid + arguments.test
        if len(sources) <= held_out:
            sys.exit(f"hold_out: {arguments.corpus} has {len(sources):,} sources with a translation; --valid and --test take {held_out:,}")
        split_of = dict.fromkeys(sources[:held_out], "valid") | dict.fromkeys(sources[:arguments.test], "test")
        splits = {"train": [pair for pair in pairs if pair[0] not in split_of], "valid": [], "test": []}
        for pair in pairs:
            if split_of.get(pair[0]):
                splits[split_of.pop(pair[0])].append(pair)
        os.makedirs(arguments.out, exist_ok=True)
        for split, kept in splits.items():
            for side, language in enumerate(languages):
                with open(os.path.join(arguments.out, f"{split}.{language}"), "x", encoding="utf-8") as file:
                    file.writelines(f"{pair[side]}\n" for pair in kept)
            print(f"{split}: {len(kept):,} pairs")
    except (OSError, ValueError, xml.ParseError) as error:
        sys.exit(f"hold_out: {error}")


if __name__ == "__main__":
    main()
