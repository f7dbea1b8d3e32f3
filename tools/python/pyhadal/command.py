"""How a command of pyhadal and hadal_torch ends: an error is one line with hadal's prefix, and a signal leaves nothing half written."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Callable, Optional, TextIO

from pyhadal.refusal import Refusal


def run(command: str, work: Callable[[], None]) -> int:
    """Runs `work` for `hadal COMMAND` and returns the exit status: 0 done, 1 error, 2 bad usage, or a missing file or package, 3 damaged,
    128 + n ended by signal n (TERM, INT, HUP), after `work` has removed its temporary files. Of the main thread alone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_in_order)
    try:
        work()
    except Refusal as refusal:
        return _fail(command, str(refusal), refusal.exit_code)
    except BrokenPipeError:
        return 1
    except ImportError as error:
        return _fail(command, f"{error} (of {sys.executable}); name another Python in HADAL_PYTHON", 2)
    except (OSError, MemoryError) as error:
        where = f"{getattr(error, 'filename')}: " if getattr(error, "filename", None) else ""
        return _fail(command, f"{where}{getattr(error, 'strerror', None) or str(error) or 'out of memory'}", 1)
    return 0


def _end_in_order(number: int, _frame: object) -> None:
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # a second one does not interrupt the cleaning up
    raise SystemExit(128 + number)


def _fail(command: str, message: str, code: int) -> int:
    # Files at NAME.tmp.… are gone when this is read; the user knows NAME.
    message = re.sub(r"\.tmp\.[^/\s:]+(/[^/\s:]+)*", "", message)
    message = re.sub(r"(\S{100})\S{901,}", r"\1 … (cut)", printable(message))
    tell(f"hadal {command}: {message}", stream=sys.stderr)
    return code


def tell(text: str, end: str = "\n", stream: "Optional[TextIO]" = None) -> None:
    """Prints on standard output, or `stream`. If that is impossible (a terminal that is gone, a full disk), the stream leads to /dev/null
    from now on, because the work must not end with its messages."""
    stream = stream or sys.stdout
    try:
        print(text, end=end, file=stream, flush=True)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def printable(text: str) -> str:
    """The text with what is no character of a line, such as a terminal's escapes, in hexadecimal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
