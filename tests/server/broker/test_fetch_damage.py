"""Fetches that reach undeliverable data: the sets before it are returned first, and damage is logged once."""

import itertools
import logging
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.encode import Format
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.server.partitions import partition as broker_partition
from magicbyte.server.partitions.partition import ServedPartition
from server.broker.builders import asking, fetch, made, produce, read, records
from server.broker.serving import Peer, Running

SETS, RECORDS = 6, 4  # of so many records each
DAMAGED = 3  # which of the sets


def entry_of(form: Format) -> Codec:
    return Codec.NONE if form is Format.V2 else Codec.GZIP  # a set is one entry


def flip_in_the_value(entry: bytearray) -> None:
    entry[-5] ^= 0x55


def no_such_magic(entry: bytearray) -> None:
    entry[16] = 9


def no_such_size(entry: bytearray) -> None:
    struct.pack_into(">i", entry, 8, 3)


def junk_under_a_right_checksum(entry: bytearray) -> None:
    """Records that cannot be opened."""
    if entry[16] == 2:
        entry[61:] = b"\xff" * (len(entry) - 61)
        struct.pack_into(">I", entry, 17, crc32c(memoryview(entry)[21:]))
    else:
        entry[-20:] = b"\xff" * 20
        struct.pack_into(">I", entry, 12, zlib.crc32(memoryview(entry)[16:]))


DAMAGES = (flip_in_the_value, no_such_magic, no_such_size, junk_under_a_right_checksum)


def put(path: str, position: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(position)
        file.write(data)


async def filled(peer: Peer, form: Format, codec: Codec) -> int:
    """Produce the sets; return the size of each."""
    data = made(records(RECORDS), form, codec)
    for at in range(SETS):
        answer = await produce(peer, "topic", data, form)
        assert (answer.error_code, answer.base_offset) == (0, RECORDS * at)
    return len(data)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == broker_partition.__name__]


CASES = [
    (form, version, codec, damage)
    for form, version, damage in itertools.product((Format.V1, Format.V2), range(4), DAMAGES)
    for codec in (entry_of(form), Codec.LZ4)
    if form is Format.V2 or version < 2
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_reader_gets_the_sets_before_damage_then_its_code_and_one_line_is_logged(
    damage: Callable[[bytearray], None], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(form: Format, version: int, codec: Codec, place: Path) -> None:
        async with Running(place) as broker:
            await broker.topics.create("topic", configs={"message.format.version": form.value})
            peer = await Peer.of(broker)
            size = await filled(peer, form, codec)
            log = broker.replicas.partition("topic", 0).log.active.log
            assert log.size == SETS * size
            entry = bytearray(log.read_at(DAMAGED * size, size))
            damage(entry)
            put(log.path, DAMAGED * size, entry)
            caplog.clear()
            for _ in range(3):
                given = await fetch(peer, version, asking("topic", 0))
                assert given.error_code == 0
                assert [each.offset for each in read(given)] == [*range(RECORDS * DAMAGED)]
                refused = await fetch(peer, version, asking("topic", RECORDS * DAMAGED, wait_ms=600_000))
                assert (refused.error_code, refused.records) == (2, b"")
            (line,) = lines(caplog)
            assert f"{log.path}, position {DAMAGED * size}" in line
            assert line.startswith("topic-0: ")
            peer.close()

    caplog.set_level(logging.WARNING)
    tried = [(form, version, codec) for form, version, codec, how in CASES if how is damage]
    for at, (form, version, codec) in enumerate(tried):
        place = folder / str(at)
        place.mkdir()
        run(work(form, version, codec, place))
    assert len(tried) == 12


@pytest.mark.parametrize("version", range(4))
async def test_an_old_reader_gets_the_sets_before_a_zstd_batch_then_the_code_for_it(version: int, folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.NONE):
            answer = await produce(peer, "topic", made(records(RECORDS), Format.V2, codec), Format.V2)
            assert answer.error_code == 0
        given = await fetch(peer, version, asking("topic", 0))
        assert [each.offset for each in read(given)] == [*range(2 * RECORDS)]
        refused = await fetch(peer, version, asking("topic", 2 * RECORDS))
        assert (refused.error_code, refused.high_watermark, refused.records) == (76, -1, b"")
        behind = await fetch(peer, version, asking("topic", 3 * RECORDS))
        assert [each.offset for each in read(behind)] == [*range(3 * RECORDS, 4 * RECORDS)]
        peer.close()


def test_a_partition_full_of_damage_is_worth_so_many_lines_and_one_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition: ServedPartition = ServedPartition("topic", 0, None)  # type: ignore[arg-type]
    caplog.set_level(logging.WARNING)
    for position in range(3 * broker_partition.MOST_DAMAGE_TOLD):
        error = CorruptRecordError("crc", expected=1, found=2, position=position)
        partition.tell_damage(error.locate(path="a.log"))
    told = lines(caplog)
    assert len(told) == broker_partition.MOST_DAMAGE_TOLD + 1
    assert "verify --deep" in told[-1]
