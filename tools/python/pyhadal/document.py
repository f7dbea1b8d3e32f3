"""Prints docs/python.md, the page of pyhadal's API, from its docstrings.

    python3 -m pyhadal.document > docs/python.md
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, Iterator

import pyhadal

_HEAD = """# Python

[//]: # (Made by `python3 -m pyhadal.document` from the docstrings of tools/python/pyhadal; a test compares them.)

"""
_SECTIONS = {
    "Configs": ["Config"],
    "Text": ["prepare", "Corpus"],
    "Training": ["train", "JobError", "submit"],
    "Runs": ["Run", "Status", "Picture", "read_metrics"],
    "Models": ["Hypothesis"],
    "Before and beside training": ["plan", "Plan", "compare"],
    "Errors and tables": ["Refusal", "Table", "Cell"],
}
_SPECIAL = ("__getitem__", "__setitem__", "__str__")


def page() -> str:
    """The text of the page. Its sections have every name of pyhadal.__all__."""
    assert sorted(name for names in _SECTIONS.values() for name in names) == sorted(pyhadal.__all__)
    text = _HEAD + _body(pyhadal.__doc__ or "")
    for section, names in _SECTIONS.items():
        text += f"\n## {section}\n"
        for name in names:
            value = getattr(pyhadal, name)
            text += f"\n### {_call(name, value)}\n\n{_body(inspect.getdoc(value) or '')}"
            if inspect.isclass(value):
                text += "".join(_members(value))
    return text


def _members(owner: type) -> "Iterator[str]":
    """The constructor's text, and the public methods and properties with documentation of the class and its bases in this package."""
    constructor = vars(owner).get("__init__")
    if constructor is not None and constructor.__doc__:
        yield f"\n{_body(inspect.getdoc(constructor) or '')}"
    seen: "set[str]" = set()
    for base in owner.__mro__:
        if not base.__module__.startswith("pyhadal") or base.__module__ in ("pyhadal.fields", "pyhadal.group"):
            continue
        if base is not owner and not issubclass(owner, Exception):
            yield f"\n{_body(inspect.getdoc(base) or '')}"
        for name, value in vars(base).items():
            function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
            if name in seen or (name.startswith("_") and name not in _SPECIAL) or not inspect.isfunction(function) or not function.__doc__:
                continue
            seen.add(name)
            is_call = inspect.isfunction(value) or isinstance(value, classmethod)
            head = _call(name, function) if is_call else f"`{name}`{_returns(function)}"
            yield f"\n**{head}**\n\n{_body(inspect.getdoc(function) or '')}"


def _call(name: str, value: Any) -> str:
    if inspect.isclass(value) and (dataclasses.is_dataclass(value) or "__init__" not in vars(value) or issubclass(value, Exception)):
        return f"`{name}`"
    signature = inspect.signature(value)
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values() if each.name not in ("self", "cls")]
    words = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return f"`{name}{words}`{'' if inspect.isclass(value) else _returns(value)}"


def _returns(function: Any) -> str:
    returned = inspect.signature(function).return_annotation
    text = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
    text = text.strip("\"'")
    return "" if text in ("None", "_empty", "") else f" → `{text}`"


def _body(doc: str) -> str:
    """A docstring as Markdown: indented lines stay code, and lines of two columns become a table."""
    rows = re.sub(r"^(\S[^\n]*?) {2,}(\S.*)$", r"| `\1` | \2 |", doc.strip(), flags=re.MULTILINE)
    rows = re.sub(r"(?<=\n\n)(?=\| `)", "| name | what |\n|---|---|\n", rows)
    return rows + "\n"


if __name__ == "__main__":
    print(page(), end="")
