"""The rules of the schema language, and the errors that name them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from magicbyte.engine.errors import MagicbyteError


class Rule(enum.StrEnum):
    """The rules of the language: their names in errors. docs/schema/grammar.md explains each."""

    # the file
    JSON = "json"
    SIZE = "size"
    DUPLICATE_KEY = "duplicate-key"
    UNKNOWN_KEY = "unknown-key"
    MISSING_KEY = "missing-key"
    VALUE = "value"
    # the message
    MESSAGE_TYPE = "message-type"
    API_KEY = "api-key"
    REQUEST_ONLY = "request-only"
    LISTENERS = "listeners"
    COORDINATOR_KEY = "coordinator-key"
    # names and versions
    NAME = "name"
    SAME_NAME = "same-name"
    VERSIONS = "versions"
    FLEXIBLE_VERSIONS = "flexible-versions"
    NO_VERSION = "no-version"
    # types and structs
    TYPE = "type"
    UNKNOWN_STRUCT = "unknown-struct"
    SAME_STRUCT = "same-struct"
    RECURSIVE_STRUCT = "recursive-struct"
    FIELDS = "fields"
    # what a field may have
    NULLABLE = "nullable"
    DEFAULT = "default"
    TAG = "tag"
    MAP_KEY = "map-key"
    ENTITY_TYPE = "entity-type"
    FLEXIBLE_OVERRIDE = "flexible-override"
    ZERO_COPY = "zero-copy"
    # KIP-625
    ENCODING_TYPE = "encoding-type"
    ENCODING_FORM = "encoding-form"
    ENCODING_NAME = "encoding-name"
    ENCODING_BITS = "encoding-bits"
    ENCODING_RANGE = "encoding-range"
    ENCODING_COVERAGE = "encoding-coverage"
    ENCODING_OVERLAP = "encoding-overlap"


@dataclass(frozen=True, slots=True, order=True)
class SchemaError:
    """One broken rule: the rule, its place, the expected and found text, and how to fix it.

    A `warning` is an imperfection that does no harm: the schema is valid.

    `field` is the path of the field through the names of the file (`MetadataResponse.Topics.Partitions.LeaderId`),
    `line` and `column` count from 1.
    """

    path: str
    line: int
    column: int
    field: str
    rule: Rule
    expected: str
    found: str
    mend: str
    warning: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the error as printed by `magicbyte schema check --format json`."""
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "field": self.field,
            "rule": self.rule.value,
            "expected": self.expected,
            "found": self.found,
            "mend": self.mend,
            "warning": self.warning,
        }

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}: {self.field}{': ' if self.field else ''}"
        rule = f"{'warning, ' if self.warning else ''}{self.rule}"
        return f"{where}{rule}: expected {self.expected}, found {self.found}; {self.mend}"


class SchemaErrors(MagicbyteError):  # noqa: N818 (there are several in it)
    """One or several schema files break rules of the language. `errors` has all of them, in the order of the files."""

    def __init__(self, errors: Iterable[SchemaError]) -> None:
        self.errors = sorted(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return a line for each."""
        return [str(error) for error in self.errors]


class SchemaValueError(MagicbyteError):
    """A value does not fit its field: another type, out of range, null, or a field that the version does not have.

    `way` is its path in the JSON form, such as `topics[2].partitions[0].leaderId`.
    """

    def __init__(self, way: str, *, expected: str, found: str) -> None:
        super().__init__(way, expected, found)
        self.way, self.expected, self.found = way, expected, found

    def __str__(self) -> str:
        return f"{self.way or 'the message'}: expected {self.expected}, found {self.found}"


class UnknownMessageError(MagicbyteError):
    """No schema of the package has this name."""
