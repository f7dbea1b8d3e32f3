"""Reads and writes safetensors files as NumPy arrays.

Format: 8 bytes with the header's length, a JSON header name → {"dtype", "shape", "data_offsets"}, the tensors' bytes.
"""

from __future__ import annotations

import json
import math
import os
import struct
from typing import Any

import numpy as np

from hadal_torch.inputs import open_regular, parse_json
from hadal_torch.refusal import Refusal, damaged

_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}
_BUFFERS = (".attn.bias", "embeddings.position_ids")  # masks and positions in old files of transformers; importers leave them out
_BUFFER_WIDTHS = {**_WIDTHS, "BOOL": 1, "U8": 1, "I64": 8}
_MOST_HEADER = 100_000_000  # bytes; the reference implementation's limit
_MOST_DIMENSIONS = 8


def _to_float32(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BOOL": "?", "U8": "u1", "I64": "<i8"}[dtype]).astype(np.float32)


def _place(path: str, name: str, entry: object) -> "tuple[int, int, str, list[int], str]":
    """(begin, end, name, shape, type) of an entry whose shape has the size of its place."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise damaged(f"{path}: {name} has not exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    widths = _BUFFER_WIDTHS if name.endswith(_BUFFERS) else _WIDTHS
    if dtype not in widths:
        raise Refusal(f"{path}: {name} has the type {dtype}; readable are {', '.join(_WIDTHS)}")
    lists = isinstance(shape, list) and isinstance(offsets, list) and len(shape) <= _MOST_DIMENSIONS and len(offsets) == 2
    if not lists or not all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, *offsets)):
        raise damaged(f"{path}: the shape or the place of {name} are no sizes")
    begin, end = offsets
    if end - begin != math.prod(shape) * widths[dtype]:
        raise damaged(f"{path}: {name} {shape} has the bytes {begin} to {end}")
    return begin, end, name, shape, dtype


def read_safetensors(path: str) -> "dict[str, np.ndarray[Any, Any]]":
    """name → float32 array. Raises Refusal, naming file and tensor, for a damaged file or a type that is no float."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if length > min(size - 8, _MOST_HEADER):
            raise damaged(f"{path} is no safetensors file, or a truncated one")
        header = parse_json(f"{path}: the header", file.read(length))
        header.pop("__metadata__", None)
        places = sorted(_place(path, name, entry) for name, entry in header.items())
        at = 0
        for begin, end, name, *_ in places:  # without holes, in which a name that occurs twice could hide
            if begin != at:
                raise damaged(f"{path}: {name} begins at byte {begin} of the data, the tensor before it ends at {at}")
            at = end
        if at != size - 8 - length:
            raise damaged(f"{path}: its tensors have {at} bytes, its data {size - 8 - length}")
        tensors = {}
        for begin, end, name, shape, dtype in places:
            file.seek(8 + length + begin)
            tensors[name] = _to_float32(file.read(end - begin), dtype).reshape(shape)
    return tensors


def write_safetensors(path: str, tensors: "dict[str, np.ndarray[Any, Any]]") -> None:
    """Writes float32 tensors, with the metadata that transformers asks for."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + 4 * tensor.size]}
        at += 4 * tensor.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, "<f4").tobytes())
