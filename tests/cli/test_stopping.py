"""Ctrl-C and SIGTERM of commands that run for long."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from magicbyte.cli.stopping import stops

async def work():
    ended = asyncio.Event()
    stops(ended)
    print("running", flush=True)
    await ended.wait()
    print("stopping", flush=True)
    await asyncio.sleep(60)

asyncio.run(work())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_heard_and_the_second_does_not_wait(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(number)
        assert process.wait(120) == -number
    finally:
        process.kill()
        process.communicate()
