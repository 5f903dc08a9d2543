"""Log directories that real brokers left, served by ours: what their consumer saw is what ours gives."""

import base64
import shutil
from pathlib import Path

import pytest

import golden_data
from broker.serving import Running, run
from golden_data import Case
from magicbyte.client import Client
from magicbyte.client.fetch import read_records
from magicbyte.client.offsets import bounds

CASES = [each for each in golden_data.log_cases(state="clean shutdown") if each.has_records and each.codec == "lz4"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_topic_of_a_real_broker_is_served_with_nothing_but_its_folder(case: Case, folder: Path) -> None:
    shutil.copytree(case.partition_dir(), folder / f"{case.topic}-{case.partition}")

    async def work() -> list[tuple[int, int, bytes | None, bytes | None]]:
        async with Running(folder) as broker:
            assert broker.topics.adopted == [case.topic]
            address = f"127.0.0.1:{next(iter(broker.ports.values()))}"
            async with Client(address) as client:
                start, end = await bounds(client, case.topic, case.partition)
                found = read_records(client, case.topic, case.partition, start, end)
                return [(each.offset, each.timestamp, each.key, each.value) async for part in found for each in part]

    assert run(work()) == [
        (
            each["offset"],
            -1 if each["timestamp"] is None else each["timestamp"],
            *(None if each[cell] is None else base64.b64decode(each[cell]) for cell in ("key", "value")),
        )
        for each in case.records()
    ]
