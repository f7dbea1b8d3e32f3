"""Text → a vocabulary and a corpus, by `hadal prepare`."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Container, Iterable, Iterator, Union

from pyhadal import program
from pyhadal.group import plain
from pyhadal.model import flags
from pyhadal.refusal import Refusal

Path = Union[str, "os.PathLike[str]"]


class Corpus:
    """A folder that `hadal prepare` wrote: a vocabulary, and the prefixes of the corpora `train`, `validation`, `test` (None: there is
    no such text). `samples`: training pairs, or texts. `vocabulary_size`: ids of the target. `report`: cleaning.json."""

    def __init__(self, path: Path):
        """Raises Refusal if the folder has no training corpus."""
        self.path = os.path.normpath(os.fspath(path))
        self.train = self._prefix("train")
        self.validation, self.test = self._prefix("valid"), self._prefix("test")
        if self.train is None:
            raise Refusal(f"{self.path}: has no train.json; is it a folder of `hadal prepare`?")
        with open(self.train + ".json", encoding="utf-8") as file:
            facts = json.load(file)
        self.samples, self.vocabulary_size = int(facts["samples"]), int(facts["target_vocabulary"]["size"])

    def _prefix(self, split: str) -> "str | None":
        prefix = os.path.join(self.path, split)
        return prefix if os.path.isfile(prefix + ".json") else None

    @property
    def report(self) -> "dict[str, Any]":
        with open(os.path.join(self.path, "cleaning.json"), encoding="utf-8") as file:
            return dict(json.load(file))

    def __repr__(self) -> str:
        return f"Corpus({self.path!r}: {self.samples:,} samples, {self.vocabulary_size:,} ids)"


def prepare(train: Any, valid: Any = None, test: Any = None, *, out: Path, direction: str = "", **options: Any) -> Corpus:
    """Makes a vocabulary and a corpus in the folder `out`. Texts (`train`, and `valid` and `test` that are held out) are one of:

    - pairs: an iterable of (source, target); or a DataFrame of pandas or polars, a Dataset of datasets (also streamed) or an iterable of
      dict with the columns or, in a column `translation`, the keys `source` and `target`, or those that `direction` names: "de-en"
    - files: (SOURCE, TARGET), with line n of one the translation of line n of the other; or with `direction` one file of both
    - texts of a language model: an iterable of str; a table as above with the column `text`; with `monolingual=True` a file

    A str is a path. `options`: of `hadal prepare`, with _ for -, as `vocab_size=2000, drop_duplicates=True, overwrite=True`.
    Raises Refusal, in the program's words: what is not text, as a missing value (pandas.read_csv makes one of the word "None" unless
    keep_default_na=False), options that do not go together, a folder that has a corpus.
    """
    with tempfile.TemporaryDirectory() as folder:
        words: "list[str]" = []
        for split, text in (("train", train), ("valid", valid), ("test", test)):
            if text is None:
                continue
            files, kind = _files(text, direction, os.path.join(folder, f"{split}.jsonl"))
            words += [f"--{split}", *files]
            if kind == "pairs":
                options["direction"] = direction or "source-target"
            elif kind == "texts":
                options["monolingual"] = True
            elif direction:
                options["direction"] = direction
        program.run(["prepare", *words, "--out", os.fspath(out), *flags(options)])
    return Corpus(out)


def _files(text: Any, direction: str, path: str) -> "tuple[list[str], str]":
    """The files of a text, and what they hold: "files" that were there; "pairs" or "texts" that are now in `path`, JSON Lines."""
    if isinstance(text, (str, os.PathLike)):
        return [os.fspath(text)], "files"
    if isinstance(text, tuple) and len(text) == 2 and all(isinstance(each, (str, os.PathLike)) for each in text):
        return [os.fspath(each) for each in text], "files"
    kind, names = "", (direction or "source-target").split("-")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        for number, row in enumerate(_rows(text, direction)):
            this = "texts" if isinstance(row, str) else "pairs"
            if number == 0 and isinstance(row, str) and ("." in row or "/" in row) and os.path.isfile(row):
                raise Refusal(f"{row} is a file, and a list holds texts; give files as (SOURCE, TARGET), or one alone with direction or monolingual")
            if kind not in ("", this):
                raise Refusal(f"row {number} is of {this}, those before are of {kind}; give pairs or texts")
            kind = this
            file.write(json.dumps({"text": row} if isinstance(row, str) else dict(zip(names, row)), ensure_ascii=False) + "\n")
    if not kind:
        raise Refusal("the text has no rows")
    return [path], kind


def _rows(text: Any, direction: str) -> "Iterator[str | list[str]]":
    """[source, target], or a text, of each row."""
    rows: "Iterable[Any]" = text
    named: Any = getattr(text, "column_names", None) or getattr(text, "columns", text if isinstance(text, dict) else [])
    columns = [str(name) for name in named] if hasattr(text, "__len__") else []  # a stream is read once, by rows
    if columns:
        wanted = _columns(columns, direction)
        if any(columns.count(name) != 1 for name in wanted):
            raise Refusal(f"a table needs the columns {' and '.join(wanted)}{'' if direction else ' or text'}, each once; there are "
                          f"{', '.join(columns)}: name two in direction, as \"de-en\"")
        table = [text[next(each for each in named if str(each) == name)] for name in wanted]  # a header of pandas may be numbers
        lengths = [len(column) for column in table if hasattr(column, "__len__")]
        if len(set(lengths)) > 1:
            raise Refusal(f"the columns {' and '.join(wanted)} have {' and '.join(map(str, lengths))} rows; a table has as many of each")
        rows = (dict(zip(wanted, values)) for values in zip(*table))
    for number, given in enumerate(rows):
        row: Any = plain(given)
        while isinstance(row, dict):
            found = [plain(row.get(name)) for name in _columns(row, direction)]
            row = found if len(found) > 1 else found[0] if isinstance(found[0], (str, dict)) else None
        pair = isinstance(row, list) and len(row) == 2
        if not all(isinstance(side, str) for side in (row if pair else [row])):
            raise Refusal(f"row {number} is not a source and a target, and no text: {str(given)[:80]}; leave out rows with missing values, "
                          "make other values str, and name other keys than source and target in direction, as \"de-en\"")
        yield row


def _columns(columns: "Container[str]", direction: str) -> "list[str]":
    """Those of a table's columns, or of a row's keys, that hold the text. Without them: those that `direction` names."""
    names = (direction or "source-target").split("-")
    kinds = [names, ["translation"], ["text"]][:2 if direction else 3]  # with a direction texts are pairs
    return next((kind for kind in kinds if all(name in columns for name in kind)), names)
