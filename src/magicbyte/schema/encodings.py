"""Parse the `encoding` of integer fields (KIP-625) and the `elementEncoding` of arrays of integers, our extension."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, cast

from magicbyte.schema.errors import Rule
from magicbyte.schema.objects import SchemaReport, described, did_you_mean, quoted
from magicbyte.schema.scan import Value
from magicbyte.schema.tree import ENCODABLE_BITS, Encoding, FieldType
from magicbyte.schema.versions import Versions

Encodings = tuple[tuple[Versions, Encoding], ...]


class _EncodingRange(NamedTuple):
    """One range of the object form; `at` is the position of its key."""

    versions: Versions
    encoding: Encoding
    at: int


_NAME = re.compile(r"(fixed|packed|unpacked)(16|32|64)")
_NAMES: Final = tuple(f"{kind}{bits}" for kind in ("fixed", "packed", "unpacked") for bits in (16, 32, 64))
_SYNONYMS: Final = {"unsigned": "unpacked", "signed": "packed", "zigzag": "packed", "varint": "packed", "int": "fixed"}


def read_encodings(
    key: Literal["encoding", "elementEncoding"],
    value: Value,
    type_: FieldType,
    versions: Versions | None,
    report: SchemaReport,
    field: str,
) -> Encodings:
    """Return the encodings of a field, in the order of their versions; () if a rule is broken.

    `versions` are the field's, or None if unknown: then their coverage is not checked.
    """
    before = len(report.errors)
    if type_.array != (key == "elementEncoding") or type_.name not in ENCODABLE_BITS:
        expected, mend = _wrong_type(key, type_)
        found = f"type {quoted(str(type_))}"
        report.add(Rule.ENCODING_TYPE, value.at, field, expected=expected, found=found, mend=mend)
        return ()
    parts: list[_EncodingRange] = []
    if value.kind == "string":
        encoding = _encoding(value, type_, report, field)
        if encoding is not None and versions is not None:
            parts.append(_EncodingRange(versions, encoding, value.at))
    elif value.kind == "object":
        parts = _by_versions(value, type_, report, field)
        _check_apart(parts, report, field)
        if versions is not None and len(report.errors) == before:
            _check_cover(parts, value, versions, report, field)
    else:
        report.add(
            Rule.ENCODING_FORM, value.at, field, expected="the name of an encoding, or an object of version ranges",
            found=described(value), mend='write "packed32" or {"0-9": "fixed32", "10+": "packed32"}, for example',
        )  # fmt: skip
    if len(report.errors) > before:
        return ()
    return tuple((part.versions, part.encoding) for part in sorted(parts, key=lambda part: part.versions.lowest))


def _wrong_type(key: str, type_: FieldType) -> tuple[str, str]:
    if key == "encoding" and type_.array and type_.name in ENCODABLE_BITS:
        mend = 'write "elementEncoding" to encode the elements of an array'
    elif key == "elementEncoding" and type_.name in ENCODABLE_BITS:
        mend = 'write "encoding" for a field that is no array'
    else:
        mend = f'remove "{key}"'
    if key == "encoding":
        return "a field of type int16, int32 or int64", mend
    return "an array of int16, int32 or int64", mend


def _by_versions(value: Value, type_: FieldType, report: SchemaReport, field: str) -> list[_EncodingRange]:
    """Return the encodings of the object form; report invalid ranges and names."""
    parts: list[_EncodingRange] = []
    keys: set[str] = set()
    for member in value.members:
        if member.key in keys:
            report.add(
                Rule.DUPLICATE_KEY, member.at, field, expected="each version range once",
                found=f"{quoted(member.key)} again", mend="keep one of them",
            )  # fmt: skip
            continue
        keys.add(member.key)
        versions = _range(member.key, member.at, report, field)
        if member.value.kind != "string":
            report.add(
                Rule.ENCODING_FORM, member.value.at, field, expected="the name of an encoding as a string",
                found=described(member.value), mend='write "fixed32", for example',
            )  # fmt: skip
            continue
        encoding = _encoding(member.value, type_, report, field)
        if versions is not None and encoding is not None:
            parts.append(_EncodingRange(versions, encoding, member.at))
    return parts


def _range(text: str, at: int, report: SchemaReport, field: str) -> Versions | None:
    try:
        versions = Versions.parse(text)
        problem = "a version range that is not empty" if versions.is_empty else ""
    except ValueError as error:
        versions, problem = Versions.NONE, str(error)
    if problem:
        mend = 'write "0-9" or "10+", for example'
        report.add(Rule.ENCODING_RANGE, at, field, expected=problem, found=quoted(text), mend=mend)
        return None
    return versions


def _encoding(value: Value, type_: FieldType, report: SchemaReport, field: str) -> Encoding | None:
    name, bits = value.text, ENCODABLE_BITS[type_.name]
    match = _NAME.fullmatch(name)
    if match is None:
        report.add(
            Rule.ENCODING_NAME, value.at, field, expected="(fixed|packed|unpacked)(16|32|64)", found=quoted(name),
            mend=_suggested_encoding(name, bits),
        )  # fmt: skip
        return None
    if int(match[2]) > bits:
        report.add(
            Rule.ENCODING_BITS, value.at, field, expected=f"at most {bits} bits, as {type_.name} has",
            found=quoted(name), mend=f'write "{match[1]}{bits}", or make the field a wider integer',
        )  # fmt: skip
        return None
    kind = cast("Literal['fixed', 'packed', 'unpacked']", match[1])
    return Encoding(kind, next(each for each in (16, 32, 64) if each == int(match[2])))


def _suggested_encoding(name: str, bits: int) -> str:
    """Return the encoding that was probably meant by an invalid name."""
    word = name.strip().lower()
    kind = word.rstrip("0123456789")
    kind = _SYNONYMS.get(kind, kind)
    digits = word[len(word.rstrip("0123456789")) :]
    number = int(digits) if digits in {"16", "32", "64"} else bits
    if f"{kind}{number}" in _NAMES:
        return f'did you mean "{kind}{number}"?'
    return did_you_mean(name, _NAMES) or f"the encodings are {', '.join(_NAMES)}"


def _check_apart(parts: list[_EncodingRange], report: SchemaReport, field: str) -> None:
    widest: _EncodingRange | None = None  # of those that begin at lower versions, the one that extends furthest
    for ranged in sorted(parts, key=lambda each: (each.versions.lowest, each.versions.highest)):
        if widest is not None and widest.versions.highest >= ranged.versions.lowest:
            one, other = widest.versions, ranged.versions
            report.add(
                Rule.ENCODING_OVERLAP, max(widest.at, ranged.at), field, expected="ranges that share no version",
                found=f'"{one}" and "{other}", which both have {one & other}',
                mend=f"begin the second at {one.highest + 1}" if one.highest < other.highest else "remove one of them",
            )  # fmt: skip
        if widest is None or ranged.versions.highest > widest.versions.highest:
            widest = ranged


def _check_cover(
    parts: list[_EncodingRange], value: Value, versions: Versions, report: SchemaReport, field: str
) -> None:
    ranges = [part.versions for part in parts]
    missing = versions.without(ranges)
    excess = [part for each in ranges for part in each.without([versions])]
    problems = [f"no encoding for {_listed(missing)}"] if missing else []
    problems += [f"one for {_listed(excess)}"] if excess else []
    if problems:
        mend = f"give {_listed(missing)} an encoding" if missing else ""
        mend += f"{', and ' if mend else ''}take out {_listed(excess)}" if excess else ""
        report.add(
            Rule.ENCODING_COVERAGE, value.at, field, expected=f'exactly the versions of the field, "{versions}"',
            found=" and ".join(problems), mend=mend,
        )  # fmt: skip


def _listed(ranges: list[Versions]) -> str:
    return " and ".join(f'"{each}"' for each in ranges)
