"""Ctrl-C and SIGTERM for commands that run until they are told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal


def stops(ended: asyncio.Event) -> None:
    """Let Ctrl-C and SIGTERM set `ended`, once: the second of them ends the process as usual, without waiting."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels the task
            loop.add_signal_handler(number, stop, number)
