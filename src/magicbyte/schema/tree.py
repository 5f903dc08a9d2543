"""The checked tree: the content of a valid schema file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from magicbyte.schema.versions import Versions

INTEGER_BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
"""The integer types and how many bits they have."""

Bits = Literal[16, 32, 64]

ENCODABLE_BITS: Final[dict[str, Bits]] = {"int16": 16, "int32": 32, "int64": 64}
"""The types that may have an `encoding`, and how many bits they have."""

PRIMITIVE_TYPES: Final = ("bool", *INTEGER_BITS, "float64", "uuid", "string", "bytes", "records")
"""The types that are no structs."""

FIXED_SIZES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip
"""The sizes of fixed-size types in bytes, unless an `encoding` changes them."""

Default = bool | int | float | str | None
"""A field's value if the file or the version has none: parsed; a UUID as Kafka's text, 22 letters of base64."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in a file; lines and columns count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of an integer on the wire (KIP-625).

    `fixed` is big-endian two's complement; `packed` is the zigzag form, `unpacked` the plain bits of the number, each
    as LEB128. Its text is the name in the file, such as `packed32`.
    """

    kind: Literal["fixed", "packed", "unpacked"]
    bits: Bits

    @property
    def max_bytes(self) -> int:
        """The maximum size of a value in bytes."""
        return self.bits // 8 if self.kind == "fixed" else -(-self.bits // 7)

    def __str__(self) -> str:
        return f"{self.kind}{self.bits}"


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field's type: the name of a primitive or of a struct, and whether it is an array of those."""

    name: str
    array: bool = False
    struct: bool = False

    def __str__(self) -> str:
        return f"[]{self.name}" if self.array else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """One field of a struct or of a message.

    `encodings` are those of the field, or of the elements of an array; () if the type determines the form. Together
    they cover `versions` without overlap. `flexible_versions` is the override of the message's, or None. `default` of
    an array, of bytes or of a struct is None if the file says `null`; otherwise (empty, or a struct of defaults) see
    `null_by_default`.
    """

    name: str
    type: FieldType
    versions: Versions
    nullable_versions: Versions
    tag: int | None
    tagged_versions: Versions
    default: Default
    null_by_default: bool
    ignorable: bool
    map_key: bool
    entity_type: str | None
    flexible_versions: Versions | None
    zero_copy: bool
    about: str
    encodings: tuple[tuple[Versions, Encoding], ...]
    place: SourcePlace

    @property
    def json_name(self) -> str:
        """The name with a lower-case first letter: its key in Kafka's JSON form of a message."""
        return self.name[:1].lower() + self.name[1:]

    def encoding_at(self, version: int) -> Encoding | None:
        """Return the encoding of the field, or of its elements, in `version`; None if the type determines it."""
        return next((encoding for versions, encoding in self.encodings if version in versions), None)


@dataclass(frozen=True, slots=True)
class StructSchema:
    """A struct, named once in a file: inline at the field of this type, or among the `commonStructs`."""

    name: str
    versions: Versions
    fields: tuple[FieldSchema, ...]
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """A whole file. `structs` has every struct by name, in the order of the file."""

    api_key: int | None
    type: str
    name: str
    valid_versions: Versions
    deprecated_versions: Versions
    flexible_versions: Versions
    listeners: tuple[str, ...]
    latest_version_unstable: bool
    structs: dict[str, StructSchema]
    fields: tuple[FieldSchema, ...]
    path: str
    about: str = ""
