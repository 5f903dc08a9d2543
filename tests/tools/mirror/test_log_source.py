"""A log directory that answers as a broker does, for mirrors and rescues."""

import asyncio
from pathlib import Path

from magicbyte.access.client.offsets import bounds
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.records.encode import Format
from magicbyte.tools.mirror.log_source import LogSource
from tools.mirror.sets import stored


def test_a_log_whose_first_segments_were_deleted_begins_at_its_first_segment_and_an_empty_one_at_its_name(
    tmp_path: Path,
) -> None:
    for number, content in enumerate([stored(Format.V2, Codec.GZIP, 100), b""]):
        folder = tmp_path / f"topic-{number}"
        folder.mkdir()
        (folder / f"{100:020}.log").write_bytes(content)

    async def work() -> list[tuple[int, int]]:
        source = LogSource(discover([tmp_path]))
        return [await bounds(source, "topic", number) for number in range(2)]

    assert asyncio.run(work()) == [(100, 110), (100, 100)]
