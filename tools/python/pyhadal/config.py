"""The config of a run as an object: fields are attributes with types, documentation and defaults."""

from __future__ import annotations

import copy
import os
import re
from typing import Any, Mapping, Union

from pyhadal import program
from pyhadal.fields import RunConfig
from pyhadal.files import check_outputs, write_whole
from pyhadal.group import Group, as_text, check, unknown
from pyhadal.refusal import Refusal
from pyhadal.run import parse_config

Path = Union[str, "os.PathLike[str]"]


class Config(RunConfig):
    """The config of a run. Fields are attributes by group, as `config.model.encoder_layers = 18`, and items by path, as
    `config["model.encoder_layers"]`: the names of `--set` and of configs/*.textproto, with the same meaning.

        config = Config("small", "method/deepnorm", {"stop.steps": 1000})
        config.model.encoder_layers = 18
        config.learning_rate.peak = 1e-3
        config.write("mine.textproto")

    An unset field reads as its default, or as None where the program derives it from others; `resolved()` has every value. A
    name that is no field, or a value out of its range, raises Refusal in the program's words, with the nearest name.
    """

    _message = "RunConfig"

    def __init__(self, *sources: "Path | Mapping[str, Any] | Config"):
        """`sources`, later ones over earlier ones, field by field (a list is replaced as a whole): a path of a .textproto or of
        a run directory; the name of a ready-made config, as "base" or "method/deepnorm" (configs/README.md lists them); a
        mapping from paths of fields to values; a Config, which is copied. Raises Refusal for what cannot be read."""
        super().__init__({}, "")
        for source in sources:
            if isinstance(source, Config):
                self.update(source.values())
            elif isinstance(source, Mapping):
                self.update(source)
            else:
                self._read(os.fspath(source))

    def _read(self, name: str) -> None:
        path = name
        if not os.path.exists(path) and not name.endswith(".textproto"):
            try:
                path = program.shipped("configs", *f"{name}.textproto".split("/"))
            except Refusal:
                raise Refusal(f"{name}: no such file, and no ready-made config of this name; configs/README.md lists them") from None
        if os.path.isdir(path):
            path = os.path.join(path, "config.resolved.textproto")
        try:
            with open(path, encoding="utf-8") as file:
                self.update(parse_config(file.read()))
        except OSError as error:
            raise Refusal(f"{path}: {error.strerror}") from None
        except (Refusal, ValueError, IndexError, SyntaxError) as error:
            check("", path)  # the same fault in the program's words, with its line
            raise Refusal(f"{path}: {error}") from None

    def update(self, values: "Mapping[str, Any]") -> None:
        """Sets fields by their paths. Raises Refusal for the first one that is wrong; those before it are set."""
        for path, value in values.items():
            self[path] = value

    def __getitem__(self, path: str) -> Any:
        group, name = self._locate(path)
        return getattr(group, name)

    def __setitem__(self, path: str, value: object) -> None:
        group, name = self._locate(path)
        if group._fields()[name].repeated and not isinstance(value, (list, tuple)) and not hasattr(value, "tolist"):
            value = [value]
        setattr(group, name, value)

    def _locate(self, path: str) -> "tuple[Any, str]":
        group: Any = self
        *groups, name = path.split(".")
        for each in groups:
            group = getattr(group, each) if each in group._fields() else None
            if not isinstance(group, Group):
                raise unknown(path)
        if name not in group._fields():
            raise unknown(path)
        return group, name

    def values(self) -> "dict[str, Any]":
        """The fields that are set, by their paths: {"model.encoder_layers": 18, …}."""
        return copy.deepcopy(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> "Config":
        return Config(self)

    def __str__(self) -> str:
        """The text of its .textproto."""
        return "# proto-message: hadal.config.RunConfig\n" + as_text(self.values())

    def __repr__(self) -> str:
        return f"Config({self.values()!r})"

    def write(self, path: Path) -> None:
        """Writes a .textproto that `hadal train` and Config read. Raises Refusal for a file that is there and not a config."""
        path = os.fspath(path)
        own = False
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                own = file.readline().startswith("# proto-message: hadal.config.RunConfig")
        check_outputs([path], own=own, remedy="remove it, or choose another name")
        write_whole(path, str(self))

    def resolved(self) -> "Config":
        """Every value that a run of this config would use, as `hadal config show`. Raises Refusal, in the program's words, if the
        fields do not go together, as heads that do not divide d_model."""
        text = program.run(["config", "show", "/dev/stdin"], str(self))
        return Config(parse_config(re.sub(r"^( *)# (\w+: .*?)  \(from .*\)$", r"\1\2", text, flags=re.MULTILINE)))
