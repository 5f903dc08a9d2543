"""Ask a question on the terminal while connections stay open."""

from __future__ import annotations

import asyncio
import sys

import click

from magicbyte.cli.output import ask


async def confirm(question: str, *, err: bool = False) -> None:
    """Ask a question, on stderr with `err`, and wait for the answer. Raises click.Abort unless it is yes."""
    ask(question, err=err)
    if (await _typed_line()).strip().lower() not in ("y", "yes"):
        raise click.Abort


async def _typed_line() -> str:
    """Return a line of stdin. Ctrl-C ends the wait on a terminal; it could not end a thread that reads."""
    loop, is_typed = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin, is_typed.set)
    except (NotImplementedError, OSError, ValueError):  # Windows, a regular file, a stream of a test
        return sys.stdin.readline()
    try:
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
