"""Reads and writes safetensors files as NumPy arrays.

Format: 8 bytes with the header's length, a JSON header name → {"dtype", "shape", "data_offsets"}, the tensors' bytes.
"""

import json
import os
import struct

import numpy as np

_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}


def _to_float32(data: bytes, dtype: str) -> np.ndarray:
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype]).astype(np.float32)


def read_safetensors(path: str) -> "dict[str, np.ndarray]":
    """name → float32 array. Raises ValueError, naming file and tensor, for a damaged file or a type that is no float."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if length > size - 8:
            raise ValueError(f"{path} is no safetensors file, or a truncated one")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: the header is not JSON ({error})") from None
        start = 8 + length
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], entry["dtype"]
            if dtype not in _WIDTHS:
                raise ValueError(f"{path}: {name} has the type {dtype}; readable are {', '.join(_WIDTHS)}")
            elements = int(np.prod(shape, dtype=np.int64))
            if not (0 <= begin <= end <= size - start and end - begin == elements * _WIDTHS[dtype]):
                raise ValueError(f"{path}: {name} {shape} has the bytes {begin} to {end} of {size - start}")
            file.seek(start + begin)
            tensors[name] = _to_float32(file.read(end - begin), dtype).reshape(shape)
    return tensors


def write_safetensors(path: str, tensors: "dict[str, np.ndarray]") -> None:
    """Writes float32 tensors, with the metadata that transformers asks for."""
    header: dict = {"__metadata__": {"format": "pt"}}
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
