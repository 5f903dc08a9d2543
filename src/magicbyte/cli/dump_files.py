"""Dump the files beside a log: indexes, snapshots, checkpoints. A dict per line, as in dump_log.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import (
    ENRICHED_INDEX,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from magicbyte.engine.log.files.filesystem import read_whole
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.records.layout import HEADER_TO_MAGIC, LOG_OVERHEAD, MAGIC, OFFSET, SIZE, V0_MINIMUM
from magicbyte.engine.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import EnrichedIndex, OffsetIndex
    from magicbyte.engine.log.files.reader import DamageHandler
    from magicbyte.engine.ports import FileSystem

Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SmallFile:
    """An index, snapshot or checkpoint to dump. `path` ends in `leftover`: .deleted, .cleaned, .swap or nothing."""

    files: FileSystem
    path: str
    leftover: str
    on_damage: DamageHandler

    @property
    def base_offset(self) -> int:
        """The offset in the name, or 0 without one, so that relative offsets are shown unchanged."""
        stem = self.path.rpartition("/")[2].partition(".")[0]
        return int(stem) if stem.isdigit() else 0

    @property
    def log_path(self) -> str:
        """The `.log` file of an index."""
        return f"{self.path.removesuffix(self.leftover).rpartition('.')[0]}{LOG}{self.leftover}"

    def content(self) -> bytes:
        """Return the whole file."""
        return read_whole(self.files, self.path)

    def report(self, error: CorruptRecordError) -> None:
        """Pass damage to the handler, which may raise it."""
        self.on_damage(error.locate(path=self.path))

    def parsed(self, parse: Callable[[bytes], Any]) -> Any:
        """Return `parse` of the content, None if it is damaged.

        If only the last entry is truncated, parse the others.
        """
        content = self.content()
        try:
            return parse(content)
        except CorruptRecordError as error:
            self.report(error)
            if error.what.endswith("index size"):
                return parse(content[: error.position])
        return None

    def sound(self, verify: Callable[[], None]) -> bool:
        """Report damage raised by `verify`. Return whether there was none."""
        try:
            verify()
        except CorruptRecordError as error:
            self.report(error)
            return False
        return True


def lines_of(file: SmallFile, suffix: str, *, show: bool, deep_check: bool) -> Iterator[Fields]:
    """Yield a dict per entry of a file of kind `suffix` (the name of a text file), and report its damage.

    `show`: yield the entries, not only check them. `deep_check`: compare an index with its log.
    """
    if suffix == OFFSET_INDEX:
        return _offset_index(file, show=show, deep_check=deep_check)
    if suffix == ENRICHED_INDEX:
        return _enriched_index(file, show=show, deep_check=deep_check)
    if suffix == TIME_INDEX:
        return _time_index(file, show=show)
    if suffix == TRANSACTION_INDEX:
        return _transaction_index(file, show=show)
    if suffix == SNAPSHOT:
        return _snapshot(file)
    return iter(file.parsed(TEXTS[suffix]) or ())


def _offset_index(file: SmallFile, *, show: bool, deep_check: bool) -> Iterator[Fields]:
    from magicbyte.engine.log.files.indexes import OffsetIndex

    index: OffsetIndex | None = file.parsed(lambda content: OffsetIndex.parse(content, file.base_offset))
    if index is None:
        return
    if show:
        for offset, position in zip(index.offsets.tolist(), index.positions.tolist(), strict=True):
            yield {"kind": "index", "offset": offset, "position": position}
    if file.sound(index.verify) and deep_check:
        _compare_with_log(file, index)


def _enriched_index(file: SmallFile, *, show: bool, deep_check: bool) -> Iterator[Fields]:
    from magicbyte.engine.log.files.indexes import EnrichedIndex

    index: EnrichedIndex | None = file.parsed(lambda content: EnrichedIndex.parse(content, file.base_offset))
    if index is None:
        return
    if show:
        entries = zip(index.offsets.tolist(), index.timestamps.tolist(), index.positions.tolist(), strict=True)
        for offset, timestamp, position in entries:
            yield {"kind": "emindex", "offset": offset, "timestamp": timestamp, "position": position}
    if file.sound(index.verify) and deep_check:
        _compare_with_log(file, index)


def _time_index(file: SmallFile, *, show: bool) -> Iterator[Fields]:
    from magicbyte.engine.log.files.indexes import TimeIndex

    index: TimeIndex | None = file.parsed(lambda content: TimeIndex.parse(content, file.base_offset))
    if index is None:
        return
    if show:
        for timestamp, offset in zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True):
            yield {"kind": "timeindex", "timestamp": timestamp, "offset": offset}
    file.sound(index.verify)


def _transaction_index(file: SmallFile, *, show: bool) -> Iterator[Fields]:
    from magicbyte.engine.log.files.indexes import TransactionIndex

    index: TransactionIndex | None = file.parsed(TransactionIndex.parse)
    if index is None:
        return
    if show:
        for entry in index.entries:
            yield {
                "kind": "txnindex",
                "version": entry.version,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }
    file.sound(index.verify)


def _snapshot(file: SmallFile) -> Iterator[Fields]:
    snapshot: ProducerSnapshot | None = file.parsed(ProducerSnapshot.parse)
    for entry in snapshot.producers if snapshot is not None else ():
        open_since = entry.current_txn_first_offset
        fields = {
            "kind": "snapshot",
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if open_since == NO_OFFSET else open_since,
            "lastTimestamp": entry.timestamp,
        }
        if entry.last_offset >= 0:
            fields |= {
                "firstSequence": entry.first_sequence,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
                "timestamp": entry.timestamp,
            }
        yield fields


def _compare_with_log(file: SmallFile, index: OffsetIndex | EnrichedIndex) -> None:
    """Report the first entry that does not lead to an entry of the log from which its offset can be found.

    Brokers index the first or the last offset of an append, and both are accepted. Without a log nothing is compared.
    """
    try:
        log = file.files.open(file.log_path)
    except OSError:
        return
    with log:
        if not file.sound(lambda: index.verify(log.size)):
            return
        for at, (offset, position) in enumerate(zip(index.offsets.tolist(), index.positions.tolist(), strict=True)):
            head = memoryview(log.read_at(position, HEADER_TO_MAGIC))
            what = None
            if len(head) < HEADER_TO_MAGIC or head[MAGIC.start] > 2 or SIZE.read(head) < V0_MINIMUM:
                what = "no entry"
            elif position + LOG_OVERHEAD + SIZE.read(head) > log.size:
                what = f"an entry of {LOG_OVERHEAD + SIZE.read(head)} bytes, beyond the end"
            elif head[MAGIC.start] == 2 and OFFSET.read(head) > offset:
                what = f"offset {OFFSET.read(head)}"
            if what is not None:
                expected = f"an entry at position {position} of the log with offset {offset}, or before it"
                error = CorruptRecordError("index", expected=expected, found=what, position=at * index.ENTRY_SIZE)
                file.report(error)
                return


def _offsets(content: bytes) -> list[Fields]:
    return [
        {"kind": "offset checkpoint", "topic": key.topic, "partition": key.partition, "offset": offset}
        for key, offset in checkpoints.parse_offset_checkpoint(content).items()
    ]


def _leader_epochs(content: bytes) -> list[Fields]:
    return [
        {"kind": "leader epoch", "epoch": epoch, "startOffset": start}
        for epoch, start in checkpoints.parse_leader_epochs(content)
    ]


def _partition_metadata(content: bytes) -> list[Fields]:
    found = checkpoints.parse_partition_metadata(content)
    return [{"kind": "partition metadata", "version": found.version, "topicId": found.topic_id_text}]


def _meta_properties(content: bytes) -> list[Fields]:
    return [{"kind": "meta properties", "properties": checkpoints.parse_meta_properties(content).properties}]


def _clean_shutdown(content: bytes) -> list[Fields]:
    found = checkpoints.parse_clean_shutdown(content)
    return [{"kind": "clean shutdown", "version": found.version, "brokerEpoch": found.broker_epoch}]


def _dialect(content: bytes) -> list[Fields]:
    return [{"kind": "message dialect", "dialect": checkpoints.parse_message_dialect(content).value}]


def _quorum_state(content: bytes) -> list[Fields]:
    return [{"kind": "quorum state", "state": checkpoints.parse_quorum_state(content)}]


TEXTS: dict[str, Callable[[bytes], list[Fields]]] = {
    **dict.fromkeys(checkpoints.OFFSET_CHECKPOINTS, _offsets),
    checkpoints.LEADER_EPOCHS: _leader_epochs,
    checkpoints.PARTITION_METADATA: _partition_metadata,
    checkpoints.META_PROPERTIES: _meta_properties,
    checkpoints.CLEAN_SHUTDOWN: _clean_shutdown,
    checkpoints.MESSAGE_DIALECT: _dialect,
    checkpoints.QUORUM_STATE: _quorum_state,
}
"""The text files, by name, with their parsers."""
