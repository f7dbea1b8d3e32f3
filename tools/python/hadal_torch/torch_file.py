"""Reads what torch.save wrote, without PyTorch and without executing anything in it: tensors become NumPy arrays.

torch.load cannot be restricted in every version (1.13 ignores its pickle_module, and its weights_only refuses argparse.Namespace,
which fairseq stores). A pickle is a program that calls what it names; here it can name only the list below.

    since PyTorch 1.6   a zip archive: NAME/data.pkl, and the storage of key K in NAME/data/K
    before              pickles one after the other: magic number, protocol, system, the object, the storages' keys in order; then
                        for each storage its elements (int64) and its bytes
A tensor is _rebuild_tensor_v2(storage, offset, shape, strides, …), its storage a persistent id ("storage", type, key, device, elements).
"""

from __future__ import annotations

import argparse
import collections
import math
import os
import pickle
import struct
import zipfile
import zlib
from typing import IO, Any

import numpy as np

from hadal_torch.inputs import open_regular
from hadal_torch.refusal import Refusal, damaged

_MAGIC = 0x1950A86A20F9469CFC6C
_MOST_PICKLED = 256 << 20  # bytes, without tensors
_TYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "<u2", "LongStorage": "<i8",
          "IntStorage": "<i4", "ShortStorage": "<i2", "ByteStorage": "u1", "CharStorage": "i1", "BoolStorage": "?"}
_DAMAGE = (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, struct.error, KeyError, IndexError, ValueError, TypeError,
           AttributeError, OverflowError, NotImplementedError, RuntimeError, zlib.error)


class _Ignored:
    """Stands for values of which nothing is read: devices, NumPy's scalars."""

    def __init__(self, *_: object):
        pass

    def __setstate__(self, _: object) -> None:
        pass


class _Storage:
    def __init__(self, type_name: str, elements: int):
        self.type_name, self.elements, self.data = type_name, elements, np.empty(0)

    @property
    def size(self) -> int:
        return self.elements * np.dtype(_TYPES[self.type_name]).itemsize

    def fill(self, data: bytes) -> None:
        if len(data) != self.size:
            raise ValueError(f"a storage of {self.elements} elements has {len(data)} bytes")
        self.data = np.frombuffer(data, _TYPES[self.type_name])


class _Tensor:
    def __init__(self, storage: _Storage, offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...], *_: object):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> np.ndarray[Any, Any]:
        """A copy. Raises ValueError if it reaches beyond its storage."""
        data = self.storage.data
        numbers = (self.offset, *self.shape, *self.strides)
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        if min(numbers) < 0 or len(self.shape) != len(self.strides) or (0 not in self.shape and last >= len(data)):
            raise ValueError(f"a tensor {self.shape} reaches beyond its storage of {len(data)} elements")
        if math.prod(self.shape) > len(data):
            raise ValueError(f"a tensor {self.shape} has more elements than its storage of {len(data)}")
        if 0 in self.shape:
            return np.empty(self.shape, data.dtype)
        strides = [s * data.itemsize for s in self.strides]
        view = np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, strides, writeable=False)
        if self.storage.type_name == "BFloat16Storage":  # the upper half of a float32
            return (view.astype("<u4") << 16).view("<f4")
        return view.copy()


def _parameter(tensor: _Tensor, *_: object) -> _Tensor:
    return tensor


# What a pickle may name, and what stands for it here.
_ALLOWED: "dict[tuple[str, str], Any]" = {
    ("torch._utils", "_rebuild_tensor"): _Tensor, ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter, ("torch.nn.parameter", "Parameter"): _parameter,
    ("collections", "OrderedDict"): collections.OrderedDict, ("argparse", "Namespace"): argparse.Namespace,
    ("torch", "device"): _Ignored, ("torch", "Size"): tuple, ("numpy", "dtype"): _Ignored, ("_codecs", "encode"): _Ignored,
    ("numpy.core.multiarray", "scalar"): _Ignored, ("numpy._core.multiarray", "scalar"): _Ignored,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes]):
        super().__init__(file, encoding="utf-8")
        self.storages: "dict[str, _Storage]" = {}
        self.classes: "dict[tuple[str, str], type]" = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _TYPES:
            return name
        if (module, name) not in _ALLOWED:
            raise Refusal(f"its pickle names {module}.{name}, which a checkpoint of weights does not need; nothing of it was executed. "
                          "Where you trust it, load it with PyTorch and save a dict of tensors, numbers and argparse.Namespace")
        found = _ALLOWED[module, name]
        if not isinstance(found, type):
            return found
        return self.classes.setdefault((module, name), type(name, (found,), {}))  # a pickle may set attributes of a class

    def persistent_load(self, pid: Any) -> _Storage:
        kind, type_name, key, _, elements = pid[:5]
        if kind != "storage" or (len(pid) > 5 and pid[5] is not None):
            raise ValueError(f"an unknown kind of storage, {kind}")
        return self.storages.setdefault(str(key), _Storage(type_name, int(elements)))


def _read_zip(file: IO[bytes]) -> Any:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        root = next((name[: -len("data.pkl")] for name in names if name.endswith("/data.pkl")), None)
        if root is None or root + "constants.pkl" in names:
            raise Refusal("a zip archive, but not of torch.save (TorchScript programs are not read)")
        packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise Refusal(f"its entry {packed[0]} is compressed, and torch.save compresses nothing; load it with PyTorch where you trust it, "
                          "and save it again")
        if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
            raise ValueError("its entries have more bytes than the file")
        if archive.getinfo(root + "data.pkl").file_size > _MOST_PICKLED:
            raise ValueError(f"its pickle has more than {_MOST_PICKLED} bytes")
        with archive.open(root + "data.pkl") as pickled:
            unpickler = _Unpickler(pickled)
            value = unpickler.load()
        for key, storage in unpickler.storages.items():
            if archive.getinfo(f"{root}data/{key}").file_size != storage.size:
                raise ValueError(f"a storage of {storage.elements} elements is of another size")
            storage.fill(archive.read(f"{root}data/{key}"))
    return value


def _read_sequence(file: IO[bytes]) -> Any:
    if _Unpickler(file).load() != _MAGIC:
        raise ValueError("no magic number")
    _Unpickler(file).load()
    _Unpickler(file).load()
    unpickler = _Unpickler(file)
    value = unpickler.load()
    for key in _Unpickler(file).load():
        storage = unpickler.storages[str(key)]
        (elements,) = struct.unpack("<q", file.read(8))
        if elements != storage.elements:
            raise ValueError(f"a storage of {storage.elements} elements has {elements}")
        if storage.size > os.fstat(file.fileno()).st_size:
            raise ValueError(f"a storage of {storage.elements} elements has more bytes than the file")
        storage.fill(file.read(storage.size))
    return value


def _arrays(value: Any, seen: "dict[int, Any]") -> Any:
    """`value` with its tensors as arrays; what occurs several times is converted once, in `seen`."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, _Tensor):
        seen[id(value)] = value.array()
    elif isinstance(value, dict):
        seen[id(value)] = {key: _arrays(item, seen) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        seen[id(value)] = [_arrays(item, seen) for item in value]
    else:
        return value
    return seen[id(value)]


def read_torch_file(path: str) -> Any:
    """The object that torch.save wrote. Raises Refusal for what is not on the list, and for damage."""
    with open_regular(path) as file:
        try:
            is_zip = zipfile.is_zipfile(file)
            file.seek(0)
            return _arrays(_read_zip(file) if is_zip else _read_sequence(file), {})
        except Refusal as refusal:
            raise Refusal(f"{path}: {refusal}", refusal.exit_code) from None
        except _DAMAGE as error:
            raise damaged(f"{path} is no file of torch.save, or a damaged one ({error})") from None
