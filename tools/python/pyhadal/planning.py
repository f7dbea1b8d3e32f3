"""Before and beside training: `plan` predicts a run, `compare` trains a grid of configs; both give pandas frames."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from pyhadal import program
from pyhadal.config import Config, Path
from pyhadal.corpus import Corpus
from pyhadal.model import flags
from pyhadal.packages import require
from pyhadal.refusal import Refusal

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class Plan:
    """What `hadal plan --json` says of a run. Units are in the names: seconds, bytes.

    `summary`: a value a name (step_seconds, bubble, parameters, …); `stages`: a row for each chunk of a stage; `memory`: a row a
    rank; `layouts`: with a machine, a row for each of the best layouts, best first; else empty.
    """

    summary: "pandas.Series[Any]"
    stages: "pandas.DataFrame"
    memory: "pandas.DataFrame"
    layouts: "pandas.DataFrame"

    def __repr__(self) -> str:
        return f"Plan({self.summary['ranks']} ranks: {self.summary['step_seconds']:.3g} s a step, {self.memory['arena_bytes'].max() / 2**20:,.0f} MiB)"


def plan(config: "Config | Path", machine: "Path | None" = None, **options: Any) -> Plan:
    """Predicts a run before it starts: stages, memory, the time of a step. `machine`: the best layout on it is searched: a description
    (configs/machine.proto), or the name of a ready-made one, as "h100_80g_8". `options`: of `hadal plan`, as `ranks=8, nodes=4,
    vocabulary=32000`. Raises Refusal, in the program's words: a bad config, a model that does not fit."""
    require("pandas")
    import pandas

    if machine is not None and not os.path.exists(machine):
        machine = program.shipped("configs", "machines", f"{os.fspath(machine)}.textproto")
    words = ["plan", "/dev/stdin", "--json", *flags({"machine": machine, **options})]
    found = json.loads(program.run(words, str(Config(config))))
    frames = [found.pop("stages"), found.pop("memory"), found.get("search", {}).pop("layouts", [])]
    return Plan(pandas.json_normalize(found).iloc[0], *map(pandas.DataFrame, frames))


def compare(base: "Config | Path", axes: "Mapping[str, Mapping[Any, Config | Path | Mapping[str, Any]] | Sequence[Any]] | None" = None, *,
            out: Path, corpus: "Corpus | Path | None" = None, progress: bool = True, **options: Any) -> "pandas.DataFrame":
    """Trains every combination of the axes' values, each as a run in OUT/runs, and reports them in OUT/comparison.html.

    `base`: the config of all; or, without `axes`, a grid of `hadal compare` (configs/compare.proto). `axes`: the values of each,
    by label: a Config or its name, or fields by path; or a list of values of the field that the axis is named by:

        compare(config, {"method": {"deep": "method/deepnorm", "pre": {"model.residual.method": "pre_ln"}}, "seed": [1, 2]}, out="grid")

    `progress`: prints a line a run. `options`: of `hadal compare`, as `ranks=2, test_source="test.de", test_reference="test.en"`. The same call resumes runs
    that are not finished. Returns a row a run: its label on each axis, state, verdict, steps, loss and best_validation_nll in nats
    a token, wall_seconds, cpu_seconds, directory. Raises Refusal, in the program's words, for a grid that is wrong; a run that fails is a row.
    """
    require("pandas", "matplotlib", "jinja2", "sacrebleu")
    import pandas

    with tempfile.TemporaryDirectory() as folder:
        grid = os.fspath(base) if axes is None and not isinstance(base, Config) else _write_grid(folder, Config(base), axes or {})
        if corpus is not None:
            found = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
            given = options.get("set") or []
            options["set"] = [*([given] if isinstance(given, str) else given), f"data.train={found.train}", f"data.validation={found.validation or ''}"]
        path = os.path.join(out, "grid.json")
        before = os.stat(path).st_mtime_ns if os.path.exists(path) else 0
        refusal = None
        try:
            program.run(["compare", grid, "--out", os.fspath(out), *flags(options)], show=progress)
        except Refusal as caught:  # exit code 1 with a new record: a run failed, or has another config and was left alone
            if caught.exit_code != 1 or not os.path.exists(path) or os.stat(path).st_mtime_ns == before:
                raise
            refusal = caught
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    if refusal and all(cell["state"] != "failed" for cell in record["cells"]):
        raise refusal
    names = [axis["name"] for axis in record["axes"]]
    rows = [{**dict(zip(names, cell.pop("labels"))), **cell, "directory": os.path.join(out, cell["directory"])} for cell in record["cells"]]
    return pandas.DataFrame(rows).drop(columns=["name", "log", "model"], errors="ignore")


def _write_grid(folder: str, base: Config, axes: "Mapping[str, Any]") -> str:
    base.write(os.path.join(folder, "base.textproto"))
    text = 'base: "base.textproto"\n'
    for place, (axis, values) in enumerate(axes.items()):
        text += f"axes {{\n  name: {json.dumps(axis)}\n"
        if not isinstance(values, Mapping):
            values = {value: {axis: value} for value in values}
        for number, (label, value) in enumerate(values.items()):
            Config(value).write(os.path.join(folder, f"{place}_{number}.textproto"))
            text += f'  values {{ label: {json.dumps(str(label))} files: "{place}_{number}.textproto" }}\n'
        text += "}\n"
    path = os.path.join(folder, "grid.textproto")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
