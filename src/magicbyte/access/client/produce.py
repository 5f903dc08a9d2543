"""Produce: records in a format that the broker accepts, and compressed sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.access.client.compressed import as_produced
from magicbyte.access.client.produce_frames import IsAddressed, Produced, SetsRequest, SetsResponse
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, ProtocolError, UnsupportedForMessageFormatError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.message import Records
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.protocol.messages.produce import PartitionProduceResponse
from magicbyte.engine.records.columns import Record, RecordColumns
from magicbyte.engine.records.encode import DEFAULT_HEADER, BatchHeader, Format, columns_of, encode
from magicbyte.engine.records.layout import OFFSET, Dialect, TimestampType
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock

BATCH_BYTES: Final = 512 << 10  # of uncompressed records per set; brokers accept sets of about 1 MB
ACKS_ALL: Final = -1
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Permanent refusals of a set, which the target has not stored."""

_MAGIC_2, _MAGIC_1, _MAGIC_0 = range(3, 13), range(2, 3), range(2)  # by version of the request; 13 requires topic ids
_ZSTD = range(7, 13)
# versions before this one: from it on, producing adds the partition to the transaction (KIP-890)
_TRANSACTIONAL: Final = 12
_OLD = range(3)
_PRODUCER_ID = range(6)


class ProduceOptions(Struct, frozen=True):
    """How to produce. `acks`: ACKS_ALL, 1 or 0 (no answer). `timeout_ms`: for the replicas.

    `format` None: the latest that the broker takes. `batch_bytes`: of the records of one set, before compression.
    """

    codec: Codec = Codec.NONE
    level: int | None = None
    format: Format | None = None
    acks: int = ACKS_ALL
    timeout_ms: int = 10_000
    batch_bytes: int = BATCH_BYTES


DEFAULT_PRODUCE: Final = ProduceOptions()


class Addressed(NamedTuple):
    """A set with a producer's fields in place, and its partition."""

    topic: str
    partition: int
    data: Records


async def send(
    client: Client,
    topic: str,
    partition: int,
    records: RecordColumns | Iterable[Record],
    options: ProduceOptions = DEFAULT_PRODUCE,
) -> list[Produced]:
    """Produce records to a partition, in order, and return the broker's response to each request.

    Offsets and timestamp types of the records are ignored. Records without a timestamp get the present time. At least
    once: a request is sent again after a transient failure. Raises BrokerError, NetworkError, and what `encode` raises;
    the requests before the failed one are then in the log. Raises UnsupportedForMessageFormatError for headers that the
    format cannot hold, before anything is sent.
    """
    columns = numbered(records, client.clock)
    if not len(columns):
        return []
    versions = await _broker_versions(client, topic, partition)
    target = options.format or newest_format(versions)
    if target is not Format.V2 and columns.headers is not None and len(columns.headers.key):
        raise UnsupportedForMessageFormatError(f"{topic}-{partition}: format {target.value} has no headers")
    wanted = _versions_for(target.magic, options.codec)
    return [
        await _produce(client, topic, partition, part, wanted, options) for part in sets_of(columns, target, options)
    ]


async def send_compressed(
    client: Client,
    topic: str,
    partition: int,
    data: bytes | bytearray | memoryview,
    options: ProduceOptions = DEFAULT_PRODUCE,
    *,
    dialect: Dialect = Dialect.KAFKA,
) -> Produced:
    """Produce one compressed wrapper or batch unchanged, in its own format. Codec and format of `options` are ignored.

    Raises what `send` and `as_produced` do; UnsupportedVersionError of a broker that does not take the format.
    """
    magic, made = as_produced(data, dialect)
    codec = Codec(scan(memoryview(made), dialect=dialect).codec[0])
    return await _produce(client, topic, partition, memoryview(made), _versions_for(magic, codec), options)


async def send_made(
    client: Client,
    topic: str,
    partition: int,
    data: Records,
    magic: int,
    codec: Codec,
    options: ProduceOptions = DEFAULT_PRODUCE,
) -> Produced:
    """Produce one set with a producer's fields in place, in one request, without checks or copies.

    With a producer id the target stores it once, however often it is sent. Raises what `send` does for a request.
    """
    return await _produce(client, topic, partition, data, _versions_for(magic, codec), options)


async def send_in_transaction(
    client: Client,
    transactional_id: str,
    topic: str,
    partition: int,
    data: Records,
    options: ProduceOptions = DEFAULT_PRODUCE,
) -> Produced:
    """Produce one transactional batch to a partition of its transaction. Raises what `send` does for a request.

    `options`: with the codec of the batch.
    """
    versions = range(_versions_for(2, options.codec)[0], _TRANSACTIONAL)
    return await _produce(client, topic, partition, data, versions, options, transactional_id)


async def send_together(
    client: Client,
    node: BrokerNode,
    sets: Sequence[IsAddressed],
    kind: range,
    options: ProduceOptions = DEFAULT_PRODUCE,
) -> list[Produced | BrokerError]:
    """Produce one set, with a producer's fields in place, to each of some partitions that `node` leads, in one request.

    All are of one `kind`: see `goes_with`. Returns the result of each, in order. The request is not repeated. Raises
    NetworkError and ProtocolError: the results are then unknown.
    """
    return await _ask(client, node, sets, kind, options)


def sets_of(
    columns: RecordColumns, target: Format, options: ProduceOptions, header: BatchHeader = DEFAULT_HEADER
) -> Iterator[Records]:
    """Yield `numbered` records as sets in a format, each for a request of its own. Raises what `encode` does."""
    size = options.batch_bytes
    made = encode(columns, target, options.codec, level=options.level, batch_bytes=size, header=header)
    yield from _requests(made, target, size)


def goes_with(magic: int, codec: Codec) -> range:
    """Return a key that is equal for sets that can share a request: the request versions that take them."""
    return _versions_for(magic, codec)


async def new_producer_id(client: Client) -> tuple[int, int]:
    """Return a new producer id and its epoch, from brokers from 0.11 on. Raises BrokerError."""
    request = InitProducerIdRequest(transactional_id=None)

    async def ask() -> tuple[int, int]:
        found = await client.ask_any(request, InitProducerIdResponse, versions=_PRODUCER_ID)
        if found.error_code:
            raise BrokerError("a producer id", found.error_code, broker="the cluster")
        return found.producer_id, found.producer_epoch

    return await client.retried(ask)


def newest_format(versions: BrokerVersions) -> Format:
    """Return the newest format that a broker accepts."""
    produce = APIS[ApiKey.PRODUCE]
    for target, wanted in ((Format.V2, _MAGIC_2), (Format.V1, _MAGIC_1)):
        if versions.latest(produce, wanted) is not None:
            return target
    return Format.V0


def _versions_for(magic: int, codec: Codec) -> range:
    if magic == 2:
        return _ZSTD if codec is Codec.ZSTD else _MAGIC_2
    return _MAGIC_1 if magic else _OLD


async def _broker_versions(client: Client, topic: str, partition: int) -> BrokerVersions:
    async def look(node: BrokerNode) -> BrokerVersions:
        return (await client.connection(node)).versions

    return await client.at_leader(topic, partition, look)


def numbered(records: RecordColumns | Iterable[Record], clock: Clock) -> RecordColumns:
    """Return the records with a producer's offsets and a timestamp each."""
    columns = records if isinstance(records, RecordColumns) else columns_of(records)
    now, count = clock.now_ms(), len(columns)
    if isinstance(columns.timestamp, list):
        times = [now if each == NO_TIMESTAMP else each for each in columns.timestamp]
        kinds = [int(TimestampType.CREATE_TIME)] * count
        return replace(columns, offset=list(range(count)), timestamp=times, timestamp_type=kinds)
    import numpy as np

    stamps = np.asarray(columns.timestamp, np.int64)
    return replace(
        columns,
        offset=np.arange(count, dtype=np.int64),
        timestamp=np.where(stamps == NO_TIMESTAMP, now, stamps),
        timestamp_type=np.full(count, TimestampType.CREATE_TIME, np.int8),
    )


def _requests(made: memoryview, target: Format, most: int) -> Iterator[Records]:
    """Cut a set for requests: one batch or wrapper each, plain messages up to about `most` bytes.

    Each batch and each enriched wrapper counts from 0, which no checksum covers.
    """
    table = scan(made, dialect=target.dialect)
    start = end = 0
    for row in range(len(table)):
        begins = int(table.position[row])
        closed = target is Format.V2 or int(table.codec[row])
        if begins > start and (closed or begins - start >= most):
            yield _from_zero(made[start:begins], target)
            start = begins
        end = begins + int(table.size[row])
    yield _from_zero(made[start:end], target)


def _from_zero(part: memoryview, target: Format) -> Records:
    if target in (Format.V2, Format.ENRICHED):
        return [bytes(OFFSET.type.size), part[OFFSET.type.size :]]
    return part


async def _produce(
    client: Client,
    topic: str,
    partition: int,
    data: Records,
    versions: range,
    options: ProduceOptions,
    transactional_id: str | None = None,
) -> Produced:
    async def ask(node: BrokerNode) -> Produced:
        (answer,) = await _ask(client, node, [Addressed(topic, partition, data)], versions, options, transactional_id)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    return await client.at_leader(topic, partition, ask)


async def _ask(
    client: Client,
    node: BrokerNode,
    sets: Sequence[IsAddressed],
    versions: range,
    options: ProduceOptions,
    transactional_id: str | None = None,
) -> list[Produced | BrokerError]:
    """Produce one set to each of some partitions, in one request; return the result of each."""
    request = SetsRequest(options.acks, options.timeout_ms, sets, transactional_id)
    if not options.acks:
        await (await client.connection(node)).send_unanswered(request, versions=versions)
        return [Produced(-1, -1, -1)] * len(sets)
    found = (await client.ask(node, request, SetsResponse, versions=versions, wait_ms=options.timeout_ms)).answers
    if len(found) != len(sets) or not all((each.topic, each.partition) in found for each in sets):
        raise ProtocolError("partitions", expected=f"the {len(sets)} of the request", found=len(found), position=None)
    return [_answer(found[each.topic, each.partition], each.topic, node) for each in sets]


def _answer(answer: Produced | PartitionProduceResponse, topic: str, node: BrokerNode) -> Produced | BrokerError:
    if isinstance(answer, Produced):
        return answer
    if not answer.error_code:
        return Produced(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
    why = [] if answer.error_message is None else [answer.error_message]
    why += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in answer.record_errors]
    what = f"produce to {topic}-{answer.index}"
    return BrokerError(what, answer.error_code, broker=str(node), detail="; ".join(why) or None)
