"""The Python names for the definitions of schemas."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from magicbyte.schema.tree import FieldSchema, MessageSchema

RUNTIME: Final[Mapping[str, tuple[str, ...]]] = {
    "fields": (
        "NULL_UUID", "absent", "fitting", "new", "present", "read_array", "read_bytes", "read_nullable_array",
        "read_nullable_bytes", "read_nullable_numbers", "read_nullable_string", "read_nullable_struct",
        "read_nullable_structs", "read_nullable_varints", "read_nullable_view", "read_numbers", "read_packed",
        "read_string", "read_structs", "read_tags", "read_unknown_tags", "read_unpacked", "read_uuid", "read_varints",
        "read_view", "unknown", "whole", "write_array", "write_bytes", "write_nullable_bytes",
        "write_nullable_records", "write_nullable_string", "write_nullable_struct", "write_numbers", "write_packed",
        "write_records", "write_string", "write_structs", "write_tags", "write_unpacked", "write_uuid",
    ),
    "message": (
        "Message", "Records", "Tags", "Writer",
    ),
    "rows": (
        "Rows", "Shapes", "read_nullable_rows", "read_rows",
    ),
}  # fmt: skip
"""The names that modules may import, by module of `protocol/`, in ruff's order of imports."""
TAKEN_ATTRIBUTES: Final = frozenset((
    "bool", "bytes", "dataclass", "encode", "field", "float", "int", "list", "range", "read", "read_at", "self", "size",
    "str", "tuple", "unknown_tags", "write",
))  # fmt: skip
TAKEN_CLASSES: Final = frozenset(
    (*(name for names in RUNTIME.values() for name in names), "ClassVar", "Sequence", "UUID", "None", "True", "False")
)


def snake(name: str) -> str:
    """Return a name such as `TopicId` as `topic_id`."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def attributes(fields: Iterable[FieldSchema]) -> dict[str, str]:
    """Return the attributes that hold the fields of a struct, by the fields' names."""
    chosen_names: dict[str, str] = {}
    for field in fields:
        name = snake(field.name)
        while name in chosen_names.values() or name in TAKEN_ATTRIBUTES or keyword.iskeyword(name):
            name += "_"
        chosen_names[field.name] = name
    return chosen_names


def class_names(messages: Sequence[MessageSchema]) -> dict[tuple[str, str], str]:
    """Return the classes of the structs in a module, by the names of message and struct.

    A struct keeps its name if it is unique; otherwise the message's name is prefixed.
    """
    taken = {message.name for message in messages}
    names = [name for message in messages for name in message.structs]
    chosen_names: dict[tuple[str, str], str] = {}
    for message in messages:
        for name in message.structs:
            unique = names.count(name) == 1 and name not in taken and name not in TAKEN_CLASSES
            chosen = name if unique else f"{message.name}{name}"
            while (
                chosen in chosen_names.values() or (not unique and chosen in names) or chosen in taken | TAKEN_CLASSES
            ):
                chosen += "_"
            chosen_names[message.name, name] = chosen
    return chosen_names
