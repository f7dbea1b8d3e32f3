"""A program that stays alive between calls: lines in, an answer for each line out, in order."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
from typing import IO, Any, Sequence

from pyhadal import program
from pyhadal.refusal import Refusal

BATCH = 64  # lines that the program reads before it answers


class Service:
    """`hadal COMMAND … --buffer 64`: the model is loaded once. A call's last batch is filled up with empty lines.

    The program ends with the object, by `close`, after an error, and at the end of its input: also when this process ends in any
    way. Any thread may ask; one at a time is served.
    """

    def __init__(self, command: str, arguments: "Sequence[str]", inputs: "Sequence[str]" = ()):
        """`inputs`: the options that name an input each, as ("--source", "--target"); none: lines go to standard input."""
        self._command = command
        self._lock = threading.Lock()
        self._lines = 0  # of each input, that earlier calls wrote
        self._log: "IO[bytes]" = tempfile.TemporaryFile()
        words = [command, *arguments, "--buffer", str(BATCH)]
        pipes = [os.pipe() for _ in inputs]
        for option, (read, _) in zip(inputs, pipes):
            words += [option, f"/dev/fd/{read}"]
        try:
            self._process: "subprocess.Popen[bytes]" = program.start(
                words, bound=False, stdin=subprocess.DEVNULL if inputs else subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                pass_fds=[read for read, _ in pipes])
        finally:
            for read, _ in pipes:
                os.close(read)
        self._inputs: "list[Any]" = [os.fdopen(write, "wb", buffering=0) for _, write in pipes] or [self._process.stdin]

    def ask(self, *columns: "Sequence[str]") -> "list[str]":
        """An answer for each place of the columns, one for each input, all of one length. Raises Refusal: a text that is not one line;
        what the program refuses, after which the service is closed."""
        for column in columns:
            for number, text in enumerate(column):
                if "\n" in text:
                    raise Refusal(f"text {number} has a line end; split it, or write a space in its place: {text[:40]!r}")
        with self._lock:
            answers: "list[str]" = []
            try:
                for begin in range(0, len(columns[0]), BATCH):
                    answers += self._ask_batch([column[begin:begin + BATCH] for column in columns])
            except BaseException:  # an interrupt, too: what the program has not yet answered would answer the next call
                self.close()
                raise
            self._lines += -(-len(columns[0]) // BATCH) * BATCH
            return answers

    def _ask_batch(self, columns: "list[Sequence[str]]") -> "list[str]":
        assert self._process.stdout is not None
        count = len(columns[0])
        with contextlib.suppress(OSError):  # the program has ended: its answers end as well
            # Line by line from each column: the program reads them so, and would wait for one while the pipe of another is full.
            for place in range(BATCH):
                for column, pipe in zip(columns, self._inputs):
                    rest = memoryview(((column[place] if place < count else "") + "\n").encode("utf-8", "replace"))
                    while rest:
                        rest = rest[pipe.write(rest):]
            for pipe in self._inputs:
                pipe.flush()
        answers = [self._process.stdout.readline() for _ in range(BATCH)]
        if not answers[-1]:
            code = self._process.wait()
            self._log.seek(0)
            found = program.failure(self._command, self._log.read().decode("utf-8", "replace"), code)
            words = re.sub(r"^(standard input:|/dev/fd/\d+:(?: line )?|line )(\d+)(?=[ :])", lambda at: f"text {int(at[2]) - 1 - self._lines}", str(found))
            raise Refusal(words, found.exit_code)
        return [answer.decode("utf-8", "replace").rstrip("\n") for answer in answers[:count]]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.wait()
        for pipe in [*self._inputs, self._process.stdout, self._log]:
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not yet written
                    pipe.close()

    def __del__(self) -> None:
        if hasattr(self, "_inputs"):
            self.close()
