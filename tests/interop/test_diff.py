"""`magicbyte diff` between topics of real brokers and the log directories that the brokers keep of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from interop import jvm
from interop.sweeps import cells
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

START = 1_700_000_000_000
Json = dict[str, Any]


@pytest.fixture(scope="module", params=cells(("0.9.0.1", "0.10.2.2", "4.3.1")))
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, bool]]:
    folder: Path = tmp_path_factory.mktemp(f"diff-{request.param}")
    with jvm.broker(request.param, folder, "log.retention.ms=-1", scratch=True) as state:
        yield state["bootstrap"], folder, request.param != "0.9.0.1"


def produce(bootstrap: str, topic: str, values: list[bytes], *, make: bool) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client:
            if make:  # brokers before 0.10.1 make a topic when it is asked for
                await admin.create_topic(client, admin.NewTopic(topic))
            for turn, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.LZ4)):
                part = [Record(0, START + at, 0, b"key", value) for at, value in enumerate(values)]
                options = ProduceOptions(codec=codec, batch_bytes=500 + turn)
                await send(client, topic, 0, part, options)

    asyncio.run(asyncio.wait_for(work(), 240))


def test_a_topic_is_the_same_as_the_log_that_its_broker_keeps_and_as_a_copy(broker: tuple[str, Path, bool]) -> None:
    bootstrap, folder, make = broker
    values = [b"value-%d" % at for at in range(100)]
    for topic in ("one", "copy"):
        produce(bootstrap, topic, values, make=make)
    produce(bootstrap, "other", [*values[:-1], b"changed"], make=make)
    (log,) = folder.rglob("one-0")
    same = run("diff", f"kafka://{bootstrap}/one", log, "--format", "json")
    assert (same.exit_code, json.loads(same.stdout)["partitions"][0]["compared"]) == (0, 300)
    assert run("diff", f"kafka://{bootstrap}/one", f"kafka://{bootstrap}/copy").exit_code == 0
    different = run("diff", f"kafka://{bootstrap}/one", f"kafka://{bootstrap}/other", "--format", "json")
    found: Json = json.loads(different.stdout)["partitions"][0]
    assert (different.exit_code, found["differing"]) == (1, {"value": 3})
    assert [each["firstOffset"] for each in found["differences"]] == [99, 199, 299]
