"""Prints docs/python.md, the page of pyhadal's API, from its docstrings.

    python3 -m pyhadal.document > docs/python.md
"""

from __future__ import annotations

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


def page() -> str:
    """The text of the page. Its sections have every name of pyhadal.__all__."""
    assert sorted(name for names in _SECTIONS.values() for name in names) == sorted(pyhadal.__all__)
    text = _HEAD + _body(pyhadal)
    for section, names in _SECTIONS.items():
        text += f"\n## {section}\n"
        for name in names:
            value = getattr(pyhadal, name)
            has_arguments = not inspect.isclass(value) or (vars(value).get("__init__") and vars(value)["__init__"].__doc__)
            text += f"\n### {_head(name, value, bool(has_arguments))}\n\n{_body(value)}"
            text += "".join(_members(value)) if inspect.isclass(value) else ""
    return text


def _members(owner: type) -> "Iterator[str]":
    """The constructor's text, and the public methods and properties with documentation of the class and its bases in this package."""
    if vars(owner).get("__init__") and vars(owner)["__init__"].__doc__:
        yield f"\n{_body(owner.__init__)}"  # type: ignore[misc]
    for base in owner.__mro__:
        if not base.__module__.startswith("pyhadal") or base.__module__ in ("pyhadal.fields", "pyhadal.group"):
            continue
        if base is not owner and not issubclass(owner, Exception):
            yield f"\n{_body(base)}"
        for name, value in vars(base).items():
            function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
            if (not name.startswith("_") or name == "__str__") and inspect.isfunction(function) and function.__doc__:
                yield f"\n**{_head(name, function, inspect.isfunction(value) or isinstance(value, classmethod))}**\n\n{_body(function)}"


def _head(name: str, value: Any, has_arguments: bool) -> str:
    """The name, its arguments without their types, and the type of what it returns."""
    if not has_arguments and inspect.isclass(value):
        return f"`{name}`"
    signature = inspect.signature(value)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values() if each.name not in ("self", "cls")]
    words = str(signature.replace(parameters=parameters, return_annotation=signature.empty)) if has_arguments else ""
    returned = "" if inspect.isclass(value) else str(signature.return_annotation).strip("\"'")
    return f"`{name}{words}`" + (f" → `{returned}`" if returned not in ("", "None") else "")


def _body(documented: Any) -> str:
    """A docstring as Markdown: indented lines stay code, and lines of two columns become a table."""
    rows = re.sub(r"^(\S[^\n]*?) {2,}(\S.*)$", r"| `\1` | \2 |", (inspect.getdoc(documented) or "").strip(), flags=re.MULTILINE)
    return re.sub(r"(?<=\n\n)(?=\| `)", "| name | what |\n|---|---|\n", rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
