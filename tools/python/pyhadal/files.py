"""Writes files whole."""

from __future__ import annotations

import os
import tempfile

from pyhadal.refusal import Refusal


def write_whole(path: str, text: str) -> None:
    """Writes a file that appears whole or not at all, as UTF-8.

    Errors: Refusal for a device, a pipe, a folder or a stream such as /dev/stdout, which a file must not replace; OSError if it
    cannot be written.
    """
    stream = os.path.islink(path) and os.readlink(path).startswith("/proc/")
    if stream or (os.path.exists(path) and not os.path.isfile(path)):
        raise Refusal(f"cannot replace {path}: it is a device, a pipe or a folder, not a file; choose the name of a file")
    folder = os.path.dirname(os.path.abspath(path))
    mask = os.umask(0)
    os.umask(mask)
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".tmp.", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
