"""Ctrl-C and SIGTERM for commands that run until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal


def stops(ended: asyncio.Event) -> None:
    """Set `ended` at the first Ctrl-C or SIGTERM. The second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels the task
            loop.add_signal_handler(number, stop, number)
