"""Make untrusted text safe to show: in a terminal's lines, in log lines, and in metric labels. Format times.

A name, message or value from a network or a file can contain anything. Characters that move the cursor, change the
display of the text after them or begin a new line are shown as escapes; all other Unicode is unchanged.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters of ASCII and Latin-1, among them line ends
    "\u2028\u2029"  # line and paragraph separators
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u206a-\u206f"  # bidirectional controls
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags, which are invisible
    "\ud800-\udfff"  # surrogates, which no encoding has
    "]"
)
_PASSWORD = re.compile(r"(?<=:/)(/{0,2}[^\s/?#@:\'\"]*):[^\s/?#\'\"]*@")  # USER:PASSWORD@ of a URL, or of one as a path
_LAST_SECOND = 253_402_300_799  # the end of the year 9999
_UNSAFE_IN_TEXT = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def printable(text: str) -> str:
    r"""Return `text` on one line, with unsafe characters as Python's escapes: `\n`, `\x1b`, `\u202e`."""
    return _UNSAFE.sub(_escape, text)


def without_passwords(text: str) -> str:
    """Return `text` with asterisks for the passwords of URLs in it: scheme://USER:PASSWORD@HOST."""
    return _PASSWORD.sub(r"\1:***@", text) if ":/" in text else text


def printable_text(text: str) -> str:
    """Return `text`, which may have several lines and tabs, with the other unsafe characters escaped."""
    return _UNSAFE_IN_TEXT.sub(_escape, text)


def printable_label(text: str) -> str:
    """Return `text` as `printable` does, but distinct for distinct texts: backslashes are doubled."""
    return printable(text.replace("\\", "\\\\"))


def readable(cell: bytes | None) -> str:
    """Return safe text on one line: invalid UTF-8 and unsafe characters are escaped."""
    if not cell:
        return "<null>" if cell is None else '""'
    try:
        line = cell.decode()
    except UnicodeDecodeError:
        line = cell.decode("ascii", errors="backslashreplace")
    return line if line.isprintable() else _all_printable(line)


def _all_printable(line: str) -> str:
    return "".join([char if char.isprintable() else char.encode("unicode_escape").decode() for char in line])


def shortened(cell: bytes, most: int) -> str:
    """Return the first `most` bytes as `readable` does."""
    text = readable(cell[:most])
    return f"{text}…" if len(cell) > most else text


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def logger(name: str) -> logging.Logger:
    """Return the logger of a module whose lines are safe to show, whatever formatter an application uses."""
    import logging  # imported here because commands without a logger do not need it

    found = logging.getLogger(name)
    found.addFilter(_made_safe)  # adding it again has no effect
    return found


def _made_safe(record: logging.LogRecord) -> bool:
    """Escape the arguments of a log line, and its traceback, which formatters would print unescaped."""
    record.msg = printable(str(record.msg))
    if isinstance(record.args, tuple):
        record.args = tuple(map(_safe, record.args))
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        import traceback

        lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
        record.exc_text = "\n".join(f"    {printable(without_passwords(line))}" for line in lines)
    return True


def _safe(argument: object) -> object:
    return argument if isinstance(argument, int | float | None) else _Shown(argument)


class _Shown:
    """An argument of a log line, whose text is safe to show."""

    def __init__(self, argument: object) -> None:
        self._argument = argument

    def __str__(self) -> str:
        return printable(without_passwords(str(self._argument)))

    def __repr__(self) -> str:
        return printable(without_passwords(repr(self._argument)))


def time_text(timestamp: int) -> str:
    """Return ms since 1970 as ISO 8601 in UTC; `-` for -1, and the number for times outside the calendar."""
    if timestamp == -1:
        return "-"
    second = _second_text(timestamp // 1000)
    return f"{second}.{timestamp % 1000:03}Z" if second else f"{timestamp}ms"


@lru_cache(4096)
def _second_text(second: int) -> str:
    if not 0 <= second <= _LAST_SECOND:
        return ""
    from datetime import UTC, datetime, timedelta  # imported here because a broker's start does not need it

    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat()[:19]
