"""The Python names for the definitions of schemas."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from magicbyte.schema.tree import FieldSchema, MessageSchema

RUNTIME: Final[Mapping[str, tuple[str, ...]]] = {
    "fields": (
        "NULL_UUID", "absent", "fitting", "present", "read_array", "read_bytes", "read_nullable_array",
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
TAKEN: Final = frozenset((
    *keyword.kwlist,
    *(name for names in RUNTIME.values() for name in names),
    # modules that generated code imports, and what it imports from them
    "Sequence", "Struct", "UUID", "collections", "field", "magicbyte", "msgspec", "struct", "uuid",
    # builtins that it uses
    "bool", "bytes", "float", "int", "len", "list", "memoryview", "range", "staticmethod", "str", "tuple",
    # attributes of messages
    "encode", "read", "read_at", "read_within", "self", "size", "unknown_tags", "write",
))  # fmt: skip
"""The names that generated code needs for itself: no field, struct or module has one of them.

The class of a message keeps even such a name, because it is found by it: what the module imports yields (`imported`).
"""


def snake(name: str) -> str:
    """Return a name such as `TopicId` as `topic_id`."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def attributes(fields: Iterable[FieldSchema]) -> dict[str, str]:
    """Return the attributes that hold the fields of a struct, by the fields' names."""
    chosen_names: dict[str, str] = {}
    for field in fields:
        name = snake(field.name)
        while name in chosen_names.values() or name in TAKEN:
            name += "_"
        chosen_names[field.name] = name
    return chosen_names


def module_name(name: str) -> str:
    """Return the module for messages with this common part of their names, without `.py`."""
    module = snake(name)
    return f"{module}_" if module in TAKEN else module


def message_class(name: str) -> str:
    """Return the class of a message: its own name, unless that is one of Python's words, such as `None`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def imported(name: str, messages: Iterable[MessageSchema]) -> str:
    """Return the name of something imported, in the module of `messages`: one of them may have its name."""
    return f"_{name}" if any(message.name == name for message in messages) else name


def class_names(messages: Sequence[MessageSchema]) -> dict[tuple[str, str], str]:
    """Return the classes of the structs in a module, by the names of message and struct.

    A struct keeps its name if it is unique; otherwise the message's name is prefixed.
    """
    taken = {message.name for message in messages}
    names = [name for message in messages for name in message.structs]
    chosen_names: dict[tuple[str, str], str] = {}
    for message in messages:
        for name in message.structs:
            unique = names.count(name) == 1 and name not in taken and name not in TAKEN
            chosen = name if unique else f"{message.name}{name}"
            while chosen in chosen_names.values() or (not unique and chosen in names) or chosen in taken | TAKEN:
                chosen += "_"
            chosen_names[message.name, name] = chosen
    return chosen_names
