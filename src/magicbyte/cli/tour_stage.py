"""Where a tour is shown: commands run as if they had been typed, their output cut to what fits on a screen."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from magicbyte.cli.output import say, say_styled, say_text

WIDEST = 100  # columns
_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")


class Shown(NamedTuple):
    """What a command said, and its exit status."""

    status: int
    lines: list[str]


class Pipe(NamedTuple):
    """A command that takes our lines, and what it makes of them."""

    command: str
    filter: Callable[[list[str]], list[str]]


COUNT_LINES = Pipe("wc -l", lambda lines: [str(len(lines))])
ONLY_RECORDS = Pipe("grep '^|'", lambda lines: [line for line in lines if line.startswith("|")])


class _TourTerminal(io.TextIOWrapper):
    """Text that is collected, for a reader who may be sitting at a terminal."""

    is_terminal = False

    def isatty(self) -> bool:
        """Say whether colors will be seen."""
        return self.is_terminal


class TourStage:
    """Prints headings, prose, and commands with what they say. Lines have at most `width` columns."""

    def __init__(self) -> None:
        self.width = max(40, min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST))
        self.colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self.steps = 0

    def heading(self, title: str) -> None:
        """Begin the next step."""
        self.steps += 1
        head = f"── {self.steps}  {title} "
        say("")
        say_styled(click.style(f"{head}{'─' * (self.width - len(head))}", fg="cyan", bold=True), color=None)

    def say(self, text: str) -> None:
        """Print a paragraph."""
        say_text(textwrap.fill(text, self.width, break_long_words=False, break_on_hyphens=False))

    def command(self, line: str) -> None:
        """Print a command line as it is typed."""
        say("")
        say_styled(click.style(f"$ {line}", bold=True), color=None)

    def run(self, *arguments: str, rows: int = 40, wrap: bool = False, pipe: Pipe | None = None) -> Shown:
        """Run a command of ours, show it and at most `rows` rows of what it says, through `pipe`.

        Longer lines are cut, or with `wrap` continued.
        """
        from magicbyte.cli.main import INTERRUPTED, main

        self.command(f"magicbyte {shlex.join(arguments)}{f' | {pipe.command}' if pipe else ''}")
        collected, status = io.BytesIO(), 0
        with self._collect_into(collected):
            try:
                main.main(args=list(arguments), prog_name="magicbyte")
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        lines = collected.getvalue().decode(errors="replace").splitlines()
        self._show(pipe.filter(lines) if pipe else lines, rows, wrap=wrap)
        if status:
            say_styled(click.style(f"(exit status {status})", dim=True), color=None)
        return Shown(status, lines)

    def run_script(self, path: Path, source: str, rows: int = 60) -> Shown:
        """Write a Python script, show it, run it, and show what it prints; its complaints only when it fails."""
        path.write_text(source)
        self.command(f"cat {path.name}")
        say_text(source.rstrip())
        self.command(f"python {path.name}")
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        lines = done.stdout.splitlines()
        self._show(lines, rows, wrap=False)
        if done.returncode:
            self._show(done.stderr.splitlines()[-12:], rows, wrap=True)
        return Shown(done.returncode, lines)

    @contextlib.contextmanager
    def _collect_into(self, collected: io.BytesIO) -> Iterator[None]:
        """Send stdout and stderr there, in the order in which they are written."""
        out = _TourTerminal(collected, encoding="utf-8", errors="backslashreplace")
        err = _TourTerminal(collected, encoding="utf-8", errors="backslashreplace")
        out.is_terminal = self.colors
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                yield
        finally:
            for stream in (out, err):
                stream.flush()
                stream.detach()

    def _show(self, lines: list[str], rows: int, *, wrap: bool) -> None:
        fitting = [
            piece for line in lines for piece in (_pieces(line, self.width) if wrap else [_cut(line, self.width)])
        ]
        for line in fitting[:rows]:
            say_styled(line, color=self.colors)
        if len(fitting) > rows:
            say_styled(click.style(f"… and {len(fitting) - rows} more lines", dim=True), color=None)


def _pieces(line: str, width: int) -> list[str]:
    """Return a line without colors in pieces of at most `width` characters, all but the first indented."""
    plain = _ESCAPE.sub("", line)
    return textwrap.wrap(plain, width, subsequent_indent="    ", break_on_hyphens=False) or [""]


def _cut(line: str, width: int) -> str:
    """Return the line with `…` for what is beyond `width` characters; colors do not count."""
    line = line.expandtabs(2)
    if len(_ESCAPE.sub("", line)) <= width:
        return line
    kept, left = [], width - 1
    for piece in _ESCAPE.split(line):
        if _ESCAPE.fullmatch(piece):
            kept.append(piece)
        else:
            kept.append(piece[:left])
            left -= len(piece[:left])
    return f"{''.join(kept)}…"
