"""Slurm's part of a run: submits launch/slurm/train.sbatch, and asks for the job's state."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Sequence

from pyhadal import program
from pyhadal.config import Config, Path
from pyhadal.corpus import Corpus
from pyhadal.jobs import with_corpus
from pyhadal.model import flags
from pyhadal.refusal import Refusal


def submit(config: "Config | Path", corpus: "Corpus | Path | None" = None, *, run_dir: Path, nodes: int = 1, ntasks_per_node: int = 1,
           time: str = "", train: "dict[str, Any] | None" = None, **options: Any) -> str:
    """Submits a job that trains in `run_dir` (on a file system of all nodes) and requeues itself at its time limit. Returns its number.

    The config is written to RUN_DIR.textproto. `nodes`, `ntasks_per_node` (a task is a rank), `time` ("1-12:00:00") and
    `options` are sbatch's, with _ for -, as `cpus_per_task=8, gpus_per_node=8, partition="a"`; `train`: options of `hadal train`.
    launch/slurm/README.md has the site's file, site.env, that the job reads. `Run(run_dir).status()` says how it is.
    Raises Refusal in sbatch's words.
    """
    run_dir = os.path.abspath(os.fspath(run_dir))
    os.makedirs(os.path.dirname(run_dir), exist_ok=True)
    with_corpus(config, corpus).write(run_dir + ".textproto")
    wanted = {"nodes": nodes, "ntasks_per_node": ntasks_per_node, "time": time or None, **options}
    words = ["sbatch", "--parsable", f"--comment={run_dir}", *flags(wanted), program.shipped("launch", "slurm", "train.sbatch"),
             run_dir + ".textproto", "--run-dir", run_dir, *flags(train or {})]
    return _slurm(words).split(";")[0].strip()


def find_job(run_dir: str) -> "tuple[str, str] | None":
    """The number and the state (PENDING, RUNNING, …) of this user's job that trains in the directory; None: there is none, or no Slurm."""
    try:
        jobs = _slurm(["squeue", "--me", "--noheader", "--format=%i|%T|%k"])
    except Refusal:
        return None
    for line in jobs.splitlines():
        number, state, comment = line.split("|", 2)
        if comment == os.path.abspath(run_dir):
            return number, state
    return None


def _slurm(words: "Sequence[str]") -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, env={**os.environ, "HADAL": program.find()})
    except FileNotFoundError:
        raise Refusal(f"{words[0]}: no such program; is this a machine of a Slurm cluster?") from None
    if done.returncode != 0:
        raise Refusal(done.stderr.strip() or f"{words[0]} ended with exit code {done.returncode}", exit_code=1)
    return done.stdout
