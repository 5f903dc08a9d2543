"""The levels of the broker's loggers, which requests read and change as in Kafka (KIP-412), until the process ends.

Loggers are Python's, named after modules: `magicbyte.server.stores.controller`. `root` stands for all of magicbyte, not
for those of an application around the broker. Loggers of modules that no request has used yet are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from magicbyte.engine.errors import InvalidConfigError, InvalidRequestError
from magicbyte.engine.printable import logger

ROOT: Final = "root"
_PACKAGE: Final = "magicbyte"
_SET, _DELETE = 0, 1  # operations of an incremental change
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""By Kafka's names, from the least severe one."""


def levels() -> dict[str, str]:
    """Return the level in force of each logger, by name."""
    return {name: _name_of(each.getEffectiveLevel()) for name, each in sorted(_loggers().items())}


def change(changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Set the levels of loggers, all or none; a deleted level is that of the nearest parent again.

    `changes`: name, operation and level of each.

    Raises InvalidConfigError for unknown loggers and levels, InvalidRequestError.
    """
    known, wanted = _loggers(), dict[str, int]()
    for name, operation, level in changes:
        if name in wanted:
            raise InvalidRequestError(f"logger {name}: expected it once in a request")
        if operation not in (_SET, _DELETE):
            raise InvalidRequestError(f"logger {name}: expected operation 0 (set) or 1 (delete), found {operation}")
        if operation == _SET and level is None:
            raise InvalidRequestError(f"logger {name}: expected a level")
        if name not in known:
            raise InvalidConfigError(f"logger {name} does not exist: DescribeConfigs lists all")
        if operation == _DELETE and name == ROOT:
            raise InvalidRequestError(f"the level of logger {ROOT} can be set, but not deleted")
        if operation == _SET and level not in _LEVELS:
            raise InvalidConfigError(f"logger {name}: expected one of {', '.join(_LEVELS)}, found {level!r}")
        wanted[name] = _LEVELS[level] if operation == _SET and level is not None else logging.NOTSET
    if not validate_only:
        for name, number in wanted.items():
            known[name].setLevel(number)


def _loggers() -> dict[str, logging.Logger]:
    found = {
        name: each
        for name, each in list(logging.root.manager.loggerDict.items())
        if isinstance(each, logging.Logger) and name.startswith(f"{_PACKAGE}.")
    }
    return {**found, ROOT: logger(_PACKAGE)}


def _name_of(number: int) -> str:
    """Return the name of the level in force: the least severe one that is logged."""
    return next((name for name, least in _LEVELS.items() if number <= least), "FATAL")
