"""Parse JSON with comments, keeping the position of every key and value.

Comments are `// …` to the end of the line and `/* … */`, as Kafka's generator accepts them. Otherwise it is strict
JSON. A repeated key is kept twice: the caller decides what it means.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from magicbyte.schema.errors import Rule, SchemaError
from magicbyte.schema.tree import SourcePlace

MAX_DEPTH: Final = 100
"""The nesting limit of objects and arrays; a nested struct takes two levels."""

MAX_CHARACTERS: Final = 1_000_000
"""The length limit of a text; Kafka's longest schema file has 20,000 characters."""

Kind = Literal["object", "array", "string", "number", "boolean", "null"]

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_WORD = re.compile(r"[A-Za-z0-9_+.-]+")
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[dict[str, tuple[Kind, str]]] = {
    "true": ("boolean", "true"),
    "false": ("boolean", "false"),
    "null": ("null", "null"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """A value and the position of its first character. `text` is a string's content, or a number or word as written."""

    kind: Kind
    at: int
    text: str = ""
    items: tuple[Value, ...] = ()
    members: tuple[ObjectMember, ...] = ()

    def same_as(self, other: Value) -> bool:
        """Return whether both have the same text, ignoring whitespace and comments."""
        return (
            (self.kind, self.text) == (other.kind, other.text)
            and len(self.items) == len(other.items)
            and len(self.members) == len(other.members)
            and all(one.same_as(two) for one, two in zip(self.items, other.items, strict=True))
            and all(
                one.key == two.key and one.value.same_as(two.value)
                for one, two in zip(self.members, other.members, strict=True)
            )
        )


@dataclass(frozen=True, slots=True)
class ObjectMember:
    """A key of an object with its value; `at` is the position of the key."""

    key: str
    at: int
    value: Value


class SourceText:
    """A text with a name: converts positions to lines and columns."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, at: int) -> SourcePlace:
        """Return the place of the character at position `at`."""
        line = bisect_right(self._starts, at)
        return SourcePlace(self.path, line, at - self._starts[line - 1] + 1)

    def error(
        self, at: int, rule: Rule, *, expected: str, found: str, mend: str, field: str = "", warning: bool = False
    ) -> SchemaError:
        """Return the error that `rule` is broken at position `at`."""
        place = self.place(at)
        return SchemaError(place.path, place.line, place.column, field, rule, expected, found, mend, warning)


class _MalformedError(Exception):
    """The text cannot be parsed any further; the error has been recorded."""


def scan(source: SourceText) -> tuple[Value | None, list[SchemaError]]:
    """Parse a text; return its value, or None if it is malformed, and the errors.

    Parsing continues after a key without a value, and after a missing or extra comma, so that the rest of the file is
    checked.
    """
    scanner = _Scanner(source)
    try:
        return scanner.document(), scanner.errors
    except _MalformedError:
        return None, scanner.errors


class _Scanner:
    def __init__(self, source: SourceText) -> None:
        self.source, self.text, self.at = source, source.text, 0
        self.errors: list[SchemaError] = []

    def document(self) -> Value:
        if len(self.text) > MAX_CHARACTERS:
            self._stop(0, f"at most {MAX_CHARACTERS} characters", str(len(self.text)), "split the file", Rule.SIZE)
        self.at += self.text.startswith("\ufeff")
        value = self._value(0)
        self._skip()
        if self.at < len(self.text):
            mend = "the rest is ignored, as by Kafka's generator; remove it"
            self._note(self.at, "the end of the file", self._next_text(), mend, warning=True)
        return value

    # ---- values

    def _value(self, depth: int) -> Value:
        self._skip()
        at, char = self.at, self.text[self.at : self.at + 1]
        if char and char in "{[":
            if depth == MAX_DEPTH:
                self._stop(at, f"at most {MAX_DEPTH} levels", "one more", "use commonStructs for inner ones", Rule.SIZE)
            self.at += 1
            if char == "{":
                return Value("object", at, members=self._object(depth + 1))
            return Value("array", at, items=self._array(depth + 1))
        if char == '"':
            return Value("string", at, self._string())
        match = _NUMBER.match(self.text, at) or _WORD.match(self.text, at)
        word = match[0] if match else ""
        if match is not None and match.re is _NUMBER:
            self.at = match.end()
            return Value("number", at, word)
        if word in _WORDS:
            self.at += len(word)
            return Value(_WORDS[word][0], at, _WORDS[word][1])
        mend = f'write "{word}" in quotes' if word else "write the value that is missing here"
        return self._stop(at, "a value", f"`{word}`" if word else self._next_text(), mend)

    def _array(self, depth: int) -> tuple[Value, ...]:
        items: list[Value] = []
        while self._has_next("]", bool(items)):
            items.append(self._value(depth))
        return tuple(items)

    def _object(self, depth: int) -> tuple[ObjectMember, ...]:
        members: list[ObjectMember] = []
        first = True
        while self._has_next("}", not first):
            first = False
            member = self._member(depth)
            if member is not None:
                members.append(member)
        return tuple(members)

    def _member(self, depth: int) -> ObjectMember | None:
        """Read a key and its value; None for a key without one, which is recorded."""
        at = self.at
        if self.text[at] != '"':
            self._stop(at, "a key in double quotes", self._next_text(), "write the key in double quotes")
        key = self._string()
        self._skip()
        follows = self.text[self.at : self.at + 1]
        if follows == ":":
            self.at += 1
            return ObjectMember(key, at, self._value(depth))
        if follows not in {",", "}"}:
            self._stop(self.at, f'":" after the key "{key}"', self._next_text(), 'write ":" and the value of the key')
        self._note(
            self.at, f'":" and a value after the key "{key}"', self._next_text(), "give the key a value or remove it"
        )
        return None

    def _has_next(self, close: str, behind_one: bool) -> bool:
        """Skip the comma if `behind_one`, or `close`; return whether another member or item follows."""
        self._skip()
        char = self.text[self.at : self.at + 1]
        comma = self.at
        if behind_one and char == ",":
            self.at += 1
            self._skip()
            char = self.text[self.at : self.at + 1]
            if char == close:
                self._note(comma, f'"{close}" after the last one', "a comma before it", "remove the comma")
        elif behind_one and char != close:
            if not char or not (char in '"{[-' or char.isalnum()):
                self._stop(self.at, f'"," or "{close}"', self._next_text(), f'close it with "{close}"')
            self._note(self.at, f'"," or "{close}"', self._next_text(), "write a comma between the two")
        if not char:
            self._stop(self.at, f'"{close}"', self._next_text(), f'close it with "{close}"')
        if char == close:
            self.at += 1
        return char != close

    def _string(self) -> str:
        """Read the string that begins here and return its content."""
        start, parts = self.at, []
        self.at += 1
        while True:
            match = _PLAIN.match(self.text, self.at)
            assert match is not None, "the pattern matches the empty string"
            parts.append(match[0])
            self.at = match.end()
            char = self.text[self.at : self.at + 1]
            if char == '"':
                self.at += 1
                return "".join(parts)
            if char == "\\":
                parts.append(self._escape())
            else:
                found = "the end of the line" if char in {"\r", "\n"} else self._next_text()
                self._stop(
                    start if char in {"", "\r", "\n"} else self.at,
                    'a string that ends with "',
                    found,
                    "close the string, or write a control character as an escape",
                )

    def _escape(self) -> str:
        at = self.at
        letter = self.text[at + 1 : at + 2]
        if letter in _ESCAPES and letter:
            self.at += 2
            return _ESCAPES[letter]
        if letter != "u":
            self._stop(at, "an escape of JSON", f"`\\{letter}`", "write the backslash twice")
        unit = self._unit(at)
        if 0xD800 <= unit < 0xDC00 and self.text[self.at : self.at + 2] == "\\u":
            low = self._unit(self.at)
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + (unit - 0xD800 << 10) + (low - 0xDC00))
        if 0xD800 <= unit < 0xE000:
            self._stop(at, "a character", f"half of one, `\\u{unit:04x}`", "write the character itself")
        return chr(unit)

    def _unit(self, at: int) -> int:
        match = _HEX.match(self.text, at + 2)
        if match is None:
            self._stop(
                at, "four hexadecimal digits after `\\u`", self._next_text(), "write four, or the character itself"
            )
        self.at = match.end()
        return int(match[0], 16)

    # ---- places

    def _skip(self) -> None:
        match = _BLANK.match(self.text, self.at)
        assert match is not None, "the pattern matches the empty string"
        self.at = match.end()

    def _next_text(self) -> str:
        if self.at >= len(self.text):
            return "the end of the file"
        char = self.text[self.at]
        return f"`{char}`" if char.isprintable() else f"the character U+{ord(char):04X}"

    def _note(
        self, at: int, expected: str, found: str, mend: str, rule: Rule = Rule.JSON, *, warning: bool = False
    ) -> None:
        error = self.source.error(at, rule, expected=expected, found=found, mend=mend, warning=warning)
        self.errors.append(error)

    def _stop(self, at: int, expected: str, found: str, mend: str, rule: Rule = Rule.JSON) -> NoReturn:
        self._note(at, expected, found, mend, rule)
        raise _MalformedError
