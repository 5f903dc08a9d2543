"""Check a whole schema file: its message, its structs, and the rules between them."""

from __future__ import annotations

import difflib
import re
from typing import Final

from magicbyte.schema.errors import Rule, SchemaError
from magicbyte.schema.fields import Around, FieldReader
from magicbyte.schema.objects import Fields, KeyKind, SchemaReport, described, did_you_mean, objects, quoted
from magicbyte.schema.scan import SourceText, Value, scan
from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema
from magicbyte.schema.versions import Versions

MESSAGE_TYPES: Final = (
    "request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value",
)  # fmt: skip
LISTENERS: Final = ("zkBroker", "broker", "controller")

MESSAGE_KEYS: Final[dict[str, KeyKind]] = {
    "apiKey": "integer",
    "type": "text",
    "name": "text",
    "validVersions": "versions",
    "deprecatedVersions": "versions",
    "flexibleVersions": "versions",
    "headerVersions": "any",
    "listeners": "list",
    "latestVersionUnstable": "boolean",
    "fields": "list",
    "commonStructs": "list",
    "about": "text",
}
STRUCT_KEYS: Final[dict[str, KeyKind]] = {
    "name": "text",
    "versions": "versions",
    "deprecatedVersions": "versions",
    "fields": "list",
    "about": "text",
}
MANY_STRUCTS: Final = 200
"""The most structs that are searched for a similar name: ten thousand would take minutes."""

_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")


def check(text: str, path: str = "<text>") -> tuple[MessageSchema | None, list[SchemaError]]:
    """Parse and check a schema; return it, or None if it breaks a rule, and its errors, in the text's order.

    `path` is the file's name in errors. As many errors as possible are reported: an error hides another only if its
    subject cannot be read. A valid schema may have warnings. No text raises.
    """
    source = SourceText(text, path)
    value, errors = scan(source)
    if value is None:
        return None, errors
    report = SchemaReport(source)
    report.errors += errors
    message = None
    if value.kind == "object":
        message = _Checker(value, report).message
    else:
        report.add(Rule.JSON, value.at, "", expected="an object", found=described(value), mend="write {…}")
    return None if report.failed else message, sorted(set(report.errors))


class _Checker:
    def __init__(self, value: Value, report: SchemaReport) -> None:
        self.report = report
        self.name = next((each.value.text for each in value.members if each.key == "name"), "")
        self.keys = Fields(value, MESSAGE_KEYS, report, self.name)
        self.structs: dict[str, StructSchema] = {}
        self.common: dict[str, int] = {}
        self.uses: list[tuple[FieldSchema, int, str]] = []  # fields with structs: position of the type, way
        self.message = self._message()

    def add(self, rule: Rule, at: int, way: str, *, expected: str, found: str, mend: str) -> None:
        self.report.add(rule, at, way, expected=expected, found=found, mend=mend)

    def _wrong(self, rule: Rule, key: str, *, expected: str, found: str, mend: str) -> None:
        self.add(rule, self.keys.at_key(key), self.name, expected=expected, found=found, mend=mend)

    # ---- the message

    def _message(self) -> MessageSchema | None:
        keys = self.keys
        keys.require("name", 'write "name": "…"')
        if keys.text("name") is not None:
            self._check_name(keys.at_key("name"), self.name)
        type_ = self._type()
        valid, flexible = self._versions()
        deprecated = keys.versions("deprecatedVersions") or Versions.NONE
        self._check_for_requests(type_)
        if valid is not None and valid.is_empty:
            flexible = Versions.NONE
        api_key = self._api_key(type_)
        listeners = self._listeners()
        self._check_coordinator_key(type_, valid, flexible)
        around = Around(flexible, self.name, top_level=True)
        for value in objects(keys, "commonStructs", self.report):
            self._name_common(value)
        fields = self._fields(keys, around) if "fields" in keys or valid is None or not valid.is_empty else ()
        for value in objects(keys, "commonStructs", self.report):
            self._read_common(value, flexible)
        self._check_uses()
        if valid is None or type_ is None or self.report.failed:
            return None
        message = MessageSchema(
            api_key=api_key,
            type=type_,
            name=self.name,
            valid_versions=valid,
            deprecated_versions=deprecated,
            flexible_versions=flexible or Versions.NONE,
            listeners=listeners,
            latest_version_unstable=keys.boolean("latestVersionUnstable"),
            structs=self.structs,
            fields=fields,
            path=self.report.source.path,
            about=keys.text("about") or "",
        )
        self._check_nesting(message)
        return message

    def _type(self) -> str | None:
        self.keys.require("type", 'write "type": "request", "response" or "data", for example')
        type_ = self.keys.text("type")
        if type_ is None or type_ in MESSAGE_TYPES:
            return type_
        mend = did_you_mean(type_, MESSAGE_TYPES) or 'take "data" for a structure that is neither request nor response'
        self._wrong(Rule.MESSAGE_TYPE, "type", expected=", ".join(MESSAGE_TYPES), found=quoted(type_), mend=mend)
        return None

    def _versions(self) -> tuple[Versions | None, Versions | None]:
        """Return the valid and the flexible versions, None if they are invalid."""
        keys = self.keys
        keys.require("validVersions", 'write "validVersions": "0"')
        valid = keys.versions("validVersions")
        if valid is not None and valid.open_ended:
            self._wrong(
                Rule.VERSIONS, "validVersions", expected="a highest version", found=f'"{valid}"',
                mend=f'write "{valid.lowest}-N" with the version that is the newest',
            )  # fmt: skip
        if valid is None or not valid.is_empty:  # an API without versions is gone: only its key must stay reserved
            assumed = '"none" is assumed, as by Kafka 2.3 to 2.8; write "flexibleVersions": "none", or "0+"'
            keys.require("flexibleVersions", assumed, warning=True)
        flexible = keys.versions("flexibleVersions")
        if flexible is None and not keys.has_bad("flexibleVersions"):
            flexible = Versions.NONE
        if flexible is not None and not flexible.is_empty and not flexible.open_ended:
            self._wrong(
                Rule.FLEXIBLE_VERSIONS, "flexibleVersions", expected="none, or an open-ended range",
                found=f'"{flexible}"', mend=f'write "{flexible.lowest}+"',
            )  # fmt: skip
        return valid, flexible

    def _api_key(self, type_: str | None) -> int | None:
        key = self.keys.integer("apiKey")
        if key is None:
            if type_ in {"request", "response", "coordinator-key", "coordinator-value"}:
                self.keys.require("apiKey", 'write "apiKey" with the number of the API')
        elif type_ in {"header", "data"}:
            mend = 'remove "apiKey"'
            self._wrong(
                Rule.API_KEY, "apiKey", expected=f"none in a message of type {type_}", found=str(key), mend=mend
            )
        elif not 0 <= key <= 32767:
            mend = "take a number that is free"
            self._wrong(Rule.API_KEY, "apiKey", expected="a number from 0 to 32767", found=str(key), mend=mend)
        return key

    def _check_for_requests(self, type_: str | None) -> None:
        if type_ is None:
            return
        for key, types in (
            ("listeners", ("request",)),
            ("latestVersionUnstable", ("request",)),
            ("headerVersions", ("request", "response")),
        ):
            unset = key == "latestVersionUnstable" and not self.keys.boolean(key)
            if key in self.keys and type_ not in types and not unset:
                self._wrong(
                    Rule.REQUEST_ONLY, key, expected=f'"{key}" in a {" or a ".join(types)}',
                    found=f"type {quoted(type_)}", mend=f'remove "{key}"',
                )  # fmt: skip

    def _listeners(self) -> tuple[str, ...]:
        for item in self.keys.items("listeners"):
            if item.kind != "string" or item.text not in LISTENERS:
                mend = did_you_mean(item.text, LISTENERS) or "take it out"
                self.add(
                    Rule.LISTENERS, item.at, self.name, expected=", ".join(LISTENERS), found=described(item), mend=mend
                )
        return tuple(item.text for item in self.keys.items("listeners"))

    def _check_coordinator_key(self, type_: str | None, valid: Versions | None, flexible: Versions | None) -> None:
        if type_ != "coordinator-key":
            return
        for key, versions, only in (("validVersions", valid, "0"), ("flexibleVersions", flexible, "none")):
            if versions is not None and str(versions) != only:
                self._wrong(
                    Rule.COORDINATOR_KEY, key, expected=f'"{only}" for a coordinator-key', found=f'"{versions}"',
                    mend=f'write "{only}": the key of a record is stored without its version',
                )  # fmt: skip

    # ---- structs and their fields

    def _name_common(self, value: Value) -> None:
        """Register the name of a common struct before any field that may use it is read."""
        name = next((each.value for each in value.members if each.key == "name"), None)
        if name is None or name.kind != "string":
            return
        if name.text in self.common or name.text == self.name:
            self.add(
                Rule.SAME_STRUCT, name.at, name.text, expected="each struct once",
                found=f"{quoted(name.text)} again", mend="rename one of them",
            )  # fmt: skip
        self.common.setdefault(name.text, value.at)

    def _read_common(self, value: Value, flexible: Versions | None) -> None:
        name = next((each.value.text for each in value.members if each.key == "name"), "")
        keys = Fields(value, STRUCT_KEYS, self.report, name)
        keys.require("versions", 'write "versions": "0+", or the versions that have the struct')
        versions = keys.versions("versions")
        if not keys.require("name", 'write "name": "…"'):
            return
        self._check_name(keys.at_key("name"), name)
        keys.versions("deprecatedVersions")
        fields = self._fields(keys, Around(flexible, name, top_level=False))
        if self.common[name] == value.at:
            self.structs[name] = StructSchema(name, versions or Versions.NONE, fields, keys.text("about") or "")

    def _check_name(self, at: int, name: str) -> None:
        if not _NAME.fullmatch(name):
            self.add(
                Rule.NAME, at, name, expected="a name of letters and digits that begins with a capital letter",
                found=quoted(name), mend="rename it",
            )  # fmt: skip

    def _fields(self, keys: Fields, around: Around) -> tuple[FieldSchema, ...]:
        """Read the fields of the message or of a struct; unreadable ones are left out."""
        keys.require("fields", 'write "fields": [] where there are none')
        readers = [FieldReader(value, around, self.report) for value in objects(keys, "fields", self.report)]
        self._check_names(readers)
        self._check_tags(readers)
        for reader in readers:
            self._read_struct(reader, around)
        return tuple(reader.schema for reader in readers if reader.schema is not None)

    def _check_names(self, readers: list[FieldReader]) -> None:
        taken: dict[str, str] = {}
        for reader in readers:
            name = reader.name or ""
            if name and name.lower() in taken:
                reader.add(
                    Rule.SAME_NAME, "name", expected="names that differ by more than capital letters",
                    found=f"{quoted(name)} after {quoted(taken[name.lower()])}", mend="rename one of them",
                )  # fmt: skip
            taken.setdefault(name.lower(), name)

    def _check_tags(self, readers: list[FieldReader]) -> None:
        taken: dict[int, str] = {}
        for reader in readers:
            tag = reader.keys.integer("tag")
            if tag is not None and tag >= 0:
                if tag in taken:
                    reader.add(
                        Rule.TAG, "tag", expected="each tag once in a struct", found=f"{tag}, the tag of {taken[tag]}",
                        mend="take the next number that is free",
                    )  # fmt: skip
                taken.setdefault(tag, reader.name or "a field")
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        for reader in readers:
            tag = reader.keys.integer("tag")
            if tag is not None and tag > free:
                reader.add(
                    Rule.TAG, "tag", expected="tags that leave no number out", found=f"{tag}, and none is {free}",
                    mend=f"take {free}",
                )  # fmt: skip

    def _read_struct(self, reader: FieldReader, around: Around) -> None:
        """Read the struct that a field defines inline, and record which struct it uses."""
        type_, keys = reader.type, reader.keys
        if type_ is None:
            return
        inline = keys.value("fields") is not None
        if not type_.struct:
            if inline and keys.items("fields"):
                reader.add(
                    Rule.FIELDS, "fields", expected="fields only where the type is a struct or an array of structs",
                    found=f"type {quoted(str(type_))}", mend='remove "fields", or name a struct as the type',
                )  # fmt: skip
            return
        if reader.schema is not None:
            self.uses.append((reader.schema, keys.at_key("type"), reader.way))
        if not inline:
            return
        if type_.name in self.common:
            if keys.items("fields"):
                reader.add(
                    Rule.SAME_STRUCT, "fields", expected=f"the fields of {type_.name} in commonStructs only",
                    found="fields here, too", mend='remove "fields" here, or rename the struct',
                )  # fmt: skip
            return
        if type_.name in self.structs or type_.name == self.name:
            reader.add(
                Rule.SAME_STRUCT, "type", expected="each struct once, inline or in commonStructs",
                found=f"{quoted(type_.name)} again", mend="move it to commonStructs, or rename one of them",
            )  # fmt: skip
            return
        versions = reader.schema.versions if reader.schema is not None else Versions.NONE
        self.structs[type_.name] = StructSchema(type_.name, versions, ())  # reserves its name while it is read
        fields = self._fields(keys, Around(around.flexible_versions, reader.way, top_level=False))
        self.structs[type_.name] = StructSchema(type_.name, versions, fields, keys.text("about") or "")

    # ---- between structs

    def _check_uses(self) -> None:
        known = {*self.structs, *self.common, self.name}
        inline: dict[str, str] = {}
        for field, at, way in self.uses:
            name = field.type.name
            if name not in known:
                close = difflib.get_close_matches(name, known, 1) if len(known) < MANY_STRUCTS else []
                mend = (
                    f"did you mean {quoted(close[0])}?" if close else 'give it "fields", or put it into commonStructs'
                )
                self.add(Rule.UNKNOWN_STRUCT, at, way, expected="a struct of this file", found=quoted(name), mend=mend)
            elif name not in self.common and inline.setdefault(name, way) != way:
                self.add(
                    Rule.SAME_STRUCT, at, way, expected=f"a struct in commonStructs, as {inline[name]} has it, too",
                    found=f"{quoted(name)}, which is inline", mend="move the struct to commonStructs",
                )  # fmt: skip
        if not self.report.failed:
            self._check_recursion()

    def _check_recursion(self) -> None:
        done: set[str] = set()

        def visit(struct: StructSchema, around: tuple[str, ...]) -> None:
            for field in struct.fields:
                if field.type.name in around:
                    self._misplaced(
                        Rule.RECURSIVE_STRUCT, field, struct.name, expected="a struct that is not inside itself",
                        found=quoted(field.type.name), mend="take bytes, or another struct for the inner one",
                    )  # fmt: skip
                elif field.type.struct and field.type.name not in done:
                    visit(self.structs[field.type.name], (*around, field.type.name))
            done.add(struct.name)

        for struct in self.structs.values():
            if struct.name not in done:
                visit(struct, (struct.name,))

    def _check_nesting(self, message: MessageSchema) -> None:
        """Check that structs and tagged fields exist in at least one version, as Kafka's generator requires.

        An ordinary field without versions is no error there either: old versions may be gone.
        """

        def visit(fields: tuple[FieldSchema, ...], versions: Versions, way: str) -> None:
            for field in fields:
                present = field.versions & versions
                tagged = not field.tagged_versions.is_empty
                if (tagged and (field.tagged_versions & versions).is_empty) or (field.type.struct and present.is_empty):
                    self._misplaced(
                        Rule.NO_VERSION, field, way, expected=f'a version of its structure, "{versions}"',
                        found=f'"{field.tagged_versions if tagged else field.versions}"',
                        mend="widen its versions, or remove it",
                    )  # fmt: skip
                elif field.type.struct and field.type.name not in self.common:
                    visit(self.structs[field.type.name].fields, present, f"{way}.{field.name}")
                elif field.type.struct and (present & self.structs[field.type.name].versions).is_empty:
                    versions_of = self.structs[field.type.name].versions
                    self._misplaced(
                        Rule.NO_VERSION, field, way, expected=f'a version of {field.type.name}, "{versions_of}"',
                        found=f'"{present}"', mend="widen the versions of the struct",
                    )  # fmt: skip

        if not message.valid_versions.is_empty:
            visit(message.fields, message.valid_versions, self.name)
            for name in self.common:
                within = self.structs[name].versions & message.valid_versions
                if not within.is_empty:
                    visit(self.structs[name].fields, within, name)

    def _misplaced(self, rule: Rule, field: FieldSchema, way: str, *, expected: str, found: str, mend: str) -> None:
        place = field.place
        self.report.errors.append(
            SchemaError(place.path, place.line, place.column, f"{way}.{field.name}", rule, expected, found, mend)
        )
