"""Text of others as it may be shown: in lines of a terminal, of a log, and in labels of metrics.

A name, a message or a value that comes from a network or a file can hold anything. What would move the cursor, change
how the rest is read or begin a line of its own is shown as an escape; all other Unicode stays as it is.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # controls of ASCII and of Latin-1, line ends among them
    "\u2028\u2029"  # ends of lines and paragraphs
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u206a-\u206f"  # what changes the direction of writing
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags, which nothing shows
    "\ud800-\udfff"  # halves of characters, which no encoding has
    "]"
)
_UNSAFE_IN_TEXT = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def printable(text: str) -> str:
    r"""Return `text` on one line, with what is not safe to show as Python's escapes: `\n`, `\x1b`, `\u202e`."""
    return _UNSAFE.sub(_escape, text)


def printable_text(text: str) -> str:
    """Return `text`, which may have several lines and tabs, with the rest of what is not safe to show escaped."""
    return _UNSAFE_IN_TEXT.sub(_escape, text)


def printable_label(text: str) -> str:
    """Return `text` as `printable` does, but other texts for other ones: backslashes are doubled."""
    return printable(text.replace("\\", "\\\\"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
