"""The process's file descriptors: how many it may have, and how many of them are for connections."""

from __future__ import annotations

import errno
import os
from typing import Final

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What the system says to who asks for a connection, and has to wait until others have ended."""
MOST_FOR_PAGES: Final = 64

_UNKNOWN: Final = 512  # where the system does not say: what Windows gives a C program
_NO_LIMIT: Final = 1 << 30
_MACOS_MOST: Final = 10_240  # what macOS takes where it says that there is no limit
_MOST_RESERVED: Final = 4096


def limit() -> int:
    """Return how many descriptors this process may have: each has a lower number."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNKNOWN
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Let this process have as many descriptors as the system allows; return how many."""
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
            except (ValueError, OSError):  # more than the system gives to anybody
                continue
    return limit()


def for_connections(most: int) -> int:
    """Return the number that descriptors of connections stay below, of a process that may have `most`.

    A quarter is kept for the files of logs, and a sixteenth for pages over HTTP.
    """
    return most - min(most // 4, _MOST_RESERVED) - for_pages(most)


def for_pages(most: int) -> int:
    """Return how many descriptors pages over HTTP take at a time, of a process that may have `most`."""
    return min(most // 16, MOST_FOR_PAGES)


def lowest_free(descriptor: int) -> int:
    """Return the number of the next descriptor, as the system gives the lowest; `descriptor` is any open one.

    All below it are in use. Without any left it is that of the limit.
    """
    try:
        found = os.dup(descriptor)
    except OSError:
        return limit()
    os.close(found)
    return found
