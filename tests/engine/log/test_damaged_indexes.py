"""One bit of a closed log's index files, changed: no record is hidden, lost or moved by it, and the file is rebuilt.

An index is derived from its log, so it proves a loss only if it can be true (`Segment.names_more_than_there_is`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.log.appended import batch_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.loading import RepairScope
from magicbyte.engine.log.live.lookups import aborted_transactions, offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import TRANSACTIONAL_BIT
from magicbyte.engine.records.scan import scan
from topic_settings import log_config

NOW = 1_700_000_000_000
MEMORY = Path("/dev/shm")
SETTINGS = {"segment.bytes": "700", "segment.index.bytes": "240", "index.interval.bytes": "100"}
OPENED = Moment.fixed(NOW)


def batches() -> Iterator[bytes]:
    """Yield batches of one and two records, and of two aborted transactions."""
    offset = 0
    while offset < 30:
        yield batch_of(offset, NOW + offset, 1 + offset % 2)
        offset += 1 + offset % 2
    for producer in (7, 8):
        yield batch_of(
            offset, NOW + offset, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT
        )
        yield batch_of(offset + 1, NOW + offset + 1)
        yield build_marker(
            ControlType.ABORT, base_offset=offset + 2, timestamp=NOW + offset + 2, producer_id=producer,
            producer_epoch=0, coordinator_epoch=0, partition_leader_epoch=0,
        )  # fmt: skip
        offset += 3


def messages(version: Format, codec: Codec) -> Iterator[bytes]:
    for at in range(0, 36, 3):
        offsets = range(at, at + 3)
        some = [Record(offset, NOW + offset if version is Format.V1 else -1, 0, b"k", b"v" * 8) for offset in offsets]
        yield encode_records(some, version, codec)


class Kind(NamedTuple):
    """A log, made by the rules of a release."""

    version: str
    sets: Callable[[], Iterator[bytes]]


KINDS = {
    "v2": Kind("4.3", batches),
    "v1": Kind("0.10.2", lambda: messages(Format.V1, Codec.NONE)),
    "v1 wrappers": Kind("0.10.2", lambda: messages(Format.V1, Codec.GZIP)),
    "v0 wrappers": Kind("0.9.0", lambda: messages(Format.V0, Codec.GZIP)),
}


def config_of(kind: Kind) -> LogConfig:
    return log_config(SETTINGS, IndexRules.of(kind.version))


def opened(path: Path, config: LogConfig, end: int, repair_scope: RepairScope = RepairScope.TORN_END) -> PartitionLog:
    return PartitionLog.open(
        LocalFiles(), str(path), config, monotonic_ms=NOW, clean=True, recovery_point=end, repair_scope=repair_scope,
        quarantine=f"{path.parent}/quarantine",
    )  # fmt: skip


class Made(NamedTuple):
    """A closed log in `folder`, and its facts."""

    folder: Path
    config: LogConfig
    end: int
    facts: object


def facts_of(log: PartitionLog, end: int) -> object:
    """Return where a reader finds each offset and each time, and what is aborted."""
    reads, times = [], []
    for offset in range(log.log_start_offset, end):
        piece = log.read(offset, 1)
        assert piece is not None
        reads.append(tuple(last_offsets(scan(memoryview(piece.read()))).tolist()))
    if log.config.rules.has_time_index:
        times = [offset_for_timestamp(log, NOW + at) for at in range(end)]
    largest = [each.largest_timestamp for each in log.segments]
    return log.log_end_offset, reads, times, largest, aborted_transactions(log, 0, end)


@pytest.fixture(scope="module")
def logs() -> Iterator[dict[str, Made]]:
    made = {}
    with tempfile.TemporaryDirectory(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for at, (name, kind) in enumerate(KINDS.items()):
            path, config = Path(folder, f"log-{at}"), config_of(kind)
            log = PartitionLog.open(LocalFiles(), str(path), config, monotonic_ms=NOW, clean=True)
            for content in kind.sets():
                log.append(record_set(content, log.config.rules), OPENED)
            log.high_watermark = end = log.log_end_offset
            log.close()
            log = opened(path, config, end)
            assert len(log.segments) > 1
            made[name] = Made(path, config, end, facts_of(log, end))
            log.close()
        yield made


def indexes(folder: Path) -> list[Path]:
    return [each for each in sorted(folder.iterdir()) if each.suffix.endswith("index") and each.stat().st_size]


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("repair_scope", [RepairScope.TORN_END, RepairScope.DAMAGE], ids=["served", "repaired"])
@pytest.mark.parametrize(
    "step", [37, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.campaign])], ids=["sample", "all"]
)
@pytest.mark.parametrize("name", KINDS)
def test_a_changed_bit_of_an_index_hides_no_record_and_no_loss_is_claimed(
    logs: dict[str, Made], memory: Path, name: str, step: int, repair_scope: RepairScope
) -> None:
    made = logs[name]
    bits = [(path.name, bit) for path in indexes(made.folder) for bit in range(8 * path.stat().st_size)]
    for at, (file, bit) in enumerate(bits[::step]):
        path = memory / f"log-{at}"
        shutil.copytree(made.folder, path)
        content = bytearray((path / file).read_bytes())
        content[bit // 8] ^= 0x80 >> bit % 8
        (path / file).write_bytes(content)
        log = opened(path, made.config, made.end, repair_scope)
        assert not [line for line in log.loaded.notes if "lost" in line], (file, bit)
        assert log.loaded.cuts == []
        assert facts_of(log, made.end) == made.facts, (file, bit)
        log.close()
        shutil.rmtree(path)


@pytest.mark.parametrize("name", KINDS)
def test_an_index_that_names_what_its_log_lost_is_still_evidence(
    logs: dict[str, Made], memory: Path, name: str
) -> None:
    made = logs[name]
    path = memory / "log-0"
    shutil.copytree(made.folder, path)
    first = min(path.glob("*.log"))
    data = first.read_bytes()
    table = scan(memoryview(data))
    first.write_bytes(data[: int(table.position[1])])  # between two entries: the log alone shows nothing
    with pytest.raises(CorruptRecordError, match="what its index names"):
        opened(path, made.config, made.end)
    log = opened(path, made.config, made.end, RepairScope.DAMAGE)
    assert [line for line in log.loaded.notes if "lost" in line]
    log.close()


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(b"\x7f\xff\xff\xff\x7f\xff\xff\xff", id="an offset and a position that no log has"),
        pytest.param((3).to_bytes(4, "big") + b"\xff\xff\xff\xf0", id="a negative position"),
        pytest.param((3).to_bytes(4, "big") + (1 << 30).to_bytes(4, "big"), id="a position beyond the log"),
        pytest.param((3).to_bytes(4, "big") + (7).to_bytes(4, "big"), id="a position inside an entry"),
        pytest.param(bytes(range(80)), id="junk"),
        pytest.param(
            b"".join(at.to_bytes(4, "big") + (1 << 20).to_bytes(4, "big") for at in (5, 4, 3)), id="falling offsets"
        ),
    ],
)
def test_an_impossible_offset_index_is_rebuilt(logs: dict[str, Made], memory: Path, entries: bytes) -> None:
    made = logs["v2"]
    path = memory / "log-0"
    shutil.copytree(made.folder, path)
    index = min(path.glob("*.index"))
    right = index.read_bytes()
    index.write_bytes(entries)
    log = opened(path, made.config, made.end)
    assert [line for line in log.loaded.notes if str(index) in line and "rebuilt" in line]
    assert facts_of(log, made.end) == made.facts
    log.close()
    assert index.read_bytes() == right
