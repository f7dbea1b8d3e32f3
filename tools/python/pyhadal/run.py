"""Reads a run directory. The file formats are those of docs/metrics.md; nothing is written."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Iterator

from pyhadal import program
from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.table import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas


def read_events(run: str) -> Iterator[dict]:
    """Yields the events of RUN/metrics.jsonl (or of the file RUN itself) in order.

    Skips an unfinished last line: the run is writing, or was killed. Raises Refusal for a line inside that is not JSON, or
    if there is no such file.
    """
    path = os.path.join(run, "metrics.jsonl") if os.path.isdir(run) else run
    if not os.path.isfile(path):
        raise Refusal(f"{path}: no such file; is {run} a run directory?")
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
            except ValueError:
                if next(file, None) is None:
                    return
                raise Refusal(f"{path}:{number}: not a JSON object; the file is damaged", exit_code=3) from None
            if isinstance(event, dict):
                yield event


def _pandas():
    """pandas. Raises Refusal, with the command that installs it, where it is missing."""
    require("pandas")
    import pandas

    return pandas


def read_metrics(run: str, event: str = "step") -> "pandas.DataFrame":
    """The events of one kind in RUN/metrics.jsonl, a row each. null becomes NaN; doubles keep their bits."""
    rows = [row for row in read_events(run) if row.get("event") == event]
    return _pandas().DataFrame(rows).drop(columns="event", errors="ignore")


def parse_config(text: str) -> "dict[str, object]":
    """The fields of a textproto by their paths: {"model.encoder_layers": 6, …}. A repeated field becomes a list."""
    fields: dict = {}
    path: list = []
    # A comment, a string, a message's braces, or a word.
    tokens = re.findall(r'#[^\n]*|"(?:[^"\\]|\\.)*"|[{}]|[^\s{}":#;,]+:?', text)
    words = [token for token in tokens if not token.startswith("#")]
    for index, word in enumerate(words):
        if word == "{":
            path.append(words[index - 1].rstrip(":"))
        elif word == "}":
            path.pop()
        elif index > 0 and words[index - 1].endswith(":") and not word.endswith(":"):
            name = ".".join([*path, words[index - 1].rstrip(":")])
            value = _value(word)
            if name in fields:
                known = fields[name] if isinstance(fields[name], list) else [fields[name]]
                value = [*known, value]
            fields[name] = value
    return fields


def _value(word: str) -> object:
    if word.startswith('"'):
        return re.sub(r"\\(.)", r"\1", word[1:-1])
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word  # an enum's name


class Run:
    """A run directory. Each attribute is read when it is first used, and once: make another Run to see what came later."""

    def __init__(self, path: "str | os.PathLike"):
        """`path`: the directory, or its metrics.jsonl. Raises Refusal if there is no such file."""
        path = os.path.normpath(os.fspath(path))
        self.path = os.path.dirname(path) or "." if os.path.isfile(path) else path
        self.name = os.path.basename(os.path.abspath(self.path))
        self.metrics_path = path if os.path.isfile(path) else os.path.join(path, "metrics.jsonl")
        if not os.path.isfile(self.metrics_path):
            raise Refusal(f"{self.metrics_path}: no such file; is {self.path} a run directory?")

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    @functools.cached_property
    def _events(self) -> "dict[str, list[dict]]":
        kinds: dict = {}
        for event in read_events(self.metrics_path):
            kinds.setdefault(event.get("event"), []).append(event)
        return kinds

    def events(self, kind: str) -> "pandas.DataFrame":
        """The events of one kind, a row each, without the column `event`. Empty if there is none."""
        return _pandas().DataFrame(self._events.get(kind, [])).drop(columns="event", errors="ignore")

    @functools.cached_property
    def config(self) -> "dict[str, object]":
        """The resolved config: every field by its path, as `--set` names it. Raises Refusal if it cannot be read."""
        path = os.path.join(self.path, "config.resolved.textproto")
        try:
            with open(path, encoding="utf-8") as file:
                return parse_config(file.read())
        except OSError as error:
            raise Refusal(f"{path}: {error.strerror}") from None

    @functools.cached_property
    def metrics(self) -> "pandas.DataFrame":
        """A row a step: loss, nll, gradient_norm, step_seconds, … (docs/metrics.md has the units)."""
        return self.events("step")

    def points(self, metric: str) -> "list[tuple[float, float]]":
        """(step, value) of a number of event step, or of event validation with the prefix valid/. null becomes NaN. Needs no package.

        Raises Refusal, with the names that exist, if no line has it.
        """
        kind, key = ("validation", metric[len("valid/"):]) if metric.startswith("valid/") else ("step", metric)
        found = [(event["step"], float("nan") if event[key] is None else event[key]) for event in self._events.get(kind, [])
                 if _is_number(event.get("step")) and key in event and (event[key] is None or _is_number(event[key]))]
        if found:
            return found
        known = sorted({prefix + name for kind, prefix in (("step", ""), ("validation", "valid/")) for event in self._events.get(kind, [])
                        for name, value in event.items() if name != "step" and (value is None or _is_number(value))})
        if not known:
            raise Refusal(f"{self.metrics_path}: has no step yet")
        raise Refusal(f"{self.metrics_path}: no line has '{metric}'; available: {', '.join(known)}")

    def narrow(self, *columns: str) -> None:
        """Keeps these columns of `metrics` alone: so that many long runs fit into memory."""
        self.metrics = self.metrics[[column for column in columns if column in self.metrics]].copy()
        self._events["step"] = []

    @functools.cached_property
    def validations(self) -> "pandas.DataFrame":
        """A row a validation: step, nll, and bleu, chrf, wer, cer where sentences were translated."""
        return self.events("validation")

    @functools.cached_property
    def samples(self) -> "pandas.DataFrame":
        """Translations at validations: step, text."""
        return self.events("sample")

    @functools.cached_property
    def diagnoses(self) -> "pandas.DataFrame":
        """What hadal found wrong with the run: step, text."""
        return self.events("diagnosis")

    @functools.cached_property
    def warnings(self) -> "pandas.DataFrame":
        """Warnings: step, text."""
        return self.events("warning")

    @functools.cached_property
    def checkpoints(self) -> "pandas.DataFrame":
        """The checkpoints on disk by step: step, path, latest, best."""
        folder = os.path.join(self.path, "checkpoints")
        names = sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else [])
                       if re.fullmatch(r"step_\d{8,}", name))
        rows = [{"step": int(name[5:]), "path": os.path.join(folder, name)} for name in names]
        frame = _pandas().DataFrame(rows, columns=["step", "path"])
        for pointer in ("latest", "best"):
            frame[pointer] = [name == _pointed(os.path.join(folder, pointer)) for name in names]
        return frame

    @property
    def encoder_sublayers(self) -> int:
        """How many of the sublayers of a depth series are the encoder's: the first ones."""
        return self._of_last_start("encoder_sublayers")

    @property
    def frame_width(self) -> int:
        """Features of a frame of speech; 0: text."""
        return self._of_last_start("frame_width")

    def _of_last_start(self, field: str) -> int:
        starts = self._events.get("run", [])
        return int(starts[-1].get(field, 0)) if starts else 0

    def depth(self, series: str) -> "tuple[list[int], np.ndarray]":
        """A number of every sublayer at the recorded steps: (steps, float64 [records, sublayers]).

        NaN: the sublayer has no such tensor. Infinity: the tensor was not finite. `series`: docs/metrics.md, event depth.
        Empty if it was not recorded. Records of another number of sublayers than the first are left out.
        """
        import numpy as np

        recorded = [event for event in self._events.get("depth", []) if event.get(series)]
        recorded = [event for event in recorded if len(event[series]) == len(recorded[0][series])]
        values = [[_number(value) for value in event[series]] for event in recorded]
        return [event["step"] for event in recorded], np.array(values, float) if values else np.empty((0, 0))

    @functools.cached_property
    def _summarized(self) -> dict:
        return program.summarize([self.path])

    @property
    def summary(self) -> dict:
        """What `hadal summary --format json` says of the run: where its time went, its diagnoses. Needs the program."""
        return self._summarized["runs"][0]

    @property
    def tables(self) -> "list[Table]":
        """The tables of `hadal summary`, which print as text, Markdown, HTML, LaTeX and CSV. Needs the program."""
        return [Table.from_json(table) for table in self._summarized["tables"]]


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def _number(value: object) -> float:
    if value is None:
        return float("nan")
    return float("inf") if isinstance(value, str) else float(value)


def _pointed(path: str) -> str:
    """The name that checkpoints/latest or best leads to: a link, or a file of text where there are no links."""
    if os.path.islink(path):
        return os.path.basename(os.readlink(path))
    if os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return os.path.basename(file.read(256).strip())
    return ""
