"""Read the objects of a schema file: their keys, and values of the kind that each key requires."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from magicbyte.schema.errors import Rule, SchemaError
from magicbyte.schema.scan import Kind, SourceText, Value
from magicbyte.schema.tree import SourcePlace
from magicbyte.schema.versions import Versions

KeyKind = Literal["text", "integer", "boolean", "versions", "list", "scalar", "any"]

_EXPECTED = {
    "text": "a string",
    "integer": "an integer",
    "boolean": "true or false",
    "versions": "a version range as a string",
    "list": "a list",
    "scalar": "a string, a number, true, false or null",
}
_SCALARS: tuple[Kind, ...] = ("string", "number", "boolean", "null")


class SchemaReport:
    """Collect the errors of one file."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.errors: list[SchemaError] = []

    def add(
        self, rule: Rule, at: int, field: str, *, expected: str, found: str, mend: str, warning: bool = False
    ) -> None:
        """Record that `rule` is broken at position `at`, in the field with the path `field`."""
        error = self.source.error(at, rule, expected=expected, found=found, mend=mend, field=field, warning=warning)
        self.errors.append(error)

    @property
    def failed(self) -> bool:
        """Whether there is an error, not only warnings."""
        return any(not error.warning for error in self.errors)


class Fields:
    """The members of one object of a file: the value of each key, once its kind is checked.

    `keys` has the allowed keys and the kind of each. An unknown or repeated key, and a value of another kind, is
    reported and then ignored; a repeated equal value is only a warning, because some of Kafka's files have it. Texts
    are accepted for numbers and booleans, and a single item for a list, as in Kafka's generator: it takes `"tag": "0"`.
    """

    def __init__(self, value: Value, keys: Mapping[str, KeyKind], report: SchemaReport, field: str) -> None:
        self.at, self.field = value.at, field
        self._report = report
        self._values: dict[str, Value] = {}
        self._bad: set[str] = set()
        for member in value.members:
            if member.key not in keys:
                mend = did_you_mean(member.key, keys) or f"the keys here are {', '.join(keys)}"
                self._add(Rule.UNKNOWN_KEY, member.at, "a key of the language", quoted(member.key), mend)
            elif member.key in self._values or member.key in self._bad:
                first = self._values.get(member.key)
                self._report.add(
                    Rule.DUPLICATE_KEY, member.at, field, expected="each key once",
                    found=f"{quoted(member.key)} again", mend="keep one of them",
                    warning=first is not None and first.same_as(member.value),
                )  # fmt: skip
            elif self._fits(member.value, keys[member.key]):
                self._values[member.key] = member.value
            else:
                self._bad.add(member.key)
                expected = f"{_EXPECTED[keys[member.key]]} for {quoted(member.key)}"
                self._add(Rule.VALUE, member.value.at, expected, described(member.value), "write one")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def has_bad(self, key: str) -> bool:
        """Return whether the key has an unusable value, which has been reported."""
        return key in self._bad

    def at_key(self, key: str) -> int:
        """Return the position of the key's value, or of the object without it."""
        return self._values[key].at if key in self._values else self.at

    def value(self, key: str) -> Value | None:
        """Return the value of the key, or None."""
        return self._values.get(key)

    def require(self, key: str, mend: str, *, warning: bool = False) -> bool:
        """Return whether the key exists; report it as missing otherwise, as a warning where a value is assumed."""
        if key not in self._values and key not in self._bad:
            self._report.add(
                Rule.MISSING_KEY, self.at, self.field, expected=f"the key {quoted(key)}", found="none", mend=mend,
                warning=warning,
            )  # fmt: skip
        return key in self._values

    def text(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        value = self._values.get(key)
        return None if value is None else value.text

    def integer(self, key: str) -> int | None:
        """Return the integer of a key, or None."""
        value = self._values.get(key)
        return None if value is None else int(value.text)

    def boolean(self, key: str) -> bool:
        """Return the boolean of a key; false without it."""
        value = self._values.get(key)
        return value is not None and value.text == "true"

    def items(self, key: str) -> tuple[Value, ...]:
        """Return the items of a key's list, none without it. A value other than a list is its only item."""
        value = self._values.get(key)
        if value is None:
            return ()
        return value.items if value.kind == "array" else (value,)

    def versions(self, key: str) -> Versions | None:
        """Return the version range of a key; None without it, and if it is invalid, which is reported."""
        value = self._values.get(key)
        if value is None:
            return None
        try:
            return Versions.parse(value.text)
        except ValueError as error:
            mend = f'write "{key}": "0+", for example'
            self._add(Rule.VERSIONS, value.at, str(error), described(value), mend)
            self._bad.add(key)
            return None

    def _fits(self, value: Value, kind: KeyKind) -> bool:
        if kind in {"text", "versions"}:
            return value.kind == "string"
        if kind == "integer":
            return value.kind in {"number", "string"} and is_integer(value.text)
        if kind == "boolean":
            return value.kind in {"boolean", "string"} and value.text in {"true", "false"}
        if kind == "scalar":
            return value.kind in _SCALARS
        return True

    def _add(self, rule: Rule, at: int, expected: str, found: str, mend: str) -> None:
        self._report.add(rule, at, self.field, expected=expected, found=found, mend=mend)


def objects(fields: Fields, key: str, report: SchemaReport) -> Iterator[Value]:
    """Yield the objects in the list of a key; report all other items."""
    for item in fields.items(key):
        if item.kind == "object":
            yield item
        else:
            report.add(
                Rule.VALUE, item.at, fields.field, expected=f"an object in {quoted(key)}", found=described(item),
                mend="write {…}",
            )  # fmt: skip


def is_integer(text: str) -> bool:
    """Return whether a text is an integer of at most 64 bits or so, in decimal digits."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return the advice to use the one of `words` closest to `word`, or an empty string if none is close."""
    by_lower = {each.lower(): each for each in words}
    close = difflib.get_close_matches(word[:60].lower(), by_lower, 1, 0.7)
    return f"did you mean {quoted(by_lower[close[0]])}?" if close else ""


def quoted(text: str) -> str:
    """Return a text in double quotes, as in JSON, shortened if it is long."""
    return json.dumps(text if len(text) <= 60 else text[:59] + "…", ensure_ascii=not text.isprintable())


def described(value: Value) -> str:
    """Return a value as shown in errors: a text, number or word as written, others by their kind."""
    if value.kind == "string":
        return quoted(value.text)
    if value.kind in _SCALARS:
        return value.text if len(value.text) <= 60 else value.text[:59] + "…"
    return f"an {value.kind}"


def place_of(report: SchemaReport, at: int) -> SourcePlace:
    """Return the place of a position in the file."""
    return report.source.place(at)
