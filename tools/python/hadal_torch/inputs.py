"""The one reader of other people's files: regular files alone, of bounded size, in memory that is in proportion to them."""

from __future__ import annotations

import json
import os
import resource
import stat
from typing import IO, Any

from hadal_torch.refusal import Refusal, damaged

MOST_TEXT = 256 << 20  # bytes of a vocabulary, a dictionary, or JSON
_BASE = 4 << 30  # bytes of address space for text, threads and Python, beside what Python and its packages hold already
_FACTOR = 8  # bytes of address space for a byte of input: half precision becomes float32, and is read, copied and written
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def open_regular(path: str) -> IO[bytes]:
    """The file, opened in binary. Never waits. Raises Refusal if it cannot be opened, or is a folder, a pipe, a device or a socket."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise Refusal(f"{path} is {_KINDS.get(kind, 'no file')}; give a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str, most: int = MOST_TEXT) -> bytes:
    """The contents. Raises Refusal as open_regular, and for more than `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        contents = file.read(most + 1) if size <= most else b""  # files of /proc have more than their size
    if max(size, len(contents)) > most:
        raise Refusal(f"{path} has more than {most:,} bytes, the most that is read of such a file")
    return contents


def parse_json(path: str, text: bytes) -> dict[str, Any]:
    """An object without duplicate keys. Raises Refusal; `path` is for its message."""
    def unique(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise damaged(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise damaged(f"{path} is no JSON object")
    return value


def bare_name(origin: str, name: object) -> str:
    """`name`, which `origin` gives to a file beside it. Raises Refusal for what would lead elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Refusal(f"{origin} names the file {name!r}, which is no file of its folder")
    return name


def _stored_bytes(path: str) -> "tuple[int, int]":
    """(size, bytes that are not in holes)."""
    with open_regular(path) as file:
        size, at, stored = os.fstat(file.fileno()).st_size, 0, 0
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # a hole to the end
                break
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            stored += at - begin
    return size, stored


def limit_memory(paths: "list[str]") -> None:
    """Limits the address space of this process to what it has, and _BASE, and _FACTOR bytes for each that is stored in the files.

    Call it when packages are imported. Raises Refusal for a file that is larger than that, for it is mostly holes.
    """
    sizes = {path: _stored_bytes(path) for path in paths}
    with open("/proc/self/statm", encoding="ascii") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    limit = present + _BASE + _FACTOR * sum(stored for _, stored in sizes.values())
    for path, (size, stored) in sizes.items():
        if size > limit:
            raise Refusal(f"{path} has {size:,} bytes, of which only {stored:,} are stored: a sparse file, or an unfinished download")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min([limit, *(n for n in (soft, hard) if n != resource.RLIM_INFINITY)]), hard))
