"""Writes files whole."""

from __future__ import annotations

import os
import tempfile


def write_whole(path: str, text: str) -> None:
    """Writes a file that appears whole or not at all, as UTF-8. OSError if it cannot be written."""
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
