"""hadal's models for Python. docs/interchange.md shows how to use it; `python3 -m hadal_torch --help` is the command line.

read_plain, write_plain    what `hadal checkpoint export` writes and `hadal checkpoint import` reads
PlainModel, Refusal        their content; the error for what cannot be converted
Model                      any method as a torch module
"""

import os
import sys

# Started by hand, `python3 -m hadal_torch` executes nothing from the working folder; of a json.py there it would be a surprise.
if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()] != [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]:
    del sys.path[0]

import importlib
from typing import Any

_HOMES = {"read_plain": "plain", "write_plain": "plain", "PlainModel": "plain", "Refusal": "refusal", "Model": "model"}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:  # imported when used: Model needs torch, and the command line says by itself which package is missing
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"hadal_torch.{_HOMES[name]}"), name)
