"""Starts the program hadal, which computes everything that this package returns."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Any, Sequence

from pyhadal.refusal import Refusal

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = os.path.join(_PACKAGE, "bin", "hadal")  # by a wheel


def main() -> None:
    """The command `hadal` that a wheel installs: becomes the program, whose Python commands use this interpreter."""
    os.environ.setdefault("HADAL_PYTHON", sys.executable)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execv(_INSTALLED, sys.argv)


def find() -> str:
    """The program: $HADAL (set by hadal itself when it starts this package), the wheel's, beside this Python, that of `cmake
    --install`, on PATH, or the source tree's build. Raises Refusal if there is none."""
    ours = [os.path.join(_PACKAGE, path) for path in ("../../../../bin/hadal", "../../../build/release/hadal")]
    beside = os.path.join(os.path.dirname(sys.executable), "hadal")
    for candidate in (os.environ.get("HADAL"), _INSTALLED, beside, ours[0], shutil.which("hadal"), ours[1]):
        if candidate and os.access(candidate, os.X_OK):
            return os.path.normpath(candidate)
    raise Refusal("the program hadal was not found: put it on PATH, or name it in HADAL")


def shipped(*parts: str) -> str:
    """The path of a file that comes with the program, as shipped("configs", "base.textproto"): of the wheel, of `cmake --install`, or of
    the source tree. Raises Refusal."""
    roots = [os.path.join(_PACKAGE, up) for up in ("share/hadal", "../..", "../../..")]
    if not any(os.path.exists(os.path.join(root, "configs", "run.proto")) for root in roots):  # the package alone is installed
        program = os.path.dirname(os.path.realpath(find()))
        roots = [os.path.join(program, up) for up in ("../share/hadal", "../..")]
    for root in roots:
        path = os.path.normpath(os.path.join(root, *parts))
        if os.path.exists(path):
            return path
    raise Refusal(f"{'/'.join(parts)}: no such file of hadal's; looked in {', '.join(map(os.path.normpath, roots))}")


_PREFIX = re.compile(r"hadal [a-z-]+( [a-z-]+)?( \[[^\]]*\])?: ")  # of errors


def run(arguments: Sequence[str], text: str = "", show: bool = False) -> str:
    """The standard output of `hadal ARGUMENTS` with `text` as standard input. `show`: prints it, and standard error, as it comes.

    Raises Refusal with the program's message and exit code if it fails. An interrupt ends the program.
    """
    process = start(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if show else subprocess.PIPE)
    try:
        lines: "list[bytes]" = []
        for line in process.stdout or [] if show else []:
            print(line.decode("utf-8", "replace"), end="")
            lines.append(line)
        out, said = process.communicate(text.encode("utf-8", "replace"))
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    out = b"".join(lines) + out
    if process.returncode != 0:
        raise failure(arguments[0], (out if show else said).decode("utf-8", "replace"), process.returncode)
    return out.decode("utf-8", "replace")


# Makes SIGTERM the end of a child whose parent ends in any way, also by SIGKILL, and becomes the program.
_BOUND = ("import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15)\n"
          "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])")


def start(arguments: Sequence[str], bound: bool = True, **options: Any) -> "subprocess.Popen[bytes]":
    """Starts `hadal ARGUMENTS` in a session of its own: a terminal's Ctrl-C and a notebook's interrupt do not reach it. `bound`: it gets
    SIGTERM when the thread that started it ends. `options`: of subprocess.Popen."""
    python = sys.executable or os.path.realpath("/proc/self/exe")
    words = [python, "-I", "-S", "-c", _BOUND, str(os.getpid())] if bound else []
    options["env"] = {"HADAL_PYTHON": python, **options.get("env", os.environ)}  # for commands that start Python themselves
    return subprocess.Popen([*words, find(), *arguments], start_new_session=True, **options)


def failure(command: str, said: str, code: int) -> Refusal:
    """The error of a program that wrote `said` to standard error and ended with `code` (below 0: by that signal).

    Its message: the program's last line, without the prefix "hadal COMMAND:", and the indented lines behind it.
    """
    lines = said.strip().splitlines()
    last = max((number for number, line in enumerate(lines) if _PREFIX.match(line)), default=None)
    if last is None:
        if lines and not lines[-1].strip("-"):  # mpirun's message is between two such lines
            rules = [number for number, line in enumerate(lines) if line and not line.strip("-")]
            lines = ["\n".join(lines[rules[-2] + 1 if len(rules) > 1 else 0:-1])]
        ended = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        message = ": ".join([f"hadal {command} {ended}", *filter(None, lines[-1:])])
    else:
        end = next((number for number in range(last + 1, len(lines)) if not lines[number].startswith(" ")), len(lines))
        message = "\n".join([_PREFIX.sub("", lines[last]), *lines[last + 1:end]])
    return Refusal(message, exit_code=code if code > 0 else 1)


def summarize(runs: Sequence[str], options: Sequence[str] = ()) -> "dict[str, Any]":
    """What `hadal summary --format json` says of run directories. `options`: as --profile FILE."""
    return dict(json.loads(run(["summary", "--format", "json", *options, "--", *runs])))
