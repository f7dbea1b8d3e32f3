"""Starts the program hadal, which computes what the pages show."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Sequence

from pyhadal.refusal import Refusal


_INSTALLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "hadal")  # by a wheel


def main() -> None:
    """The command `hadal` that a wheel installs: becomes the program, whose Python commands use this interpreter."""
    os.environ.setdefault("HADAL_PYTHON", sys.executable)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execv(_INSTALLED, sys.argv)


def find() -> str:
    """The program: $HADAL (set by hadal itself when it starts this package), this wheel's, `hadal` on PATH, or the source
    tree's build.
    """
    built = os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "build", "release", "hadal")
    for candidate in (os.environ.get("HADAL"), _INSTALLED, shutil.which("hadal"), built):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise Refusal("the program hadal was not found: put it on PATH, or name it in HADAL")


def run(arguments: Sequence[str]) -> str:
    """The standard output of `hadal ARGUMENTS`. Raises Refusal with its message and exit code if it fails."""
    done = subprocess.run([find(), *arguments], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix(f"hadal {arguments[0]}: ") or f"hadal {arguments[0]} failed"
        raise Refusal(message, exit_code=done.returncode if done.returncode > 0 else 1)
    return done.stdout


def summarize(runs: Sequence[str], options: Sequence[str] = ()) -> dict:
    """What `hadal summary --format json` says of run directories. `options`: as --profile FILE."""
    return json.loads(run(["summary", "--format", "json", *options, "--", *runs]))
