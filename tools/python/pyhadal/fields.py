"""The classes of a config's groups, made from configs/run.proto: RunConfig, Model, Block, Residual, …

Type checkers and editors read fields.pyi in its place, which `python3 -m pyhadal.schema` prints (the wheel has it).
"""

from __future__ import annotations

from pyhadal import schema
from pyhadal.group import Attribute, Group

for _name, (_doc, _fields) in schema.messages().items():
    globals()[_name] = type(_name, (Group,), {"__doc__": _doc, "__module__": __name__, "_message": _name,
                                              **{field.name: Attribute(field) for field in _fields.values()}})
