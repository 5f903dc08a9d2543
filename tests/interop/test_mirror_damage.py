"""A damaged set on its way to real brokers: its new checksum follows from the old one, so they refuse it."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interop import jvm
from magicbyte.access.client import Client
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import PRODUCER_EPOCH, RECORD_BATCH_OVERHEAD
from magicbyte.testing import Broker
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import Pair, payloads, records

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

DAMAGED = 6  # of ten sets of ten records
PLACES = {"payload": RECORD_BATCH_OVERHEAD + 5, "producer-epoch": PRODUCER_EPOCH.start, "checksum": 17}


@pytest.mark.parametrize("version", [pytest.param("2.8.2", marks=pytest.mark.campaign), "4.3.1"])
def test_real_brokers_take_what_is_sound_and_refuse_what_is_damaged(tmp_path: Path, version: str) -> None:
    """Also if the damage is in a part of the header that is rewritten."""
    with (
        jvm.broker(version, tmp_path / "target", "log.retention.ms=-1") as state,
        Broker(directory=tmp_path / "source") as source,
    ):
        target: Any = SimpleNamespace(bootstrap_servers=state["bootstrap"])
        pair = Pair(source, target)
        for topic, at in PLACES.items():
            pair.fill(topic, [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
            log = tmp_path / "source" / f"{topic}-0" / f"{0:020}.log"
            position = [position for position, _ in entries(memoryview(log.read_bytes()))][DAMAGED]
            with log.open("r+b") as file:
                file.seek(position + at)
                byte = file.read(1)[0]
                file.seek(position + at)
                file.write(bytes([byte ^ 0x10]))
            with pytest.raises(CorruptRecordError, match=rf"{topic}-0, position 0, offsets 60\.\.69: crc"):
                pair.mirror(Choice(re.compile(topic)))

            async def compare(here: Client, there: Client, topic: str = topic) -> None:
                found = await records(there, topic)
                assert [each[0] for each in found] == list(range(10 * DAMAGED))
                assert await payloads(there, topic) == (await payloads(here, topic))[:DAMAGED]

            pair.run(compare)
