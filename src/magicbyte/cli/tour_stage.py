"""Show the tour: run commands as if they had been typed, and cut their output to fit on a screen."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from magicbyte.cli.output import pause, prints_in_color, say_styled

WIDEST = 100  # columns
_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
_WHOLE = re.compile(r"(\x1b\[[0-9;]+m)[^\x1b]*(\x1b\[0m)")


class Shown(NamedTuple):
    """The output of a command, and its exit status."""

    status: int
    lines: list[str]


class Pipe(NamedTuple):
    """A command that filters the lines, with an equivalent function."""

    command: str
    filter: Callable[[list[str]], list[str]]


COUNT_LINES = Pipe("wc -l", lambda lines: [str(len(lines))])
ONLY_RECORDS = Pipe("grep '^|'", lambda lines: [line for line in lines if line.startswith("|")])


class TourEndedError(Exception):
    """Raised when the reader quits."""


class TourStage:
    """Prints headings, prose, and commands with their output. Lines have at most `width` columns."""

    def __init__(self, *, pauses: bool = False) -> None:
        size = shutil.get_terminal_size((WIDEST, 24))
        self.width = max(40, min(size.columns, WIDEST))
        self.colors = prints_in_color()
        self.steps = 0
        self._rows = max(size.lines, 12) - 2 if pauses else None
        self._shown = 0

    def heading(self, title: str) -> None:
        """Begin the next step; on a terminal with pauses, on a new screen."""
        if self.steps:
            self._pause()
        self.steps += 1
        head = f"── {self.steps}  {title} "
        self._line("")
        self._line(click.style(f"{head}{'─' * (self.width - len(head))}", fg="cyan", bold=True))

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.lines(textwrap.wrap(text, self.width, break_long_words=False, break_on_hyphens=False))

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self._line(line)

    def command(self, line: str) -> None:
        """Print a command line."""
        self._line("")
        self._line(click.style(f"$ {line}", bold=True))

    def _line(self, line: str) -> None:
        if self._rows is not None and self._shown >= self._rows:
            self._pause()
        say_styled(line)
        self._shown += 1

    def _pause(self) -> None:
        """Wait for Enter if pauses are on. Raises TourEndedError for q and at the end of the input."""
        if self._rows is None:
            return
        answer = pause("-- Enter: continue; q: quit --")
        self._shown = 0
        if not answer or answer.strip().lower() == "q":
            raise TourEndedError

    def run(self, *arguments: str, rows: int = 40, wrap: bool = False, pipe: Pipe | None = None) -> Shown:
        """Run a magicbyte command, and print it with at most `rows` rows of its output, filtered by `pipe`.

        Longer lines are cut or, with `wrap`, continued.
        """
        from magicbyte.cli.main import INTERRUPTED, main

        self.command(f"magicbyte {shlex.join(arguments)}{f' | {pipe.command}' if pipe else ''}")
        collected, status, color = io.BytesIO(), 0, "always" if self.colors else "never"
        with self._collect_into(collected):
            try:
                main.main(args=["--color", color, *arguments], prog_name="magicbyte")
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        lines = collected.getvalue().decode(errors="replace").splitlines()
        self._show(pipe.filter(lines) if pipe else lines, rows, wrap=wrap)
        if status:
            self._line(click.style(f"(exit status {status})", dim=True))
        return Shown(status, lines)

    def run_script(self, path: Path, source: str, rows: int = 60) -> Shown:
        """Write a Python script, print it, run it, and print its output; its stderr only if it fails."""
        path.write_text(source)
        self.command(f"cat {path.name}")
        self.lines(source.rstrip().splitlines())
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
        """Redirect stdout and stderr to a buffer, in the order of writing."""
        out, err = (io.TextIOWrapper(collected, encoding="utf-8", errors="backslashreplace") for _ in range(2))
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
        self.lines(fitting[:rows])
        if len(fitting) > rows:
            self._line(click.style(f"… and {len(fitting) - rows} more lines", dim=True))


def _pieces(line: str, width: int) -> list[str]:
    """Return a line in pieces of at most `width` characters, all but the first indented, in the line's color."""
    colored = _WHOLE.fullmatch(line)
    plain = _ESCAPE.sub("", line)
    pieces = textwrap.wrap(plain, width, subsequent_indent="    ", break_on_hyphens=False) or [""]
    return pieces if colored is None else [f"{colored[1]}{piece}{colored[2]}" for piece in pieces]


def _cut(line: str, width: int) -> str:
    """Return the line cut to `width` characters, with `…` at the end. Color codes do not count."""
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
