"""What the system is asked for when logs are fetched: `magicbyte serve` under strace, every reader of every format.

The documents' tables have two phases: topics store format 0, then 1; with format 2 there is a third. In each, a log may
hold what an earlier setting left there, or a later one that was taken back. A fetch of what its version knows moves the
file's bytes by `sendfile` alone; any other reads them, converts them, and writes what they became.
"""

import asyncio
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from interop import system_calls
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.client.client import Client
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format

pytestmark = pytest.mark.interop

PHASES = {Format.V0: "phase 1", Format.V1: "phase 2", Format.V2: "format 2"}
READERS = {0: Format.V0, 1: Format.V0, 2: Format.V1, 3: Format.V1, 4: Format.V2, 12: Format.V2}
CODECS = (Codec.NONE, Codec.GZIP)
FOUND_BY = 8192 + 32  # bytes that are read at most to find where a fetch begins
BESIDE_RECORDS = 512  # bytes that an answer has beside them, and that a look at the system's cache reads


class Cell(NamedTuple):
    """One case: what the topic's setting says, what the log holds, the codec, the version of the fetch."""

    setting: Format
    stored: Format
    codec: Codec
    version: int

    @property
    def topic(self) -> str:
        return f"set-{self.setting.value}-holds-{self.stored.value}-{self.codec.name.lower()}-fetch-{self.version}."

    @property
    def matches(self) -> bool:
        return READERS[self.version].magic >= self.stored.magic


CELLS = [Cell(*each) for each in itertools.product(PHASES, PHASES, CODECS, READERS)]


@dataclass
class Seen:
    """What one fetch made the broker do: bytes by way, and the size of the file and of what the reader got."""

    size: int
    received: int
    moved: Counter[str]


async def exchange(bootstrap: str) -> dict[Cell, int]:
    """Fill a topic for each cell, then fetch each once; return how many bytes came."""
    made = random.Random(625)
    records = [Record(at, 1_700_000_000_000 + at, 0, b"key %d" % at, made.randbytes(1000)) for at in range(100)]
    received = {}
    async with Client(bootstrap) as client:
        for cell in CELLS:
            await create_topic(client, NewTopic(cell.topic, configs={"message.format.version": cell.stored.value}))
            await send(client, cell.topic, 0, records, ProduceOptions(cell.codec, format=cell.stored))
            if cell.setting is not cell.stored:
                setting = {"message.format.version": cell.setting.value}
                await alter_configs(client, ConfigResource.TOPIC, cell.topic, setting)
        for cell in CELLS:
            options = FetchOptions(versions=range(cell.version, cell.version + 1))
            received[cell] = len((await fetch_sets(client, cell.topic, 0, 0, options)).data)
    return received


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Seen]:
    """Run the broker under strace, once for all cells."""
    assert shutil.which("strace") is not None, "needs strace; on Debian or Ubuntu: sudo apt install strace"
    folder = tmp_path_factory.mktemp("traced")
    trace, logs = folder / "trace", folder / "logs"
    serve = [sys.executable, "-m", "magicbyte", "serve", "--dir", str(logs), "--listen", "127.0.0.1:0"]
    serve.append("log.retention.ms=-1")  # records of 2023
    with subprocess.Popen(
        [*system_calls.strace(trace), *serve], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            address = re.search(r"listening on (\S+)", broker.stdout.readline())
            assert address is not None
            received = asyncio.run(asyncio.wait_for(exchange(address[1]), 240))
            broker.send_signal(signal.SIGTERM)
            broker.wait(120)
        finally:
            broker.kill()
    done = list(system_calls.calls(system_calls.whole(trace, broker.pid)))
    sizes = {cell: (logs / f"{cell.topic}-0" / f"{0:020}.log").stat().st_size for cell in CELLS}
    return {cell: Seen(sizes[cell], received[cell], system_calls.moved(done, cell.topic)) for cell in CELLS}


@pytest.mark.parametrize("cell", [each for each in CELLS if each.matches], ids=lambda cell: cell.topic)
def test_what_a_reader_knows_goes_from_the_file_by_sendfile_alone(cell: Cell, seen: dict[Cell, Seen]) -> None:
    found = seen[cell]
    assert found.received == found.size
    assert found.moved["sendfile"] == found.size
    assert found.moved["read"] <= FOUND_BY
    assert found.moved["written"] <= BESIDE_RECORDS
    assert not found.moved["otherwise"]
    assert found.size > 5 * (FOUND_BY + BESIDE_RECORDS)


@pytest.mark.parametrize("cell", [each for each in CELLS if not each.matches], ids=lambda cell: cell.topic)
def test_a_format_that_the_reader_does_not_know_is_read_and_converted(cell: Cell, seen: dict[Cell, Seen]) -> None:
    found = seen[cell]
    assert not found.moved["sendfile"]
    assert found.moved["read"] >= found.size
    assert found.moved["written"] >= found.received > 0
