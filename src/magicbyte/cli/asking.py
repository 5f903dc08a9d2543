"""Ask a question on the terminal while connections stay open."""

from __future__ import annotations

import asyncio
import sys

import click

from magicbyte.cli.output import ask, say


async def confirm(question: str, *, err: bool = False) -> None:
    """Ask a question, on stderr with `err`, and wait for the answer.

    The command has an option --yes. Raises click.Abort unless the answer is yes, UsageError if there is none.
    """
    ask(question, err=err)
    answer = await _typed_line()
    if not answer:  # the end of stdin, as without a terminal
        say("", err=err)
        raise click.UsageError("stdin has no answer: give --yes instead", click.get_current_context(silent=True))
    if answer.strip().lower() not in ("y", "yes"):
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
