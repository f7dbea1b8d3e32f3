"""hadal in Python: prepares text, trains, and shows what a run recorded. Thin over the program hadal, which computes everything.

    import pyhadal
    corpus = pyhadal.prepare([("eins", "one"), …], out="data", vocab_size=200)
    run = pyhadal.train(pyhadal.Config("small", {"stop.steps": 500}), corpus, run_dir="runs/first", ranks=2)
    run.plot(), run.diagnoses, run.translate(["zwei"])

Config                      the config of a run; its fields are attributes
prepare, Corpus             text → a vocabulary and a corpus
train, JobError             a supervised job; how it failed
Run, Picture, Status        a run directory: frames, pictures, its model
Hypothesis                  an output of a model
plan, Plan, compare         a prediction; a grid of runs
submit                      a Slurm job
configs                     the folder of the ready-made configs
read_metrics                the events of one kind, of a run directory or a file
Table, Cell                 rows that print as text, Markdown, HTML, LaTeX and CSV
Refusal                     raised for errors that the user can fix; has the program's message and exit code

Install it in a virtual environment, from the top of a clone, with the program on PATH:
`python3 -m venv ~/hadal-python; . ~/hadal-python/bin/activate; pip install 'tools/python[runs]'`.
Type checkers and editors know the fields of a config by fields.pyi, which a wheel has; else write it:
`python3 -m pyhadal.schema > "$(python3 -c 'import pyhadal; print(pyhadal.__path__[0])')/fields.pyi"`.
docs/python.md has all of it. `python3 -m pyhadal --help` is the command line that `hadal report` and others start. pandas, matplotlib,
jinja2, tqdm and torch are imported when they are used.
"""

import os
import sys

# Started by hand, `python3 -m pyhadal` executes nothing from the working folder; of a json.py there it would be a surprise.
if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()] != [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]:
    del sys.path[0]

import importlib
from typing import TYPE_CHECKING, Any

from pyhadal import program
from pyhadal.model import Hypothesis
from pyhadal.refusal import Refusal
from pyhadal.run import Picture, Run, Status, read_metrics
from pyhadal.table import Cell, Table

if TYPE_CHECKING:
    configs: str
    from pyhadal.cluster import submit
    from pyhadal.config import Config
    from pyhadal.corpus import Corpus, prepare
    from pyhadal.jobs import JobError, train
    from pyhadal.planning import Plan, compare, plan

# Imported when used: these read configs/run.proto, which readers of runs do not need.
_HOMES = {"Config": "config", "Corpus": "corpus", "prepare": "corpus", "train": "jobs", "JobError": "jobs", "submit": "cluster",
          "plan": "planning", "Plan": "planning", "compare": "planning"}
__all__ = ["Cell", "Config", "Corpus", "Hypothesis", "JobError", "Picture", "Plan", "Refusal", "Run", "Status", "Table", "compare", "plan",
           "prepare", "read_metrics", "submit", "train"]


def __getattr__(name: str) -> Any:
    if name == "configs":
        return program.shipped("configs")
    if name not in _HOMES:
        raise AttributeError(f"module 'pyhadal' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyhadal.{_HOMES[name]}"), name)


def __dir__() -> "list[str]":
    return __all__
