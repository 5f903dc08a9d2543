"""A log directory as the source of a mirror: answers a mirror's requests from files.

It uses no socket, writes nothing, and needs no broker. A partition has the content of its files when it is first used,
up to the last whole entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from magicbyte.access.client.client import BrokerNode, ClusterMetadata, Partition, Topic
from magicbyte.access.client.fetch import offset_behind
from magicbyte.access.client.offsets import EARLIEST, LATEST
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.engine.errors import CorruptRecordError, ErrorCode, MirrorError, TruncatedLogError
from magicbyte.engine.log.files.checkpoints import parse_meta_properties
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import PartitionDirectory
from magicbyte.engine.log.files.partitions import log_start_offset, meta_properties
from magicbyte.engine.log.files.reader import MAX_OFFSET, SegmentReader
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.records.transactions import TransactionScan

T = TypeVar("T")
M = TypeVar("M", bound=Message)

HERE: Final = BrokerNode(0, "localhost", 0)


_VERSIONS: Final = BrokerVersions({1: range(13), 2: range(10)})  # Fetch and ListOffsets
_NO_TRANSACTIONS: Final = TransactionScan([], 0, {})


@dataclass(slots=True)
class _Served:
    """One partition. `at`: the next offset of `walk`, for sequential readers."""

    reader: SegmentReader | None = None
    first: int = 0
    end: int = 0
    found: TransactionScan = _NO_TRANSACTIONS
    at: int = -1
    walk: Iterator[Chunk] | None = None

    @classmethod
    def of(cls, partition: PartitionDirectory) -> _Served:
        reader = SegmentReader(partition)
        base = partition.segments[0].base_offset if partition.segments else 0
        first, end = max(log_start_offset(partition), base), base
        for chunk in reader.chunks(first=MAX_OFFSET, on_damage=_whole):
            end = offset_behind(chunk.table, len(chunk.table) - 1, MAX_OFFSET)
        if partition.segments:
            end = max(end, partition.segments[-1].base_offset)
        return cls(reader, first, max(first, end), reader.transactions())

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.found.last_stable_offset, self.end) if self.found.open else self.end

    def read(self, offset: int) -> memoryview:
        """Return some whole entries, including the first one that reaches `offset`."""
        assert self.reader is not None, "one without a folder has nothing"
        if self.walk is None or self.at != offset:
            self.walk = self.reader.chunks(first=offset, on_damage=_whole)
        for chunk in self.walk:
            self.at = offset_behind(chunk.table, len(chunk.table) - 1, MAX_OFFSET)
            if self.at > offset:
                return chunk.table.buffer[: chunk.table.end]
        self.at = -1
        return memoryview(b"")


_NOTHING: Final = _Served()


def _whole(error: CorruptRecordError) -> None:
    """Ignore an incomplete last entry; raise other damage."""
    if not isinstance(error, TruncatedLogError):
        raise error


class LogSource:
    """The cluster of some partition folders, a `Source`. Raises damage in them as CorruptRecordError."""

    def __init__(self, partitions: Iterable[PartitionDirectory], cluster_id: str | None = None) -> None:
        """Register the partitions; each is opened at its first use. Raises MirrorError for one without a name.

        `cluster_id` overrides that in the `meta.properties` of the partitions.
        """
        folders = list(partitions)
        self._folders: dict[TopicPartition, PartitionDirectory] = {}
        self._served: dict[TopicPartition, _Served] = {}
        for each in folders:
            if each.topic is None or each.partition is None:
                raise MirrorError(f"{each.path}: expected a folder named TOPIC-N")
            self._folders[TopicPartition(each.topic, each.partition)] = each
        if cluster_id is None and (told := meta_properties(folders)) is not None:
            cluster_id = parse_meta_properties(told).cluster_id
        self.cluster = ClusterMetadata({HERE.id: HERE}, cluster_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: no file stays open between requests."""

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Return the topics, with partitions up to the highest number: those without a folder are empty."""
        topics: dict[str, Topic] = {}
        for key, folder in sorted(self._folders.items()):
            if names is None or key.topic in names:
                metadata = folder.metadata()
                known = None if metadata is None else metadata.topic_id
                topic = topics.setdefault(key.topic, Topic(key.topic, False, {}, 0, known))
                for number in range(len(topic.partitions), key.partition + 1):
                    topic.partitions[number] = Partition(number, HERE.id, 0, (HERE.id,), (HERE.id,), 0)
        return topics

    async def versions(self) -> BrokerVersions:
        """Return the supported request versions."""
        return _VERSIONS

    async def leader(self, topic: str, partition: int) -> BrokerNode:  # noqa: ARG002 (it leads all of them)
        """Return the only node."""
        return HERE

    def forget(self, topic: str) -> None:
        """Do nothing: no leader is cached."""

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`: failures of files are not transient."""
        return await attempt()

    async def at_leader(self, topic: str, partition: int, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:  # noqa: ARG002
        """Return the result of `attempt` for the only node."""
        return await attempt(HERE)

    async def ask(
        self,
        node: BrokerNode,  # noqa: ARG002 (it is this one)
        request: Message,
        response: type[M],
        *,
        versions: range | None = None,  # noqa: ARG002 (nothing is encoded)
        wait_ms: int = 0,  # noqa: ARG002 (there is no waiting)
    ) -> M:
        """Answer a Fetch or ListOffsets request."""
        if isinstance(request, ListOffsetsRequest):
            found: Message = self._offsets(request)
        else:
            assert isinstance(request, FetchRequest), "mirrors ask for no more"
            found = self._fetched(request)
        assert isinstance(found, response)
        return found

    def _partition(self, topic: str, number: int) -> _Served:
        key = TopicPartition(topic, number)
        if key not in self._served:
            folder = self._folders.get(key)
            self._served[key] = _NOTHING if folder is None else _Served.of(folder)
        return self._served[key]

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answers = []
        for topic in request.topics:
            answer = ListOffsetsTopicResponse(name=topic.name, partitions=[])
            for asked in topic.partitions:
                assert asked.timestamp in (EARLIEST, LATEST), "mirrors ask for no times"
                served, number = self._partition(topic.name, asked.partition_index), asked.partition_index
                end = served.stable if request.isolation_level else served.end
                offset = served.first if asked.timestamp == EARLIEST else end
                answer.partitions.append(
                    ListOffsetsPartitionResponse(partition_index=number, offset=offset, timestamp=-1)
                )
            answers.append(answer)
        return ListOffsetsResponse(topics=answers)

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        served, offset = self._partition(topic.topic, asked.partition), asked.fetch_offset
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=served.end,
            last_stable_offset=served.stable,
            log_start_offset=served.first,
        )
        if not served.first <= offset <= served.end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset < (served.stable if request.isolation_level else served.end):
            answer.records = served.read(offset)
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in served.found.aborted
                if each.last_offset >= offset
            ]
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[answer])])
