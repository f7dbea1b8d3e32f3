"""Where outputs may go, and files that appear whole: the rules of tools/output/staged_output.h."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from typing import IO, Any, Iterator, Sequence

from pyhadal.refusal import Refusal

MARK = "<!-- drawn by hadal -->"  # near the beginning of pages and pictures: a later one may replace them
LOCK = ".hadal.lock"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RECOGNISED = 1 << 16  # characters in which the mark is looked for
_RUN_NAMES = {"config.resolved.textproto", "profile.textproto", "machine.textproto", "metrics.jsonl", "incarnations.jsonl", "tb", "logs", "trace",
              "depth_probe.safetensors", "cell.json", "checkpoints"}


def _is_run(folder: str) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in ("metrics.jsonl", "config.resolved.textproto", "checkpoints/attempt"))


def check_place(path: str) -> None:
    """Raises Refusal for a path inside a checkpoint, or of a name that only the run writes."""
    path = os.path.abspath(path)
    at = output = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    while at != os.path.dirname(at):
        parent, name = os.path.split(at)
        if at != output and all(os.path.exists(os.path.join(at, each)) for each in ("manifest.json", "rank_00000.safetensors")):
            raise Refusal(f"cannot write {path}: {at} is a checkpoint, which nothing may change; choose another place")
        if name in _RUN_NAMES and _is_run(parent):
            raise Refusal(f"cannot write {path}: {at} is the run's in {parent}; choose another place")
        at = parent


def check_outputs(paths: "Sequence[str]", inputs: "Sequence[str]" = (), own: bool = False,
                  remedy: str = "remove it, or choose another --out") -> None:
    """Checks files that are written together: nothing but regular files is replaced, and these only if they are not
    inputs, and `own`, or empty, or the first of them has the mark. Raises Refusal."""
    if not own and os.path.isfile(paths[0]):
        with open(paths[0], encoding="utf-8", errors="replace") as file:
            own = MARK in file.read(_RECOGNISED)
    there = [each for each in inputs if os.path.exists(each)]
    for path in paths:
        check_place(path)
        if os.path.islink(path):
            raise Refusal(f"cannot write {path}: it is a symbolic link, which outputs do not follow; name the file itself")
        if not os.path.exists(path):
            continue
        if not os.path.isfile(path):
            raise Refusal(f"cannot replace {path}: it is a device, a pipe or a folder, not a file; choose the name of a file")
        for each in there:
            if os.path.samefile(path, each):
                raise Refusal(f"writing {path} would replace {each}, which is an input; choose another --out")
        if not own and os.path.getsize(path):
            raise Refusal(f"{path} already exists; {remedy}")


def write_whole(path: str, text: str) -> None:
    """Writes a file that appears whole or not at all, as UTF-8. Call check_outputs before the work.

    Errors: Refusal for what check_outputs refuses even if it is the command's own; OSError if it cannot be written.
    """
    check_outputs([path], own=True)
    replace_whole(path, text)


def replace_whole(path: str, text: str) -> None:
    """`write_whole` of a file that only its caller writes: nothing is checked."""
    folder = os.path.dirname(os.path.abspath(path))
    mask = os.umask(0)
    os.umask(mask)
    with _ends_cleanly():
        handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".tmp.", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


@contextlib.contextmanager
def _ends_cleanly() -> "Iterator[None]":
    """SIGTERM and SIGHUP raise SystemExit inside, as Ctrl-C raises KeyboardInterrupt."""
    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    mine = [each for each in _ENDING[1:] if signal.getsignal(each) is signal.SIG_DFL]
    try:
        for each in mine:
            signal.signal(each, end)
    except ValueError:  # not the main thread
        mine = []
    try:
        yield
    finally:
        for each in mine:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def locked(folder: str, target: str = "") -> "Iterator[None]":
    """Makes the folder if it is missing, and holds its lock. Raises Refusal if another process writes there."""
    check_place(target or folder)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, LOCK)
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                break
        except BlockingIOError:
            os.close(handle)
            raise Refusal(f"another process is writing {target or folder}; wait until it ends, or choose another --out",
                          exit_code=1) from None
        except FileNotFoundError:  # its holder has removed it
            pass
        os.close(handle)
    try:
        with _ends_cleanly():
            yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                os.unlink(path)
        os.close(handle)


class Staged:
    """Files that appear together or not at all, each first in the folder TARGET.partial, which one process owns.

    `with Staged(TARGET) as files: files.open(PATH) …`. At the end of the block the files are renamed to their paths, in the
    order of opening; an older file in the place of the last one, which stands for all, is removed before that. After an
    error or a signal nothing is changed. PATH's folder must be on TARGET's file system.
    """

    def __init__(self, target: str):
        self._target, self._folder = target, target + ".partial"
        self._paths: "list[str]" = []
        self._files: "list[IO[Any]]" = []
        self._lock = locked(self._folder, target)

    def __enter__(self) -> "Staged":
        if os.path.isdir(self._folder) and os.listdir(self._folder) and not os.path.exists(os.path.join(self._folder, LOCK)):
            raise Refusal(f"{self._folder} already exists; remove it, or choose another --out")
        self._lock.__enter__()
        return self

    def open(self, path: str, mode: str = "w") -> "IO[Any]":
        staged = os.path.join(self._folder, str(len(self._paths)))
        file: "IO[Any]" = open(staged, mode) if "b" in mode else open(staged, mode, encoding="utf-8", newline="\n")
        self._paths.append(path)
        self._files.append(file)
        return file

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            for file in self._files:
                file.close()
            if kind is None and self._paths:
                signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._paths[-1])
                for number, path in enumerate(self._paths):
                    os.replace(os.path.join(self._folder, str(number)), path)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.__exit__(kind, value, trace)
