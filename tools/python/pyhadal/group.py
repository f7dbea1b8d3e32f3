"""A group of a config's fields as a Python object: the base of the classes of pyhadal.fields."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyhadal import program, schema
from pyhadal.refusal import Refusal


class Attribute:
    """A field as an attribute of a class: reads its value, its default if it is not set, or the group of its fields."""

    def __init__(self, field: schema.Field):
        self.field = field
        limits = f", in {field.range}" if field.range else ""
        self.__doc__ = field.doc + ("" if field.type is None else f"\n\n{field.annotation()}{limits}, default {field.default!r}")

    def __get__(self, group: "Group | None", owner: type) -> Any:
        if group is None:
            return self
        if self.field.type is None:
            return group._subgroup(self.field)
        value = group._values.get(group._path + self.field.name, self.field.default)
        return tuple(value) if self.field.repeated else value  # not a list: what is appended to it would be lost

    def __set__(self, group: "Group", value: object) -> None:
        group._set(self.field, value)


class Group:
    """Fields of a config. A field that is not set has its default; None: the program derives the value from other fields."""

    _message = ""

    def __init__(self, values: "dict[str, Any]", path: str):
        object.__setattr__(self, "_values", values)  # of the whole config, by path; only those that are set
        object.__setattr__(self, "_path", path)

    if TYPE_CHECKING:  # the stub has all names: to a type checker another one is an error
        _values: "dict[str, Any]"
        _path: str
    else:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise _Unknown(str(unknown(self._path + name)))

        def __setattr__(self, name: str, value: object) -> None:
            if name not in self._fields():
                raise unknown(self._path + name)
            object.__setattr__(self, name, value)

        def __delattr__(self, name: str) -> None:
            """Makes a field, or all of a group, unset: it has its default again."""
            path = self._path + name
            for each in [each for each in self._values if each == path or each.startswith(path + ".")]:
                del self._values[each]

    def __dir__(self) -> "list[str]":
        return [*self._fields(), *(name for name in super().__dir__() if name not in self._fields())]

    def __repr__(self) -> str:
        own = {path[len(self._path):]: value for path, value in self._values.items() if path.startswith(self._path)}
        return f"{type(self).__name__}({', '.join(f'{path}={value!r}' for path, value in own.items())})"

    @classmethod
    def _fields(cls) -> "dict[str, schema.Field]":
        return schema.messages()[cls._message][1]

    def _subgroup(self, field: schema.Field) -> "Group":
        from pyhadal import fields

        group: Group = getattr(fields, field.group)(self._values, f"{self._path}{field.name}.")
        return group

    def _set(self, field: schema.Field, value: object) -> None:
        path = self._path + field.name
        if field.type is None:
            raise Refusal(f"{path} is a group; set its fields, as config.{path}.{next(iter(schema.messages()[field.group][1]))}")
        if value is None:
            self._values.pop(path, None)
            return
        value = plain(value)
        if not field.accepts(value):
            try:
                check(as_text({path: value}))
            except TypeError:  # no JSON: a set, a Decimal, None within a list …
                raise Refusal(f"{path} = {value!r} is not allowed; give {field.annotation()}") from None
        for other in field.excludes:
            self._values.pop(self._path + other, None)
        self._values[path] = field.type(value) if field.type in (bool, float) and isinstance(value, int) else value


class _Unknown(Refusal, AttributeError):
    """An attribute that is no field: for hasattr, and for whoever catches Refusal."""


def plain(value: object) -> object:
    """NumPy's numbers and arrays, Arrow's scalars, and paths, as Python's own."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    return list(value) if isinstance(value, tuple) else value


def unknown(path: str) -> Refusal:
    """The program's words for a path that is no field: with the nearest name."""
    try:
        check(as_text({path: 0}))
    except Refusal as refusal:
        return refusal
    return Refusal(f"there is no field {path}; the package and the program {program.find()} are of different versions")


def check(text: str, name: str = "/dev/stdin") -> None:
    """Raises Refusal, in the program's words, if a file of a config with this text could not be read: unknown names, values."""
    try:
        program.run(["config", "diff", name, "/dev/null"], text)
    except Refusal as refusal:
        raise Refusal(re.sub(r"/dev/stdin:\d+:\d+: ", "", str(refusal)), refusal.exit_code) from None


def as_text(values: "dict[str, Any]") -> str:
    """Protobuf's text format of fields by their paths."""
    tree: "dict[str, Any]" = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    return _lines(tree, "")


def _lines(tree: "dict[str, Any]", indent: str) -> str:
    return "".join(f"{indent}{name} {{\n{_lines(value, indent + '  ')}{indent}}}\n" if isinstance(value, dict) else
                   f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in tree.items())
