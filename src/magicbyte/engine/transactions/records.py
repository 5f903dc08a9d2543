"""The records of `__transaction_state`: the state of each transactional id.

Unknown versions are returned as such, with their bytes, because a log may come from a later broker. The stored forms:
`magicbyte.engine.protocol.stored.transaction_log`.
"""

import enum
from typing import Any, NamedTuple, TypeAlias

from magicbyte.engine.coordination.stored import UnknownKey, UnknownValue, read_stored, write_stored
from magicbyte.engine.protocol.stored.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from magicbyte.engine.wire.reader import Reader

KEY_VERSION = 0
LAST_KNOWN = 1  # of the value


class TransactionState(enum.IntEnum):
    """Kafka's names and numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools print."""
        return self.name.title().replace("_", "")


STATES = {int(state): state for state in TransactionState}
"""By number."""


class WrittenPartitions(NamedTuple):
    """Partitions of one topic that a transaction wrote to."""

    topic: str
    partition_ids: list[int]


class TransactionKey(NamedTuple):
    """The key of the state of this transactional id."""

    transactional_id: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools from 4.0 on."""
        return {"type": str(KEY_VERSION), "data": {"transactionalId": self.transactional_id}}

    def to_text(self) -> str:
        """Return the text of Kafka's tools up to 3.9."""
        return f"transaction_metadata::transactionalId={self.transactional_id}"

    def to_bytes(self) -> bytes:
        """Return the encoded key. Raises ProtocolError for a name that is too long."""
        return write_stored(TransactionLogKey(transactional_id=self.transactional_id), KEY_VERSION)


class TransactionValue(NamedTuple):
    """The state of one transactional id. Fields that version 0 does not have are -1 or 0."""

    version: int
    producer_id: int
    previous_producer_id: int  # version 1, else -1
    next_producer_id: int  # version 1, else -1
    producer_epoch: int
    timeout_ms: int
    status: int  # a TransactionState, or an unknown number
    partitions: list[WrittenPartitions] | None  # None while Empty
    last_update_timestamp: int  # ms
    start_timestamp: int  # ms, -1: none
    client_transaction_version: int  # version 1, else 0

    @property
    def state(self) -> TransactionState | None:
        """The state, None if its number is unknown."""
        return STATES.get(self.status)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools from 4.0 on: tagged fields only if they are set."""
        data: dict[str, Any] = {"producerId": self.producer_id}
        if self.previous_producer_id != -1:
            data["previousProducerId"] = self.previous_producer_id
        if self.next_producer_id != -1:
            data["nextProducerId"] = self.next_producer_id
        data |= {
            "producerEpoch": self.producer_epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": self.status,
            "transactionPartitions": None
            if self.partitions is None
            else [{"topic": topic, "partitionIds": ids} for topic, ids in self.partitions],
            "transactionLastUpdateTimestampMs": self.last_update_timestamp,
            "transactionStartTimestampMs": self.start_timestamp,
        }
        if self.client_transaction_version:
            data["clientTransactionVersion"] = self.client_transaction_version
        return {"version": str(self.version), "data": data}

    def to_text(self) -> str:
        """Return the text of Kafka's tools up to 3.9."""
        state = self.state
        partitions = [f"{topic}-{each}" for topic, ids in self.partitions or [] for each in ids]
        return (
            f"producerId:{self.producer_id},producerEpoch:{self.producer_epoch},"
            f"state={self.status if state is None else state.label},partitions=[{','.join(partitions)}],"
            f"txnLastUpdateTimestamp={self.last_update_timestamp},txnTimeoutMs={self.timeout_ms}"
        )

    def to_bytes(self) -> bytes:
        """Return the encoded value, in its version; fields that the version does not have are omitted."""
        partitions, tagged = self.partitions, self.version >= 1
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if tagged else -1,
            next_producer_id=self.next_producer_id if tagged else -1,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.status,
            transaction_partitions=None
            if partitions is None
            else [PartitionsSchema(topic=topic, partition_ids=tuple(ids)) for topic, ids in partitions],
            transaction_last_update_timestamp_ms=self.last_update_timestamp,
            transaction_start_timestamp_ms=self.start_timestamp,
            client_transaction_version=self.client_transaction_version if tagged else 0,
        )
        return write_stored(value, self.version)


Key: TypeAlias = TransactionKey | UnknownKey
Value: TypeAlias = TransactionValue | UnknownValue


def decode_key(data: bytes) -> Key:
    """Decode a record's key. Raises CorruptRecordError."""
    version = Reader(data).int16()
    if version != KEY_VERSION:
        return UnknownKey(version, bytes(data))
    return TransactionKey(read_stored(TransactionLogKey, data, version).transactional_id)


def decode_value(key: Key, data: bytes | None) -> Value | None:
    """Decode the value of `key`, None for a tombstone. Raises CorruptRecordError."""
    if data is None:
        return None
    version = Reader(data).int16()
    if not 0 <= version <= LAST_KNOWN or isinstance(key, UnknownKey):
        return UnknownValue(version, bytes(data))
    stored = read_stored(TransactionLogValue, data, version)
    partitions = stored.transaction_partitions
    return TransactionValue(
        version=version,
        producer_id=stored.producer_id,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        status=stored.transaction_status,
        partitions=None
        if partitions is None
        else [WrittenPartitions(p.topic, list(p.partition_ids)) for p in partitions],
        last_update_timestamp=stored.transaction_last_update_timestamp_ms,
        start_timestamp=stored.transaction_start_timestamp_ms,
        client_transaction_version=stored.client_transaction_version,
    )
