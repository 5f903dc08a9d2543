"""The definition of a setting: name, type, default, valid values, and update mode.

A `Setting` in the body of a class is a typed attribute of its instances: see `settings/config.py`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from magicbyte.engine import releases
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.log.append.rules import stored_format
from magicbyte.engine.records.encode import Format

T = TypeVar("T")
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class SettingType(enum.IntEnum):
    """The types of settings, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(enum.Enum):
    """Whether and for which brokers a setting can be changed dynamically."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"  # for this broker, or for all


class Setting(Struct, Generic[T], frozen=True):
    """One setting. `default` is text as in a file, None for none. `read` raises ValueError for an invalid value.

    `valid` describes the valid values. `synonyms` are used if it has no value, each with the factor that converts its
    number to this setting's unit.
    """

    name: str
    kind: SettingType
    default: str | None
    read: Callable[[str], T]
    valid: str
    doc: str
    update: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[tuple[str, int], ...] = ()

    def parse(self, text: str | None) -> T:
        """Parse the value of a text. Raises InvalidConfigError."""
        if text is None:
            raise InvalidConfigError(f"{self.name}: expected {self.valid}, found nothing")
        try:
            return self.read(text.strip())
        except (ValueError, InvalidConfigError) as error:
            raise InvalidConfigError(f"{self.name}: expected {self.valid}, found {text!r}") from error

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        value: T = instance.values[self.name]
        return value


def integer(
    name: str,
    default: int | None,
    doc: str,
    *,
    least: int = -LONG_MAX - 1,
    most: int | None = None,
    kind: SettingType = SettingType.LONG,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[tuple[str, int], ...] = (),
) -> Setting[int]:
    """Return an integer setting from `least` to `most`, the type's maximum if that is None."""
    largest = most if most is not None else {SettingType.SHORT: 32767, SettingType.INT: INT_MAX}.get(kind, LONG_MAX)
    smallest = max(least, -INT_MAX - 1) if kind is SettingType.INT else least

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not smallest <= int(text) <= largest:
            raise ValueError(text)
        return int(text)

    valid = f"a number from {smallest} to {largest}" if smallest > -INT_MAX - 1 else "a number"
    text = None if default is None else str(default)
    return Setting(name, kind, text, read, valid, doc, update, synonyms)


def number(
    name: str, default: str, doc: str, *, least: float, most: float, update: UpdateMode = UpdateMode.READ_ONLY
) -> Setting[float]:
    """Return a decimal number setting."""

    def read(text: str) -> float:
        if not _DECIMAL.fullmatch(text) or not least <= float(text) <= most:
            raise ValueError(text)
        return float(text)

    valid = f"a number from {least} to {most}" if most < 1e300 else f"a number from {least} on"
    return Setting(name, SettingType.DOUBLE, default, read, valid, doc, update)


def boolean(name: str, default: bool, doc: str, *, update: UpdateMode = UpdateMode.READ_ONLY) -> Setting[bool]:
    """Return a boolean setting."""

    def read(text: str) -> bool:
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse(text)

    return Setting(name, SettingType.BOOLEAN, str(default).lower(), read, "true or false", doc, update)


def text(
    name: str,
    default: str | None,
    doc: str,
    *,
    update: UpdateMode = UpdateMode.READ_ONLY,
    kind: SettingType = SettingType.STRING,
) -> Setting[str]:
    """Return a text setting."""
    return Setting(name, kind, default, str, "a text", doc, update)


def choice(
    name: str, default: str, doc: str, choices: Iterable[str], *, update: UpdateMode = UpdateMode.READ_ONLY
) -> Setting[str]:
    """Return a setting with one of some words."""
    words = tuple(choices)

    def read(found: str) -> str:
        return found if found in words else _refuse(found)

    return Setting(name, SettingType.STRING, default, read, f"one of {', '.join(words)}", doc, update)


def words(
    name: str,
    default: str,
    doc: str,
    choices: Iterable[str] = (),
    *,
    update: UpdateMode = UpdateMode.READ_ONLY,
) -> Setting[tuple[str, ...]]:
    """Return a setting with a comma-separated list of words, from `choices` if there are any."""
    known = tuple(choices)

    def read(found: str) -> tuple[str, ...]:
        parts = tuple(each.strip() for each in found.split(",") if each.strip())
        if known and not set(parts) <= set(known):
            raise ValueError(found)
        return parts

    valid = f"a list of {', '.join(known)}" if known else "a list"
    return Setting(name, SettingType.LIST, default, read, valid, doc, update)


def message_format(name: str, default: str, doc: str, *, update: UpdateMode = UpdateMode.READ_ONLY) -> Setting[Format]:
    """Return a message format setting: 0, 1, 2, enriched, or one of Kafka's version names."""

    def read(found: str) -> Format:
        return Format.ENRICHED if found == Format.ENRICHED.value else stored_format(_checked_version(found))

    return Setting(
        name, SettingType.STRING, default, read, "0, 1, 2, enriched or a version such as 0.10.2", doc, update
    )


def protocol_version(name: str, default: str, doc: str) -> Setting[tuple[int, ...]]:
    """Return a Kafka version setting: (2, 8), (0, 10, 0, 1). `0.9.0-1` stands for `0.10.0-IV0`."""
    return Setting(
        name, SettingType.STRING, default, releases.protocol_version, "a version such as 2.8 or 0.10.0-IV1", doc
    )


def _refuse(found: str) -> Any:
    raise ValueError(found)


def _checked_version(found: str) -> str:
    if found not in ("0", "1", "2"):
        releases.protocol_version(found)
    return found
