"""The batches of a KRaft metadata log, and whole snapshots of it, as Kafka writes them.

Data batches are uncompressed, their records have no key. Control records are in batches of their own. A snapshot is a
control batch with its header, data batches, and a control batch with its footer; offsets in it count from 0 on, and are
not those of the log. Source: Kafka's BatchAccumulator and RecordsSnapshotWriter; files of 3.3.2 to 4.4.0.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.cluster.metadata_records import write_metadata_record
from magicbyte.engine.protocol.messages.kraft_version_record import KRaftVersionRecord
from magicbyte.engine.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from magicbyte.engine.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from magicbyte.engine.protocol.messages.voters_record import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from magicbyte.engine.records.batch import batch_attributes, build_batch, single_record
from magicbyte.engine.records.control import ControlType

if TYPE_CHECKING:
    from magicbyte.engine.cluster.metadata_records import MetadataRecord
    from magicbyte.engine.protocol.message import Message

_KEY: Final = struct.Struct(">hh")
_CONTROL: Final = batch_attributes(is_control=True)
MOST_BATCH_BYTES: Final = 1 << 20
"""A data batch of a snapshot ends before it. Kafka reads batches of up to 8 MiB."""


class QuorumVoter(NamedTuple):
    """A voter of a dynamic quorum: its node, the directory of its log, and where its controller listens."""

    node_id: int
    directory_id: uuid.UUID
    listener: str
    host: str
    port: int


class Control(NamedTuple):
    """A control record: its type, and the message, in version 0."""

    type: ControlType
    message: Message


def voters_of(voters: Sequence[QuorumVoter]) -> list[Control]:
    """Return the control records that make a quorum dynamic: its level, and its voters."""
    made = [
        Voter(
            voter_id=each.node_id,
            voter_directory_id=each.directory_id,
            endpoints=[Endpoint(name=each.listener, host=each.host, port=each.port)],
            kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        for each in voters
    ]
    return [
        Control(ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)),
        Control(ControlType.KRAFT_VOTERS, VotersRecord(voters=made)),
    ]


def snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    written_ms: int,
    contained_ms: int,
    controls: Sequence[Control] = (),
) -> Iterator[bytes]:
    """Yield the batches of a snapshot file.

    `epoch`: of the last record that it covers, as in its name. `contained_ms`: the time of that record. `controls`:
    what follows the header in its batch.
    """
    header = Control(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=contained_ms))
    first = [header, *controls]
    yield _control_batch(first, 0, epoch, written_ms)
    at, waiting, size = len(first), list[bytes](), 0
    for record in records:
        value = write_metadata_record(record)
        if waiting and size + len(value) > MOST_BATCH_BYTES:
            yield _batch(waiting, at, epoch, written_ms)
            at, waiting, size = at + len(waiting), [], 0
        waiting.append(single_record(None, value, offset_delta=len(waiting)))
        size += len(waiting[-1])
    if waiting:
        yield _batch(waiting, at, epoch, written_ms)
    footer = Control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord())
    yield _control_batch([footer], at + len(waiting), epoch, written_ms)


def _control_batch(controls: Sequence[Control], base_offset: int, epoch: int, timestamp: int) -> bytes:
    records = [
        single_record(_KEY.pack(0, each.type), each.message.encode(0), offset_delta=at)
        for at, each in enumerate(controls)
    ]
    return _batch(records, base_offset, epoch, timestamp, _CONTROL)


def _batch(records: Sequence[bytes], base_offset: int, epoch: int, timestamp: int, attributes: int = 0) -> bytes:
    return build_batch(
        b"".join(records),
        base_offset=base_offset,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=len(records),
        attributes=attributes,
        partition_leader_epoch=epoch,
    )
