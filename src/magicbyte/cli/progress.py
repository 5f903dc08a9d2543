"""A bar on stderr with bytes, rate and time left: on a terminal only, and only where there is something to wait for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

WORTH_SHOWING = 64 << 20  # bytes


@contextlib.contextmanager
def progress(total: int, *, shares_terminal: bool = False) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the bytes just done, of `total`.

    `shares_terminal`: our data goes to stdout while the bar is shown; no bar then, if that is a terminal as well.
    """
    if total < WORTH_SHOWING or not sys.stderr.isatty() or (shares_terminal and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.advance(task, size)
