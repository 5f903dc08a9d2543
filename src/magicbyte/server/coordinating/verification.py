"""Verify transactions with their coordinator before a partition appends their first records (KIP-890).

Under protocol 1 the partition must be part of the transaction, so that late records do not leave a hanging one. Under
protocol 2 the first records add the partition.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from magicbyte.engine.errors import AppendRefusedError, ErrorCode, MagicbyteError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.log.append.producer_check import OPEN
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import FIRST_OF_PROTOCOL_2
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    MAGIC,
    PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
)
from magicbyte.server.serving.metrics import now_ns

if TYPE_CHECKING:
    from magicbyte.engine.protocol.messages.produce import ProduceRequest
    from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.partitions.appends import NewSet
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.request import Request
    from magicbyte.server.serving.runtime import Runtime

_PRODUCE_JOINS: Final = FIRST_OF_PROTOCOL_2[ApiKey.PRODUCE]  # bound once: each produced set asks for it
_COMMIT_JOINS: Final = FIRST_OF_PROTOCOL_2[ApiKey.TXN_OFFSET_COMMIT]
_FIRST_WITH_ABORTABLE: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4}
_PAUSES_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.02, 0.04)
"""The delays before retries while markers of the previous transaction are pending: in total Kafka's wait."""
_PRODUCER: Final = struct.Struct(">qhi")  # producer id, epoch, base sequence
_RETRIABLE: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # the coordinator does not know another partition of the request yet
}


class VerificationServices(NamedTuple):
    """The parts of the broker that are used here."""

    runtime: Runtime
    replicas: Replicas
    coordinators: Coordinators


class _FirstRecords(NamedTuple):
    """The producer fields of a transactional batch's header."""

    producer_id: int
    epoch: int
    sequence: int


def is_transactional(records: object) -> TypeGuard[memoryview]:
    """Return whether a set begins with a transactional batch."""
    if not isinstance(records, memoryview) or len(records) < RECORD_BATCH_OVERHEAD or records[MAGIC.start] != 2:
        return False
    return bool(records[ATTRIBUTES.start + 1] & TRANSACTIONAL_BIT)


def _first(records: memoryview) -> _FirstRecords:
    return _FirstRecords(*_PRODUCER.unpack_from(records, PRODUCER_ID.start))


def must_verify(runtime: Runtime, produce_version: int) -> bool:
    """Return whether a Produce request in this version is verified."""
    return _must_verify(runtime, joins=produce_version >= _PRODUCE_JOINS)


def _must_verify(runtime: Runtime, *, joins: bool) -> bool:
    return joins or (runtime.offer.verifies_partitions and runtime.config.transaction_partition_verification)


def names_several(records: Iterable[object]) -> bool:
    """Return whether the transactional sets of one request are of several producers."""
    named = (_first(each) for each in records if is_transactional(each))
    return len({each[:2] for each in named}) > 1


async def with_guards(
    services: VerificationServices, request: Request[ProduceRequest], sets: Mapping[int, NewSet]
) -> tuple[dict[int, NewSet], dict[int, AppendRefusedError]]:
    """Return sets with the guards of transactional ones, and the refusals of others."""
    allowed, refused = dict(sets), dict[int, AppendRefusedError]()
    joins, name = request.version >= _PRODUCE_JOINS, request.message.transactional_id
    if name is None or not _must_verify(services.runtime, joins=joins):
        return allowed, refused
    waiting, who = dict[int, TopicPartition](), _FirstRecords(-1, -1, -1)
    for at, new in sets.items():
        if new.rules is None or not is_transactional(new.records):
            continue
        who = _first(new.records)
        guard = new.partition.log.producers.guard(*who, joins=joins)
        allowed[at] = replace(new, guard=guard)
        if guard is not OPEN:
            waiting[at] = TopicPartition(new.partition.topic, new.partition.index)
    if not waiting:
        return allowed, refused
    started = now_ns()
    codes = await _ask(services, name, who, set(waiting.values()), joins=joins)
    request.connection.waited_ns += now_ns() - started
    for at, place in waiting.items():
        if code := _of_produce(codes[place], request.version):
            del allowed[at]
            refused[at] = AppendRefusedError(code, f"{place}: the coordinator says {codes[place].name}")
    return allowed, refused


def _of_produce(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code for a producer's request version."""
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _PRODUCE_JOINS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _known_to(ApiKey.PRODUCE, version, code)


def _known_to(key: int, version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_known = code is not ErrorCode.TRANSACTION_ABORTABLE or version >= _FIRST_WITH_ABORTABLE[key]
    return code if is_known else ErrorCode.INVALID_TXN_STATE


async def offsets_refusal(services: VerificationServices, request: Request[TxnOffsetCommitRequest]) -> ErrorCode:
    """Return why offsets are refused: their partition is not in the transaction and cannot join. NONE: it is."""
    message, joins = request.message, request.version >= _COMMIT_JOINS
    groups = services.coordinators.groups.coordinator
    if not _must_verify(services.runtime, joins=joins) or groups.status(message.group_id):
        return ErrorCode.NONE  # errors of the group are reported by the group coordinator
    offsets_partition = TopicPartition(OFFSETS_TOPIC, groups.partition_of(message.group_id))
    try:
        partition = await services.replicas.opened(*offsets_partition)
    except MagicbyteError:
        return ErrorCode.NONE  # as above
    who = _FirstRecords(message.producer_id, message.producer_epoch, 0)
    if partition.log.producers.is_open(who.producer_id, who.epoch):
        return ErrorCode.NONE
    started = now_ns()
    codes = await _ask(services, message.transactional_id, who, [offsets_partition], joins=joins)
    request.connection.waited_ns += now_ns() - started
    if codes[offsets_partition] is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _known_to(ApiKey.TXN_OFFSET_COMMIT, request.version, codes[offsets_partition])


async def _ask(
    services: VerificationServices,
    transactional_id: str,
    who: _FirstRecords,
    places: Collection[TopicPartition],
    *,
    joins: bool,
) -> dict[TopicPartition, ErrorCode]:
    """Return the coordinator's code for each partition."""
    checks = services.coordinators.partition_checks
    for pause_s in (*(_PAUSES_S if joins else ()), None):
        codes = await checks.ask(transactional_id, who[:2], places, joins=joins)
        if pause_s is None or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
            break
        await asyncio.sleep(pause_s)
    return codes
