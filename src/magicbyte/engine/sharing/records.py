"""The records of `__share_group_state`: snapshots (type 0) and updates (type 1), as Kafka 4.1 and later write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from magicbyte.engine.coordination.replay import keyed_records
from magicbyte.engine.coordination.stored import read_stored, write_stored
from magicbyte.engine.protocol.stored import share_snapshot, share_update
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sharing.states import UNSET, StateBatch, StateKey, StateSnapshot, StateUpdate, StoredState
from magicbyte.engine.wire.reader import Reader

SNAPSHOT: Final = 0
UPDATE: Final = 1


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def encode(
    key: StateKey, value: StateSnapshot | StateUpdate | None, *, with_counts: bool
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; None deletes the state.

    `with_counts`: also the number of records that are done, as from 4.2 on.
    """
    if isinstance(value, StateUpdate):
        update = share_update.ShareUpdateValue(
            snapshot_epoch=value.snapshot_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start,
            delivery_complete_count=value.complete_count if with_counts else UNSET,
            state_batches=[
                share_update.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in value.batches
            ],
        )
        return write_stored(share_update.ShareUpdateKey(**key._asdict()), UPDATE), write_stored(update, 0)
    raw_key = write_stored(share_snapshot.ShareSnapshotKey(**key._asdict()), SNAPSHOT)
    if value is None:
        return raw_key, None
    snapshot = share_snapshot.ShareSnapshotValue(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start,
        delivery_complete_count=value.complete_count if with_counts else UNSET,
        create_timestamp=value.created_ms,
        write_timestamp=value.written_ms,
        state_batches=[
            share_snapshot.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in value.batches
        ],
    )
    return raw_key, write_stored(snapshot, 0)


def decode(key: bytes, value: bytes | None) -> tuple[StateKey, StateSnapshot | StateUpdate | None] | None:
    """Return what a record says, None if its type or version is unknown. Raises CorruptRecordError."""
    kind = Reader(key).int16()
    if kind not in (SNAPSHOT, UPDATE) or (value is not None and Reader(value).int16() != 0):
        return None
    if kind == SNAPSHOT:
        names = read_stored(share_snapshot.ShareSnapshotKey, key, kind)
        found = StateKey(names.group_id, names.topic_id, names.partition)
        if value is None:
            return found, None
        stored = read_stored(share_snapshot.ShareSnapshotValue, value, 0)
        return found, StateSnapshot(
            stored.snapshot_epoch,
            stored.state_epoch,
            stored.leader_epoch,
            stored.start_offset,
            stored.create_timestamp,
            stored.write_timestamp,
            _batches(stored.state_batches),
            stored.delivery_complete_count,
        )
    changed = read_stored(share_update.ShareUpdateKey, key, kind)
    if value is None:
        return None
    update = read_stored(share_update.ShareUpdateValue, value, 0)
    return StateKey(changed.group_id, changed.topic_id, changed.partition), StateUpdate(
        update.snapshot_epoch,
        update.leader_epoch,
        update.start_offset,
        _batches(update.state_batches),
        update.delivery_complete_count,
    )


def _batches(batches: Iterable[_Batch]) -> Sequence[StateBatch]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


class Loading:
    """Read the log of a partition of `__share_group_state`, piece by piece.

    The states are those after all records: an update of another snapshot than the last one has no effect.
    """

    def __init__(self) -> None:
        self._states: dict[StateKey, StoredState] = {}

    def read(self, data: memoryview) -> int:
        """Read the whole entries of `data`, which follow those read before.

        Return their last offset, -1 if there are none. Raises CorruptRecordError.
        """
        table, last = scan(data), -1
        for key, record in keyed_records(table, range(len(table))):
            last = record.offset
            if (found := decode(key, record.value)) is not None:
                self.apply(*found, record.offset)
        if table.damage is not None:
            raise table.damage
        return last

    def apply(self, key: StateKey, value: StateSnapshot | StateUpdate | None, offset: int) -> None:
        """Apply a record."""
        match value:
            case None:
                self._states.pop(key, None)
            case StateSnapshot():
                self._states[key] = StoredState.of(value)
                self._states[key].floor = offset
            case StateUpdate():
                state = self._states.get(key)
                if state is not None and state.snapshot_epoch == value.snapshot_epoch:
                    state.update(value)

    def finish(self) -> dict[StateKey, StoredState]:
        """Return the states after all that was read."""
        return self._states
