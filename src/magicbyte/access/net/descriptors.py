"""The process's file descriptor limit, and its share for connections."""

from __future__ import annotations

import errno
import os
from typing import Final

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` that pass when other connections end."""
MOST_FOR_PAGES: Final = 64

_UNKNOWN: Final = 512  # if the system has no such limit: the value of Windows' C library
_NO_LIMIT: Final = 1 << 30
_MACOS_MOST: Final = 10_240  # macOS's real maximum when it reports no limit
_MOST_RESERVED: Final = 4096


def limit() -> int:
    """Return the descriptor limit of this process: each descriptor has a lower number."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNKNOWN
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit to the hard limit; return it."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNKNOWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_limit = resource.RLIM_INFINITY
    for wanted in (no_limit, _MACOS_MOST) if hard == no_limit else (hard,):
        if soft != no_limit and (wanted == no_limit or wanted > soft):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                break
            except (ValueError, OSError):  # above the system's maximum
                continue
    return limit()


def for_connections(most: int) -> int:
    """Return the bound on descriptor numbers of connections, for a process limit of `most`.

    A quarter is reserved for log files, and a sixteenth for HTTP pages.
    """
    return most - min(most // 4, _MOST_RESERVED) - for_pages(most)


def for_pages(most: int) -> int:
    """Return the number of concurrent descriptors of HTTP pages, for a process limit of `most`."""
    return min(most // 16, MOST_FOR_PAGES)


def lowest_free(descriptor: int) -> int:
    """Return the number of the next descriptor, as the system assigns the lowest; `descriptor` is any open one.

    All below it are in use. If none is left, it is the limit.
    """
    try:
        found = os.dup(descriptor)
    except OSError:
        return limit()
    os.close(found)
    return found
