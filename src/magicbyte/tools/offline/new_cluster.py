"""Rewrite entries of an old cluster for a new one, in which their leaders and producers are unknown.

A batch keeps its records, offsets and times. Its leader epoch becomes 0, that of a new topic. The new cluster assigns
producer ids from 0 on, and a broker that recovers the log would mistake a new producer for an old one of the same id,
and refuse its first batch. So a non-transactional batch loses its producer. A transactional batch needs one, because
markers and the index of aborted transactions identify by it the records for read-committed consumers: FIRST_OLD_ID is
added to its id, beyond any id that clusters assign. Source: Kafka's ProducerStateManager, ProducerIdManager and
LeaderEpochFileCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BATCH_CRC,
    CONTROL_BIT,
    PARTITION_LEADER_EPOCH,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from magicbyte.engine.sentinels import NO_OFFSET, NO_PRODUCER_ID, NO_SEQUENCE
from magicbyte.engine.wire.checksum import crc32c

if TYPE_CHECKING:
    from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
    from magicbyte.engine.records.scan import BatchTable

LEADER_EPOCH = 0
FIRST_OLD_ID = 1 << 62
"""Producer ids of the old cluster begin here; they do not change if a log is rewritten again."""


def of_new_cluster(table: BatchTable) -> memoryview:
    """Return the whole entries of `table`, unmerged, rewritten for a new cluster.

    Entries of magic 0 and 1 are unchanged. Nothing is decompressed; sizes and positions are kept.
    """
    rows = np.flatnonzero(np.asarray(table.magic, np.int64) == 2)
    if not len(rows):
        return table.buffer[: table.end]
    content = bytearray(table.buffer[: table.end])
    data = np.frombuffer(content, np.uint8)
    starts = np.asarray(table.position, np.int64)[rows]
    data[starts[:, None] + PARTITION_LEADER_EPOCH.start + np.arange(4)] = LEADER_EPOCH  # not covered by the CRC
    bits = np.asarray(table.attributes, np.int64)[rows] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    ids = table.gather(PRODUCER_ID, rows)
    is_known = (ids != NO_PRODUCER_ID) & ((bits == 0) | (ids < FIRST_OLD_ID))
    view, sizes = memoryview(content), np.asarray(table.size, np.int64)[rows]
    for row in np.flatnonzero(is_known).tolist():
        at = int(starts[row])
        batch = view[at : at + int(sizes[row])]
        if bits[row]:
            PRODUCER_ID.write(batch, FIRST_OLD_ID + max(int(ids[row]), 0))
        else:
            PRODUCER_ID.write(batch, NO_PRODUCER_ID)
            PRODUCER_EPOCH.write(batch, -1)
            BASE_SEQUENCE.write(batch, NO_SEQUENCE)
        BATCH_CRC.write(batch, crc32c(batch[ATTRIBUTES.start :]))
    return view.toreadonly()


def closing_markers(producers: ProducerSnapshot, end_offset: int) -> bytes:
    """Return the ABORT markers of all open transactions, in the order of their first offsets, from `end_offset` on.

    Each is as its coordinator would have written it: with its id and epoch, at the time of its last batch.
    """
    opened = [producer for producer in producers.producers if producer.current_txn_first_offset != NO_OFFSET]
    opened.sort(key=lambda producer: producer.current_txn_first_offset)
    return b"".join(
        build_marker(
            ControlType.ABORT,
            base_offset=end_offset + at,
            timestamp=producer.timestamp,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=0,
            partition_leader_epoch=LEADER_EPOCH,
        )
        for at, producer in enumerate(opened)
    )
