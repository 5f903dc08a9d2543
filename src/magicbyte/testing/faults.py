"""Faults injected into a broker's responses: delays, errors, truncations, disconnects.

with broker.fault("Produce", error=ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault:
    producer.send("topic", b"value").get(timeout=10)  # the client tries again
assert fault.hits == 1
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec import Struct

from magicbyte.access.net.server import Answer, Handler, discard
from magicbyte.access.net.stream import Buffer, SendableFile, Stream
from magicbyte.engine.errors import ErrorCode, NetworkError
from magicbyte.engine.protocol import APIS, NULL_UUID, Api, Message, read_request, read_response, write_response
from magicbyte.engine.protocol.first_versions import FETCH_BY_ID
from magicbyte.engine.protocol.framing import SIZE_BYTES, api_key_of
from magicbyte.engine.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from magicbyte.engine.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from magicbyte.server.apis.sessions import AskedTopic
    from magicbyte.server.broker.broker import Broker

_BY_NAME: Final = {api.name.lower(): api for api in APIS.values()}
_READS: Final = ("Metadata", "ListOffsets", "OffsetFetch", "FindCoordinator")
_ASKED_FOR: Final = "a fault that was asked for"


@dataclass(slots=True, eq=False)
class Fault:
    """A fault for some requests of an API: from the `at`-th one after its activation, `times` requests (None: all).

    One or several effects: the request is handled `delay_ms` later; it is not handled, and answered with `error`; the
    connection ends "before" it is handled, or "after" that and before the response (`disconnect`); only the first
    `cut_bytes` of the response are sent, including the four of its size, and then the connection ends. A context
    manager, which deactivates the fault. `api` is Kafka's name of it.

    Raises ValueError for an impossible combination.
    """

    api: str
    at: int
    times: int | None
    delay_ms: int
    error: ErrorCode | int | None
    disconnect: str | None
    cut_bytes: int | None
    key: int = field(init=False)
    seen: int = field(default=0, init=False)
    end: Callable[[Fault], None] = field(default=lambda _: None, init=False, repr=False)

    def __post_init__(self) -> None:
        known = _BY_NAME.get(self.api.lower())
        if known is None:
            raise ValueError(f"api: expected the name of a request, such as Produce, found {self.api!r}")
        times = 1 if self.times is None else self.times
        if min(self.at, times) < 1 or min(self.delay_ms, self.cut_bytes or 0) < 0:
            raise ValueError("at and times: expected numbers from 1 on; delay_ms and cut_bytes: from 0 on")
        if self.disconnect not in (None, "before", "after"):
            raise ValueError(f'disconnect: expected "before" or "after", found {self.disconnect!r}')
        if self.error is not None and not (known.name in _READS or known.request in _REFUSED or _has_code(known)):
            raise ValueError(f"error: {known.name} has an error code for each partition, which a fault cannot set")
        if not self.delay_ms and self.error is None and self.disconnect is None and self.cut_bytes is None:
            raise ValueError("expected one of delay_ms, error, disconnect, cut_bytes")
        self.error = None if self.error is None else ErrorCode(self.error)
        self.key = known.key

    @property
    def hits(self) -> int:
        """How many requests it has happened to."""
        behind = max(0, self.seen - self.at + 1)
        return behind if self.times is None else min(behind, self.times)

    def is_next(self) -> bool:
        """Count a request of the API; say whether the fault happens to it."""
        before = self.hits
        self.seen += 1
        return self.hits > before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.end(self)


class Faults:
    """The faults of a broker, which any thread may add and remove."""

    def __init__(self) -> None:
        self._set: tuple[Fault, ...] = ()

    def add(self, fault: Fault) -> Fault:
        """Activate a fault until its block ends."""
        fault.end = self.remove
        self._set = (*self._set, fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Deactivate a fault."""
        self._set = tuple(each for each in self._set if each is not fault)

    async def handle(self, broker: Broker, handler: Handler, frame: memoryview) -> Answer | None:
        """Return the response to a frame by a connection's handler, with the active faults."""
        happens = self._happening(api_key_of(frame))
        if not happens:
            return await handler(frame)
        if delay_ms := sum(each.delay_ms for each in happens):
            await asyncio.sleep(delay_ms / 1000)
        if any(each.disconnect == "before" for each in happens):
            raise NetworkError(_ASKED_FOR)
        code = next((each.error for each in happens if each.error is not None), None)
        answer = await (handler(frame) if code is None else _refused(broker, handler, frame, ErrorCode(code)))
        if any(each.disconnect == "after" for each in happens):
            discard(answer or ())
            raise NetworkError(_ASKED_FOR)
        most = min((each.cut_bytes for each in happens if each.cut_bytes is not None), default=None)
        return answer if answer is None or most is None else [_Cut(answer, most)]

    def _happening(self, key: int) -> list[Fault]:
        return [each for each in self._set if each.key == key and each.is_next()]


class _Cut:
    """A truncated response, after which the connection ends."""

    def __init__(self, answer: Answer, most: int) -> None:
        self._answer, self._most = answer, most

    async def send(self, stream: Stream) -> None:
        first = cast("Stream", _First(stream, self._most))
        for part in self._answer:
            if isinstance(part, bytes | bytearray | memoryview):
                await first.write([part])
            else:
                await part.send(first)
        raise NetworkError(_ASKED_FOR)

    def close(self) -> None:
        discard(self._answer)


class _First:
    """The part of `Stream` used by response parts: sends the first bytes, then ends the connection."""

    def __init__(self, stream: Stream, left: int) -> None:
        self._stream, self._left = stream, left
        self.peer = stream.peer

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        for each in buffers:
            view = memoryview(each).cast("B")[: self._left]
            await self._stream.write([view], more=more)
            self._count(view.nbytes)

    async def send_file(self, file: SendableFile, position: int, count: int, executor: Executor | None = None) -> None:
        count = min(count, self._left)
        await self._stream.send_file(file, position, count, executor)
        self._count(count)

    def _count(self, sent: int) -> None:
        self._left -= sent
        if not self._left:
            raise NetworkError(_ASKED_FOR)


async def _refused(broker: Broker, handler: Handler, frame: memoryview, code: ErrorCode) -> Answer | None:
    """Return a response with this error in every error field. Only requests without side effects are handled for it."""
    request = read_request(frame)
    version, number = request.header.request_api_version, request.header.correlation_id
    if request.api.name in _READS:
        found = await handler(frame)
        assert found is not None
        whole = b"".join(cast("Sequence[Buffer]", found))
        _, response = read_response(whole[SIZE_BYTES:], request.api, version)
        _set_codes(response, code)
    elif isinstance(request.message, ProduceRequest) and not request.message.acks:
        return None
    elif type(request.message) in _REFUSED:
        response = _REFUSED[type(request.message)](broker, request.message, version, code)
    else:
        response = request.api.response()
        _set_codes(response, code)
    return write_response(response, version, correlation_id=number).buffers()


def _has_code(api: Api) -> bool:
    return "error_code" in api.response.__annotations__


def _set_codes(found: Struct, code: ErrorCode) -> None:
    """Set all error codes of a response."""
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if name == "error_code":
            setattr(found, name, int(code))
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, Struct):
                _set_codes(part, code)


def _fetch(broker: Broker, message: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    name_of = broker.topics.name_of if version >= FETCH_BY_ID else None
    begun = broker.fetch_sessions.begin(message, broker.clock.monotonic_ms(), name_of)
    topics: dict[AskedTopic, FetchableTopicResponse] = {}
    for topic, asked in begun.partitions:
        refused = PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
        told = FetchableTopicResponse(topic=topic.name, topic_id=topic.id or NULL_UUID)
        topics.setdefault(topic, told).partitions.append(refused)
    session_id = 0 if begun.session is None else begun.session.id
    return FetchResponse(error_code=begun.error, session_id=session_id, responses=list(topics.values()))


def _produce(_: Broker, message: ProduceRequest, _version: int, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def _offset_commit(_: Broker, message: OffsetCommitRequest, _version: int, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _create_topics(_: Broker, message: CreateTopicsRequest, _version: int, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name, error_code=code, error_message=None)
                                        for each in message.topics])  # fmt: skip


def _delete_topics(_: Broker, message: DeleteTopicsRequest, _version: int, code: ErrorCode) -> DeleteTopicsResponse:
    asked = [(each.name, each.topic_id) for each in message.topics]
    named = [(name, NULL_UUID) for name in message.topic_names]
    return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, topic_id=number, error_code=code)
                                           for name, number in asked + named])  # fmt: skip


_REFUSED: Final[Mapping[type[Message], Callable[[Broker, Any, int, ErrorCode], Message]]] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    OffsetCommitRequest: _offset_commit,
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
}
