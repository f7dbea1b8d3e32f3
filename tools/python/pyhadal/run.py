"""Reads a run directory. The file formats are those of docs/metrics.md; nothing is written."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Iterator, Sequence, cast

from pyhadal import program
from pyhadal.files import check_outputs, write_whole
from pyhadal.model import ModelCommands
from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.table import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas


def read_events(run: str) -> Iterator[dict[str, Any]]:
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
                raise Refusal(f"{path}:{number}: not a JSON object; the file is damaged: remove line {number}", exit_code=3) from None
            if isinstance(event, dict):
                yield event


def _pandas() -> Any:
    """pandas. Raises Refusal, with the command that installs it, where it is missing."""
    require("pandas")
    import pandas

    return pandas


def read_metrics(run: "str | os.PathLike[str]", event: str = "step") -> "pandas.DataFrame":
    """The events of one kind in RUN/metrics.jsonl, a row each. null becomes NaN; doubles keep their bits."""
    return _frame([row for row in read_events(os.fspath(run)) if row.get("event") == event])


def _frame(rows: "list[dict[str, Any]]", columns: "list[str] | None" = None) -> "pandas.DataFrame":
    frame: "pandas.DataFrame" = _pandas().DataFrame(rows, columns=columns).drop(columns="event", errors="ignore")
    return frame.astype({name: float for name in frame if rows and frame[name].isna().all()})  # of null alone


# A comment, a string, a sign, or a word with the colon behind it.
_TOKENS = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[{}\[\]<>,;]|[^\s{}\[\]<>"\'#;,:]+(?:\s*:)?|\S')


def parse_config(text: str) -> "dict[str, Any]":
    """The fields of a textproto by their paths: {"model.encoder_layers": 6, …}. A repeated field becomes a list.

    Raises ValueError, IndexError or SyntaxError for what is no textproto.
    """
    fields: "dict[str, Any]" = {}
    path: "list[str]" = []
    name, in_list = "", False
    tokens: "list[str]" = []
    for token in _TOKENS.findall(text):
        if token[0] in "\"'" and tokens and tokens[-1][0] in "\"'":
            tokens[-1] += " " + token  # strings side by side are one, here as in Python
        elif token[0] != "#":
            tokens.append(token)
    for token in tokens:
        if token in ("{", "<"):
            path.append(name)
            name = ""
        elif token in ("}", ">"):
            path.pop()
        elif token in ("[", "]"):
            in_list = token == "["
            fields[".".join([*path, name])] = [] if in_list else fields[".".join([*path, name])]
            name = name if in_list else ""
        elif token in (",", ";"):
            pass
        elif not name or token.endswith(":"):
            name = token.rstrip(": \n")
        else:
            full, value = ".".join([*path, name]), _value(token)
            if in_list or full in fields:
                before = fields[full]
                value = [*(before if isinstance(before, list) else [before]), value]
            fields[full] = value
            name = name if in_list else ""
    if path:
        raise ValueError(f"{path[-1]} has no end")
    return fields


def _value(word: str) -> object:
    if word[0] in "\"'":
        text = str(ast.literal_eval(word))
        with contextlib.suppress(UnicodeError):
            text = text.encode("latin-1").decode("utf-8")  # octal escapes are bytes
        return text
    if word in ("true", "True", "t", "false", "False", "f"):
        return word[0] in "tT"
    with contextlib.suppress(ValueError):
        return int(word, 8 if re.match(r"-?0\d", word) else 0)
    with contextlib.suppress(ValueError):
        return float(re.sub(r"(?<=[\d.])[fF]$", "", word))
    return word  # an enum's name


@dataclasses.dataclass(frozen=True)
class Status:
    """How a run is. `state`: "queued" (Slurm's job waits), "running", "finished" (a limit of stop was reached), "saved" (on a signal or a
    time limit: it can continue), "failed" (it ended otherwise), "not started", or "lost" (of another host: silent for a minute). `step`: the last one;
    `total_steps`: stop.steps, 0: no limit; `reason`: of the end, in the program's words; `job`: Slurm's number, "" without one."""

    state: str
    step: int
    total_steps: int
    reason: str = ""
    job: str = ""


class Picture:
    """A picture that notebooks show. `svg`: its text."""

    def __init__(self, svg: str):
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes a .svg. Raises Refusal for another ending, and for a file that is there and is not hadal's."""
        if not os.fspath(path).endswith(".svg"):
            raise Refusal(f"{os.fspath(path)}: pictures are SVG; choose a name that ends with .svg")
        check_outputs([os.fspath(path)])
        write_whole(os.fspath(path), self.svg)


class Run(ModelCommands):
    """A run directory: its records as frames and pictures, and its model. Each attribute is read when it is first used, and once:
    make another Run to see what came later."""

    def __init__(self, path: "str | os.PathLike[str]"):
        """`path`: the directory, or its metrics.jsonl; or a checkpoint, of a run or imported, for its model alone. Raises Refusal if
        there is no such file, and no job was submitted for it."""
        path = os.path.normpath(os.fspath(path))
        self.path = os.path.dirname(path) or "." if os.path.isfile(path) else path
        self.name = os.path.basename(os.path.abspath(self.path))
        self.metrics_path = path if os.path.isfile(path) else os.path.join(path, "metrics.jsonl")
        self._check_there()

    def _check_there(self) -> None:
        if not any(map(os.path.isfile, (self.metrics_path, self.path + ".textproto", os.path.join(self.path, "manifest.json")))):
            raise Refusal(f"{self.metrics_path}: no such file; is {self.path} a run directory?")

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    @functools.cached_property
    def _events(self) -> "dict[str, list[dict[str, Any]]]":
        kinds: "dict[str, Any]" = {}
        for event in read_events(self.metrics_path):
            kinds.setdefault(str(event.get("event")), []).append(event)
        return kinds

    def events(self, kind: str) -> "pandas.DataFrame":
        """The events of one kind, a row each, without the column `event`. Empty if there is none."""
        columns = None if kind in self._events else {"sample": ["step", "text"], "diagnosis": ["step", "text"], "warning": ["step", "text"]}.get(kind)
        return _frame(self._events.get(kind, []), columns)

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

    def plot(self, metric: str = "nll", *others: "Run", depth: str = "") -> Picture:
        """A number of event step over the steps, of this run and of `others`: lines; dots: the same number at validations.

        `depth`: above it the depth map of this number of each run. Raises Refusal, with the names that exist, for a number that no
        step has.
        """
        require("matplotlib", "numpy")
        from pyhadal import plot
        from pyhadal.curve import read_map

        series, runs = [], [self, *others]
        names = names_of(runs)
        for place, (run, name) in enumerate(zip(runs, names)):
            steps, values = zip(*run.points(metric))
            series.append(plot.Series(name, steps, values, place))
            dots = [event for event in run._events.get("validation", []) if _is_number(event.get(metric))]
            if dots:
                series.append(plot.Series(f"{name}: validation", [event["step"] for event in dots], [event[metric] for event in dots],
                                          place, dots=True))
        maps = [read_map(run, name, depth) for run, name in zip(runs, names)] if depth else []
        return Picture(plot.standalone(plot.curve_with_maps(series, metric, maps, depth)))

    def depth_map(self, series: str = "parameter_gradient", *others: "Run") -> Picture:
        """A number of every sublayer (upwards, the encoder below the decoder) over the recorded steps (to the right), of this run and of
        `others` on one scale. `series`: docs/metrics.md, event depth. Raises Refusal if it was not recorded (instruments.enabled)."""
        require("matplotlib", "numpy")
        from pyhadal import plot
        from pyhadal.curve import read_map

        runs = [self, *others]
        maps = [read_map(run, name, series) for run, name in zip(runs, names_of(runs))]
        title, unit, logarithmic = plot.DEPTH_SERIES[series]
        return Picture(plot.standalone(plot.depth_maps(maps, title, unit, logarithmic=logarithmic, width=2 + 4.0 * min(len(maps), 3))))

    def report(self, out: "str | os.PathLike[str] | None" = None) -> str:
        """Writes the page of `hadal report`, with .json and .md beside it, and returns its path: report.html in the run directory, or
        `out`. Raises Refusal in the program's words."""
        return program.run(["report", self.path, *(["--out", os.fspath(out)] if out else [])]).splitlines()[0]

    def status(self) -> Status:
        """How the run is now, from what it and Slurm record. Of a run on another host, "running" is up to a minute late."""
        from pyhadal.cluster import find_job

        self._check_there()  # a relative path names another place after os.chdir
        events = list(read_events(self.metrics_path)) if os.path.isfile(self.metrics_path) else []
        starts = [number for number, event in enumerate(events) if event.get("event") == "run"]
        last = events[starts[-1]:] if starts else []
        step = max((event["step"] for event in events if event.get("event") == "step"), default=0)
        reason = next((str(event["reason"]) for event in last if event.get("event") == "finish"), "")
        ended = "saved" if reason.startswith("stopped") else "finished" if reason else "failed" if starts else "not started"
        state = owner_state(self.path) or ended
        job, queue = find_job(self.path) or ("", "")
        if queue in ("PENDING", "REQUEUED", "CONFIGURING"):
            state = "queued"
        return Status(state, step, int(last[0].get("total_steps", 0)) if last else 0, "" if state == "running" else reason, job)

    def submit(self, **options: Any) -> str:
        """Resumes the run as a Slurm job, with its own config. Returns the job's number. Arguments and errors: `pyhadal.submit`."""
        from pyhadal.cluster import submit

        return submit(self.path, run_dir=self.path, **options)

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
        self._check_there()
        folder = os.path.join(self.path, "checkpoints")
        names = sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else [])
                       if re.fullmatch(r"step_\d{8,}", name))
        rows = [{"step": int(name[5:]), "path": os.path.join(folder, name)} for name in names]
        frame: "pandas.DataFrame" = _pandas().DataFrame(rows, columns=["step", "path"])
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

    def depth(self, series: str) -> "tuple[list[int], np.ndarray[Any, Any]]":
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
    def _summarized(self) -> "dict[str, Any]":
        return program.summarize([self.path])

    @property
    def summary(self) -> "dict[str, Any]":
        """What `hadal summary --format json` says of the run: where its time went, its diagnoses. Needs the program."""
        return dict(self._summarized["runs"][0])

    @property
    def tables(self) -> "list[Table]":
        """The tables of `hadal summary`, which print as text, Markdown, HTML, LaTeX and CSV. Needs the program."""
        return [Table.from_json(table) for table in self._summarized["tables"]]


def owner_state(run: str) -> str:
    """ "running" or "lost" by the record of a run's owner (pipeline/checkpoint/run_owner.h); "": it has ended, or there is none."""
    path = os.path.join(run, "checkpoints", "attempt")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            _, _, place, process, _, heartbeats = file.read().splitlines()[:6]
        silence = time.time() - os.stat(path).st_mtime
    except (OSError, ValueError):
        return ""
    if heartbeats.strip() == "ended":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            here = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
        if here != place.strip():
            return "running" if silence < 60 else "lost"
        with open(f"/proc/{process.split()[0]}/stat", encoding="utf-8", errors="replace") as file:
            return "running" if file.read().rpartition(")")[2].split()[19] == process.split()[1] else ""
    except OSError:
        return ""


def names_of(runs: "Sequence[Run]") -> "list[str]":
    """The runs' names in a picture, as `hadal summary` has them: where several have the same, their paths."""
    names = [run.name for run in runs]
    return [run.path if names.count(run.name) > 1 else run.name for run in runs]


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def _number(value: object) -> float:
    if value is None:
        return float("nan")
    return float("inf") if isinstance(value, str) else float(cast(float, value))


def _pointed(path: str) -> str:
    """The name that checkpoints/latest or best leads to: a link, or a file of text where there are no links."""
    if os.path.islink(path):
        return os.path.basename(os.readlink(path))
    if os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return os.path.basename(file.read(256).strip())
    return ""
