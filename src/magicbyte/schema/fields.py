"""Parse one field of a schema file: its keys, and the rules for a single field."""

from __future__ import annotations

import base64
import binascii
import math
import re
from dataclasses import dataclass
from typing import Final

from magicbyte.schema.encodings import read_encodings
from magicbyte.schema.errors import Rule
from magicbyte.schema.objects import Fields, KeyKind, SchemaReport, described, did_you_mean, place_of, quoted
from magicbyte.schema.scan import Value
from magicbyte.schema.tree import INTEGER_BITS, PRIMITIVE_TYPES, Default, Encoding, FieldSchema, FieldType
from magicbyte.schema.versions import Versions

FIELD_KEYS: Final[dict[str, KeyKind]] = {
    "name": "text",
    "type": "text",
    "versions": "versions",
    "nullableVersions": "versions",
    "default": "scalar",
    "ignorable": "boolean",
    "mapKey": "boolean",
    "entityType": "text",
    "tag": "integer",
    "taggedVersions": "versions",
    "flexibleVersions": "versions",
    "zeroCopy": "boolean",
    "fields": "list",
    "about": "text",
    "encoding": "any",
    "elementEncoding": "any",
}
"""The keys of a field."""

ENTITY_TYPES: Final = {
    "brokerId": "int32",
    "topicName": "string",
    "groupId": "string",
    "transactionalId": "string",
    "producerId": "int64",
    "unknown": None,
}
"""The entity types of fields, and the type that each requires; None for any."""

ZERO_UUID: Final = "A" * 22
"""The UUID of 16 zero bytes, as Kafka writes it."""

_JAVA_TYPES: Final = {
    "boolean": "bool", "byte": "int8", "short": "int16", "int": "int32", "long": "int64", "double": "float64",
    "float": "float64",
}  # fmt: skip
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_STRUCT_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_HEXADECIMAL = re.compile(r"0x[0-9A-Fa-f]{1,16}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Around:
    """The context of a field: the message's flexible versions, None if unknown, and the path of the field."""

    flexible_versions: Versions | None
    way: str
    top_level: bool


class FieldReader:
    """Read one field; `schema` is None if it is invalid, `type` if its type is."""

    def __init__(self, value: Value, around: Around, report: SchemaReport) -> None:
        name = next(
            (each.value.text for each in value.members if each.key == "name" and each.value.kind == "string"), ""
        )
        self.way = f"{around.way}.{name}" if name else around.way
        self.keys = Fields(value, FIELD_KEYS, report, self.way)
        self._around, self._report = around, report
        self.name = self._name()
        self.type = self._type()
        self.schema = self._schema() if self.name is not None and self.type is not None else None

    def add(self, rule: Rule, key: str, *, expected: str, found: str, mend: str) -> None:
        """Report that the value of `key` breaks `rule`."""
        self._report.add(rule, self.keys.at_key(key), self.way, expected=expected, found=found, mend=mend)

    def _name(self) -> str | None:
        self.keys.require("name", 'write "name": "…"')
        name = self.keys.text("name")
        if name is not None and not _FIELD_NAME.fullmatch(name):
            self.add(
                Rule.NAME, "name", expected="a name of letters and digits that begins with a letter",
                found=quoted(name), mend="rename it",
            )  # fmt: skip
        return name

    def _type(self) -> FieldType | None:
        self.keys.require("type", 'write "type": "int32", for example')
        text = self.keys.text("type")
        if text is None:
            return None
        name = text.strip()
        array = name.startswith("[]")
        name = name[2:].strip() if array else name
        if name in PRIMITIVE_TYPES and not (array and name == "records"):
            return FieldType(name, array)
        if _STRUCT_NAME.fullmatch(name):
            return FieldType(name, array, struct=True)
        self.add(
            Rule.TYPE, "type", expected="the name of a type, of a struct, or [] and one of them", found=quoted(text),
            mend=_meant_type(name),
        )  # fmt: skip
        return None

    def _schema(self) -> FieldSchema:
        assert self.name is not None, "the caller looked"
        assert self.type is not None, "the caller looked"
        keys = self.keys
        tagged = keys.versions("taggedVersions") or Versions.NONE
        versions = keys.versions("versions")
        if versions is None and not tagged.is_empty:
            versions = tagged
        elif versions is None and not keys.has_bad("taggedVersions"):
            keys.require("versions", 'write "versions": "0+", or the versions that have the field')
        nullable = self._nullable()
        default, null = self._default(nullable, versions)
        override = self._override()
        tag = self._tag(tagged, versions, nullable, override)
        self._check_rest()
        return FieldSchema(
            name=self.name,
            type=self.type,
            versions=versions or Versions.NONE,
            nullable_versions=nullable,
            tag=tag,
            tagged_versions=tagged,
            default=default,
            null_by_default=null,
            ignorable=keys.boolean("ignorable"),
            map_key=keys.boolean("mapKey"),
            entity_type=self._entity_type(),
            flexible_versions=override,
            zero_copy=keys.boolean("zeroCopy"),
            about=keys.text("about") or "",
            encodings=self._encodings(versions),
            place=place_of(self._report, keys.at),
        )

    def _nullable(self) -> Versions:
        nullable = self.keys.versions("nullableVersions") or Versions.NONE
        type_ = self.type
        assert type_ is not None, "the caller looked"
        if not nullable.is_empty and not (type_.array or type_.struct or type_.name in {"string", "bytes", "records"}):
            self.add(
                Rule.NULLABLE, "nullableVersions", expected="a string, bytes, records, an array or a struct",
                found=f"type {quoted(str(type_))}", mend='remove "nullableVersions"',
            )  # fmt: skip
        return nullable

    def _override(self) -> Versions | None:
        """Return the field's own flexible versions, or None."""
        override = self.keys.versions("flexibleVersions")
        if override is None:
            return None
        type_, message = self.type, self._around.flexible_versions
        assert type_ is not None, "the caller looked"
        if type_.array or type_.name not in {"string", "bytes"}:
            self.add(
                Rule.FLEXIBLE_OVERRIDE, "flexibleVersions", expected="a field of type string or bytes",
                found=f"type {quoted(str(type_))}", mend='remove "flexibleVersions" from the field',
            )  # fmt: skip
        elif message is not None and not override.issubset(message):
            self.add(
                Rule.FLEXIBLE_OVERRIDE, "flexibleVersions", expected=f'some of the message\'s, "{message}"',
                found=f'"{override}"', mend=f'write "none" or some of "{message}"',
            )  # fmt: skip
        return override

    def _tag(
        self, tagged: Versions, versions: Versions | None, nullable: Versions, override: Versions | None
    ) -> int | None:
        keys, tag = self.keys, self.keys.integer("tag")
        if tag is None:
            if not tagged.is_empty and not keys.has_bad("tag"):
                self.add(
                    Rule.TAG, "taggedVersions", expected='"tag" together with "taggedVersions"', found="none",
                    mend='write "tag": 0, or the next number that the struct has free',
                )  # fmt: skip
            return None
        if not 0 <= tag < 2**31:
            self.add(Rule.TAG, "tag", expected="a tag from 0 on", found=str(tag), mend="take the next free number")
        if tagged.is_empty:
            if not keys.has_bad("taggedVersions"):
                mend = 'write "taggedVersions": "0+", or from which version on'
                self.add(Rule.TAG, "tag", expected='"taggedVersions" together with "tag"', found="none", mend=mend)
            return tag
        for expected, holds, mend in (
            ("an open-ended range", tagged.open_ended, f'write "{tagged.lowest}+"'),
            (f'some of the field\'s versions, "{versions}"', versions is None or tagged.issubset(versions),
             "widen versions, or tag fewer"),
            (*self._flexible(tagged, override), "only flexible versions can have tags"),
            ("all tagged versions nullable, or none", (tagged & nullable) in (tagged, Versions.NONE),
             f'make "nullableVersions" cover "{tagged}", or none of it'),
            ("no records among tagged fields", str(self.type) != "records", 'make it "bytes", or take out the tag'),
        ):  # fmt: skip
            if not holds:
                self.add(Rule.TAG, "taggedVersions", expected=expected, found=f'"{tagged}"', mend=mend)
        if keys.boolean("mapKey"):
            mend = 'remove "mapKey" or the tag'
            self.add(Rule.MAP_KEY, "mapKey", expected="a key that is not tagged", found=f"tag {tag}", mend=mend)
        return tag

    def _flexible(self, tagged: Versions, override: Versions | None) -> tuple[str, bool]:
        flexible = self._around.flexible_versions if override is None else override
        return f'some of the flexible versions, "{flexible}"', flexible is None or tagged.issubset(flexible)

    def _entity_type(self) -> str | None:
        entity, type_ = self.keys.text("entityType"), self.type
        assert type_ is not None, "the caller looked"
        if entity is None:
            return None
        if entity not in ENTITY_TYPES:
            mend = did_you_mean(entity, ENTITY_TYPES) or "take one of these, or remove it"
            self.add(Rule.ENTITY_TYPE, "entityType", expected=", ".join(ENTITY_TYPES), found=quoted(entity), mend=mend)
        elif ENTITY_TYPES[entity] not in {None, type_.name}:
            expected = f"type {ENTITY_TYPES[entity]} for {entity}"
            mend = "change the type, or remove the entityType"
            self.add(Rule.ENTITY_TYPE, "entityType", expected=expected, found=f"type {quoted(str(type_))}", mend=mend)
        return entity

    def _check_rest(self) -> None:
        keys, type_ = self.keys, self.type
        if keys.boolean("zeroCopy") and str(type_) != "bytes":
            self.add(
                Rule.ZERO_COPY, "zeroCopy", expected="a field of type bytes", found=f"type {quoted(str(type_))}",
                mend='remove "zeroCopy"',
            )  # fmt: skip
        if keys.boolean("mapKey") and self._around.top_level:
            self.add(
                Rule.MAP_KEY, "mapKey", expected="a field of a struct that an array holds",
                found="a field of the message itself", mend='remove "mapKey"',
            )  # fmt: skip

    def _encodings(self, versions: Versions | None) -> tuple[tuple[Versions, Encoding], ...]:
        type_ = self.type
        assert type_ is not None, "the caller looked"
        found: tuple[tuple[Versions, Encoding], ...] = ()
        for key in ("encoding", "elementEncoding"):
            value = self.keys.value(key)
            if value is not None:
                found += read_encodings(key, value, type_, versions, self._report, self.way)
        return found

    # ---- defaults

    def _default(self, nullable: Versions, versions: Versions | None) -> tuple[Default, bool]:
        """Return the default, and whether it is null.

        JSON's own `null`, and an empty text, count as no default, as in Kafka's generator.
        """
        type_, value = self.type, self.keys.value("default")
        assert type_ is not None, "the caller looked"
        text = "" if value is None or value.kind == "null" else value.text
        if str(type_) == "records":
            return None, True
        compound = type_.array or type_.struct or type_.name == "bytes"
        if text == "null" and (compound or type_.name == "string"):
            if versions is not None and not versions.issubset(nullable):
                self.add(
                    Rule.DEFAULT, "default", expected="null only where every version of the field may be null",
                    found=f'"nullableVersions" of "{nullable}" and "versions" of "{versions}"',
                    mend=f'write "nullableVersions": "{versions}", or another default',
                )  # fmt: skip
            return None, True
        if compound:
            if text:
                self._bad_default("null or none, as for arrays, structs and bytes", value)
            return None, False
        return self._plain_default(type_.name, text, value), False

    def _plain_default(self, name: str, text: str, value: Value | None) -> Default:
        if name == "string":
            return text
        if name == "bool":
            if text.lower() not in {"", "true", "false"}:
                self._bad_default("true or false", value)
            return text.lower() == "true"
        if name in INTEGER_BITS:
            return self._integer_default(name, text or "0", value)
        if name == "float64":
            number = float(text or "0") if _FLOAT.fullmatch(text or "0") else math.inf
            if not math.isfinite(number):
                self._bad_default("a finite number", value)
                return 0.0
            return number
        return self._uuid_default(text or ZERO_UUID, value)

    def _integer_default(self, name: str, text: str, value: Value | None) -> int:
        lowest, highest = integer_range(name)
        number = None
        if _HEXADECIMAL.fullmatch(text):
            number = int(text, 16)
        elif _DECIMAL.fullmatch(text):
            number = int(text)
        if number is None or not lowest <= number <= highest:
            self._bad_default(f"an integer from {lowest} to {highest}, in decimal or as 0x…", value)
            return 0
        return number

    def _uuid_default(self, text: str, value: Value | None) -> str:
        try:
            raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != 16:
            self._bad_default("16 bytes in base64, the letters of URLs", value)
            return ZERO_UUID
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def _bad_default(self, expected: str, value: Value | None) -> None:
        assert value is not None, "no default is a sound one"
        self.add(
            Rule.DEFAULT, "default", expected=f"{expected}, for type {self.type}", found=described(value),
            mend="write such a default, or none",
        )  # fmt: skip


def integer_range(name: str) -> tuple[int, int]:
    """Return the lowest and the highest value of an integer type."""
    bits = INTEGER_BITS[name]
    return (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _meant_type(name: str) -> str:
    if name.startswith("[]"):
        return "an array of arrays cannot be: take an array of structs that have an array"
    if name.startswith("["):
        return f'write "[]{name.strip("[]")}" for an array'
    if name == "records":
        return "an array of records cannot be: take an array of structs that have records"
    if name in _JAVA_TYPES:
        return f'did you mean "{_JAVA_TYPES[name]}"?'
    meant = did_you_mean(name, PRIMITIVE_TYPES)
    return meant or f"the types are {', '.join(PRIMITIVE_TYPES)}; a struct's name begins with a capital letter"
