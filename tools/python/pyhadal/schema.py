"""The fields of a run's config, read from configs/run.proto: names, types, defaults, allowed values, documentation.

    python3 -m pyhadal.schema > fields.pyi      the classes of pyhadal.fields for type checkers and editors, beside fields.py

Of Protobuf's language this reads what run.proto uses: comments, messages, fields, oneof.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Optional

from pyhadal.program import shipped

_TYPES: "dict[str, type]" = {"bool": bool, "double": float, "string": str, "int32": int, "int64": int, "uint64": int}
_FIELD = re.compile(r"(?:(optional|repeated) )?(\w+) (\w+) = \d+(?: \[(.*)\])?")
_STRING = r'((?:"[^"]*"\s*)+)'  # one literal, or several, which are one


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a message. `type`: of a value, or None of a group; `group`: its message; `excludes`: the others of its oneof."""

    name: str
    doc: str
    type: "Optional[type]"
    group: str = ""
    repeated: bool = False
    default: Any = None
    range: str = ""
    values: "tuple[str, ...]" = ()
    excludes: "tuple[str, ...]" = ()

    def accepts(self, value: object) -> bool:
        """Whether the program would take the value, by this field's type and limits alone."""
        if self.repeated:
            one = dataclasses.replace(self, repeated=False)
            return isinstance(value, (list, tuple)) and all(one.accepts(each) for each in value)
        if self.type is float and type(value) is int:
            value = float(value)
        if self.type is None or type(value) is not self.type:
            return False
        if self.range:
            assert isinstance(value, (int, float))
            low, high = (float(end) for end in self.range[1:-1].split(","))
            return (value > low or (value == low and self.range[0] == "[")) and (value < high or (value == high and self.range[-1] == "]"))
        return not self.values or value in self.values

    def annotation(self) -> str:
        """Its type in Python's words."""
        if self.type is None:
            return self.group
        name = f"Literal[{', '.join(map(repr, self.values))}]" if self.values else self.type.__name__
        if self.repeated:
            return f"list[{name}]"
        return name if self.default is not None else f"Optional[{name}]"


@functools.lru_cache(maxsize=None)
def messages() -> "dict[str, tuple[str, dict[str, Field]]]":
    """name → (documentation, fields by name) of each message. Raises Refusal where configs/run.proto is missing."""
    with open(shipped("configs", "run.proto"), encoding="utf-8") as file:
        return parse(file.read())


def parse(text: str) -> "dict[str, tuple[str, dict[str, Field]]]":
    """`messages` of the text of a schema."""
    found: "dict[str, tuple[str, dict[str, Field]]]" = {}
    comment: "list[str]" = []
    message, statement = "", ""
    alternatives: "Optional[list[str]]" = None
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
            continue
        statement = f"{statement} {line}".strip()
        if begin := re.fullmatch(r"(message|extend|oneof) ([\w.]+) \{", statement):
            if begin[1] == "oneof":
                alternatives = []
            else:
                message = begin[2] if begin[1] == "message" else ""
                found.update({message: ("\n".join(comment), {})} if message else {})
        elif statement == "}":
            for name in alternatives or []:
                fields, others = found[message][1], [other for other in alternatives or [] if other != name]
                fields[name] = dataclasses.replace(fields[name], excludes=tuple(others))
            message, alternatives = message if alternatives is not None else "", None
        elif statement and not statement.endswith(";"):
            continue  # it goes on in the next line
        elif message and (parts := _FIELD.fullmatch(statement[:-1])):
            found[message][1][parts[3]] = _field(parts, "\n".join(comment))
            if alternatives is not None:
                alternatives.append(parts[3])
        comment, statement = [], ""
    return found


def _field(parts: "re.Match[str]", doc: str) -> Field:
    label, kind, name, options = parts[1], parts[2], parts[3], parts[4] or ""
    if kind not in _TYPES:
        return Field(name, doc, None, group=kind)
    default = re.search(rf'\bdefault = (?:{_STRING}|([^,"]+))', options)
    value: Any = None
    if label == "repeated":
        value = []
    elif default:
        value = _joined(default) if default[2] is None else default[2] == "true" if kind == "bool" else _TYPES[kind](default[2].strip())
    limits, words = (_joined(re.search(rf"\({option}\) = {_STRING}", options)) for option in ("range", "values"))
    return Field(name, doc, _TYPES[kind], repeated=label == "repeated", default=value, range=limits,
                 values=tuple(words.split(", ")) if words else ())


def _joined(literals: "Optional[re.Match[str]]") -> str:
    return "".join(re.findall('"([^"]*)"', literals[1])) if literals else ""


def stub() -> str:
    """The text of fields.pyi: a class a message, with types, and with the schema's comments as documentation."""
    text = "# Made by pyhadal.schema from configs/run.proto.\nfrom typing import Literal, Optional\n\nfrom pyhadal.group import Group\n"
    for name, (doc, fields) in messages().items():
        text += f"\n\nclass {name}(Group):\n{_docstring(doc)}"
        for field in fields.values():
            if field.type is None:
                text += f"    @property\n    def {field.name}(self) -> {field.group}:\n    {_docstring(field.doc)}        ...\n"
            else:
                text += f"    {field.name}: {field.annotation()}\n{_docstring(field.doc)}"
    return text


def _docstring(doc: str) -> str:
    escaped = doc.replace("\\", "\\\\").replace('"""', "'''").replace('"', "'")
    return '    """' + escaped.replace("\n", "\n    ") + '"""\n' if doc else ""


if __name__ == "__main__":
    print(stub(), end="")
