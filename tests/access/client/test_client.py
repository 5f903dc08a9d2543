"""The client against a scripted broker: what is asked, what is tried again, what is an error."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from access.client.broker import METADATA, ScriptedBroker, cluster
from magicbyte.access.client import Client, admin, groups
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, fetch_sets, read_records, read_sets
from magicbyte.access.client.groups import Committed
from magicbyte.access.client.offsets import EARLIEST, LATEST, ListedOffset, bounds, list_offset
from magicbyte.access.client.produce import ProduceOptions, send, send_compressed
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    BatchTooLargeError,
    BrokerError,
    CorruptRecordError,
    ErrorCode,
    NetworkError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from magicbyte.engine.protocol.messages import alter_configs, incremental_alter_configs
from magicbyte.engine.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from magicbyte.engine.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.scan import scan

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 8, 9, 10
NOW = 1_600_000_000_000
ANY_FORMAT = {PRODUCE: range(10), FETCH: range(13)}


def run(broker: ScriptedBroker, work: Callable[[Client], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """Return what `work` does with a client of the broker."""

    async def inside() -> Any:
        async with cluster(broker, **options) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(inside(), 120))


def records(start: int, end: int) -> list[Record]:
    return [Record(at, NOW + at, 0, b"k%d" % at, bytes(at % 7)) for at in range(start, end)]


class Log:
    """A partition whose entries are served by Fetch as brokers do, in the order they are given."""

    def __init__(self, *entries: tuple[int, int, bytes]) -> None:
        self.entries = entries  # first offset, last offset, bytes
        self.aborted: list[AbortedTransaction] = []
        self.cuts = True  # as brokers before 0.10.1 do

    @property
    def end(self) -> int:
        return self.entries[-1][1] + 1

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        if asked.fetch_offset > self.end:
            return self.answer(PartitionData(error_code=1))
        data = b"".join(entry for _, last, entry in self.entries if last >= asked.fetch_offset)
        most = asked.partition_max_bytes
        if version >= 3 and data:
            most = max(most, scan(memoryview(data)).size[0])
        found = PartitionData(
            high_watermark=self.end, last_stable_offset=self.end, records=data[:most], aborted_transactions=self.aborted
        )
        return self.answer(found)

    def answer(self, found: PartitionData) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=[found])])


def batches(codec: Codec, target: Format, *edges: int) -> Log:
    return Log(
        *(
            (start, end - 1, encode_records(records(start, end), target, codec))
            for start, end in itertools.pairwise(edges)
        )
    )


async def all_sets(client: Client, start: int, end: int, options: FetchOptions) -> list[ClosedSets]:
    return [found async for found in read_sets(client, "topic", 0, start, end, options)]


async def offsets_of(client: Client, start: int, end: int, options: FetchOptions) -> list[int]:
    found = read_records(client, "topic", 0, start, end, options)
    return [record.offset async for columns in found for record in columns]


@pytest.mark.parametrize("version", [0, 2, 4, 12])
@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.V2])
@pytest.mark.parametrize("max_bytes", [20, 400, 1 << 20])
def test_records_from_an_offset_to_an_offset_are_those_and_no_others(
    version: int, target: Format, max_bytes: int
) -> None:
    log = batches(Codec.GZIP, target, 0, 10, 11, 25, 40)
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = log.fetch
    options = FetchOptions(max_bytes=max_bytes, versions=range(version, version + 1), max_wait_ms=1)
    for start, end in ((0, 40), (10, 11), (3, 26), (39, 40), (5, 5), (0, 60)):
        found = run(broker, lambda client, a=start, b=end: offsets_of(client, a, b, options))
        assert found == list(range(start, min(end, 40))), (start, end)


def test_closed_sets_are_the_bytes_of_the_log_without_those_beyond_the_end() -> None:
    log = batches(Codec.LZ4, Format.V2, 0, 10, 20, 30)
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = log.fetch
    found = run(broker, lambda client: all_sets(client, 4, 20, FetchOptions()))
    assert b"".join(bytes(each.data) for each in found) == log.entries[0][2] + log.entries[1][2]
    assert found[-1].next_offset >= 20
    assert found[0].high_watermark == 30


def test_reading_ahead_gives_the_same_sets_and_asks_for_the_next_while_the_caller_is_busy() -> None:
    log = batches(Codec.NONE, Format.V2, 0, 5, 9, 20, 33)
    broker = ScriptedBroker(versions={FETCH: range(13)})
    broker.answers[FETCH] = log.fetch
    one_by_one = FetchOptions(max_bytes=10)

    async def work(client: Client) -> tuple[list[bytes], list[bytes], int]:
        plain = [bytes(each.data) for each in await all_sets(client, 6, 30, one_by_one)]
        ahead = replace(one_by_one, ahead=True)
        found = [bytes(each.data) for each in await all_sets(client, 6, 30, ahead)]
        asked, tasks = len(broker.asked(FetchRequest)), asyncio.all_tasks()
        sets = read_sets(client, "topic", 0, 0, 33, ahead)
        await anext(sets)
        while len(broker.asked(FetchRequest)) < asked + 2:  # of which only one was taken
            await asyncio.sleep(0)
        await sets.aclose()
        return plain, found, len(asyncio.all_tasks() - tasks)

    before, found, left = run(broker, work)
    assert found == before
    assert len(before) == 3
    assert left == 0


def test_an_error_of_a_read_ahead_is_raised_after_the_records_before_it() -> None:
    log = batches(Codec.NONE, Format.V2, 0, 5, 9)
    broker = ScriptedBroker(versions={FETCH: range(13)})

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset:
            return log.answer(PartitionData(error_code=1))
        return log.fetch(request, version)

    broker.answers[FETCH] = fetch
    seen: list[int] = []

    async def work(client: Client) -> None:
        async for found in read_sets(client, "topic", 0, 0, 9, FetchOptions(max_bytes=10, ahead=True)):
            seen.append(found.next_offset)
            await asyncio.sleep(0.01)

    with pytest.raises(OffsetOutOfRangeError):
        run(broker, work)
    assert seen == [5]


def test_a_hole_at_the_end_of_a_range_ends_the_reading() -> None:
    log = batches(Codec.NONE, Format.V2, 0, 3)
    log.entries = (*log.entries, (50, 51, encode_records(records(50, 52), Format.V2)))
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = log.fetch
    assert run(broker, lambda client: offsets_of(client, 0, 20, FetchOptions())) == [0, 1, 2]


def test_enriched_sets_have_the_offsets_of_their_own_formula() -> None:
    log = Log((30, 34, encode_records(records(30, 35), Format.ENRICHED, Codec.GZIP)))
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = lambda request, _: log.fetch(request, 0)
    options = FetchOptions(dialect=Format.ENRICHED.dialect, versions=range(3))
    assert run(broker, lambda client: offsets_of(client, 31, 34, options)) == [31, 32, 33]


def test_records_of_aborted_transactions_are_left_out_for_readers_of_committed_ones() -> None:
    def part(start: int, end: int, producer: int) -> tuple[int, int, bytes]:
        header = BatchHeader(producer_id=producer, producer_epoch=0, base_sequence=start, is_transactional=True)
        return start, end - 1, encode_records(records(start, end), Format.V2, header=header)

    log = Log(part(0, 3, 8), part(3, 5, 9), part(5, 9, 8))
    log.aborted = [AbortedTransaction(producer_id=9, first_offset=3)]
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = log.fetch
    committed = FetchOptions(committed=True)
    assert run(broker, lambda client: offsets_of(client, 0, 9, committed)) == [0, 1, 2, 5, 6, 7, 8]
    assert broker.asked(FetchRequest)[0].isolation_level == 1


def test_a_set_that_is_too_large_an_offset_that_is_not_there_and_damage_are_errors() -> None:
    log = batches(Codec.NONE, Format.V2, 0, 100)
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[FETCH] = log.fetch
    small = FetchOptions(max_bytes=100, largest_set=1000, versions=range(3))
    with pytest.raises(BatchTooLargeError, match="<= 1000"):
        run(broker, lambda client: fetch_sets(client, "topic", 0, 0, small))
    with pytest.raises(OffsetOutOfRangeError, match="fetch of topic-0 at 101"):
        run(broker, lambda client: fetch_sets(client, "topic", 0, 101))
    broker.answers[FETCH] = lambda *_: log.answer(PartitionData(high_watermark=1, records=bytes(16) + b"\x09" * 40))
    with pytest.raises(CorruptRecordError):
        run(broker, lambda client: fetch_sets(client, "topic", 0, 0))


class Appended:
    """What was produced: the sets by their order, and how many records are in them."""

    def __init__(self, *errors: int) -> None:
        self.sets: list[bytes] = []
        self.errors = list(errors)
        self.end = 0

    def answer(self, request: ProduceRequest, _: int) -> ProduceResponse | bytes:
        data = bytes(request.topic_data[0].partition_data[0].records or b"")  # type: ignore[arg-type]
        error = self.errors.pop(0) if self.errors else 0
        base = self.end
        if not error:
            self.sets.append(data)
            self.end += len(self.records(data))
        if not request.acks:
            return b""
        index = request.topic_data[0].partition_data[0].index
        found = PartitionProduceResponse(index=index, error_code=error, base_offset=base)
        return ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=[found])])

    @staticmethod
    def records(data: bytes) -> list[Record]:
        return [record for columns in decode(memoryview(data)) for record in columns]


@pytest.mark.parametrize(("versions", "magic"), [(range(1), 0), (range(2), 0), (range(3), 1), (range(8), 2)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_are_produced_in_the_newest_format_that_the_broker_takes(
    versions: range, magic: int, codec: Codec
) -> None:
    log = Appended()
    broker = ScriptedBroker(versions={PRODUCE: versions, FETCH: range(11)})
    broker.answers[PRODUCE] = log.answer
    sent = [record._replace(offset=0) for record in records(0, 60)]
    options = ProduceOptions(codec=codec, batch_bytes=700)
    found = run(broker, lambda client: send(client, "topic", 0, sent, options))
    stored = [record for data in log.sets for record in log.records(data)]
    assert [(each.key, each.value) for each in stored] == [(each.key, each.value) for each in sent]
    assert {data[16] for data in log.sets} == {magic}
    assert [each.timestamp for each in stored] == [each.timestamp if magic else -1 for each in sent]
    assert len(found) == len(log.sets) > 1
    if magic == 2:
        assert {data[:8] for data in log.sets} == {bytes(8)}  # Kafka refuses others
    assert found[1] == Produced(len(log.records(log.sets[0])), -1, -1)
    if magic == 2 or codec:
        assert {len(scan(memoryview(data))) for data in log.sets} == {1}


def test_a_format_and_a_codec_that_the_broker_does_not_take_are_errors_that_name_it() -> None:
    broker = ScriptedBroker(versions={PRODUCE: range(13), FETCH: range(4, 17)})
    with pytest.raises(
        UnsupportedVersionError, match=r"Produce at broker 7 \(127.* has no version 2: known are 3 to 12"
    ):
        run(broker, lambda client: send(client, "topic", 0, records(0, 1), ProduceOptions(format=Format.V1)))
    broker = ScriptedBroker(versions={PRODUCE: range(7), FETCH: range(11)})
    with pytest.raises(UnsupportedVersionError, match=r"Produce at broker 7 .* has no version 12: known are 0 to 6"):
        run(broker, lambda client: send(client, "topic", 0, records(0, 1), ProduceOptions(codec=Codec.ZSTD)))


def test_headers_that_the_format_cannot_hold_are_an_error_before_anything_is_sent() -> None:
    log = Appended()
    broker = ScriptedBroker(versions={PRODUCE: range(3), FETCH: range(3)})
    broker.answers[PRODUCE] = log.answer
    record = Record(0, NOW, 0, None, b"v", (("name", b"value"),))
    with pytest.raises(UnsupportedForMessageFormatError, match="topic-0: format 1 has no headers"):
        run(broker, lambda client: send(client, "topic", 0, [record]))
    assert log.sets == []


def test_a_record_without_a_time_gets_the_present_one() -> None:
    log = Appended()
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[PRODUCE] = log.answer
    run(broker, lambda client: send(client, "topic", 0, [Record(0, -1, 0, None, b"v")]))
    assert log.records(log.sets[0])[0].timestamp > NOW


def test_a_request_that_wants_no_answer_waits_for_none() -> None:
    log = Appended()
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[PRODUCE] = log.answer

    async def work(client: Client) -> list[Produced]:
        found = await send(client, "topic", 0, records(0, 3), ProduceOptions(acks=0))
        await client.topics(["topic"])  # answered after it on the same connection
        return found

    assert run(broker, work) == [Produced(-1, -1, -1)]
    assert len(log.records(log.sets[0])) == 3


@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.V2])
def test_a_compressed_set_is_produced_as_it_is_in_a_version_for_its_format(target: Format) -> None:
    log = Appended()
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[PRODUCE] = log.answer
    data = encode_records(records(0, 9), target, Codec.SNAPPY)
    assert run(broker, lambda client: send_compressed(client, "topic", 0, data)) == Produced(0, -1, -1)
    assert log.sets == [data]
    assert [version for request, version in broker.requests if isinstance(request, ProduceRequest)] == [
        9 if target is Format.V2 else 2
    ]


def test_a_leader_that_moved_is_looked_for_again_and_the_set_sent_once_more() -> None:
    log = Appended(6, 5)
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[PRODUCE] = log.answer
    assert run(broker, lambda client: send(client, "topic", 0, records(0, 2))) == [Produced(0, -1, -1)]
    assert len(broker.asked(MetadataRequest)) == 3
    assert len(broker.asked(ProduceRequest)) == 3


def test_a_connection_that_breaks_is_opened_again() -> None:
    log = Appended()
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broken = [None]
    broker.answers[PRODUCE] = lambda request, version: broken.pop() if broken else log.answer(request, version)
    assert run(broker, lambda client: send(client, "topic", 0, records(0, 2))) == [Produced(0, -1, -1)]


def test_a_fault_that_stays_is_an_error_at_once_that_names_the_broker_and_the_partition() -> None:
    log = Appended(*[10] * 50)
    broker = ScriptedBroker(versions=ANY_FORMAT)
    broker.answers[PRODUCE] = log.answer
    with pytest.raises(BrokerError, match=r"broker 7 \(127.*\): produce to topic-1: MESSAGE_TOO_LARGE \(10\)"):
        run(broker, lambda client: send(client, "topic", 1, records(0, 2)))
    assert len(broker.asked(ProduceRequest)) == 1


def test_topics_are_asked_for_as_the_broker_that_is_asked_understands_it() -> None:
    """In a cluster that is being upgraded brokers take different versions."""
    new, old = ScriptedBroker(), ScriptedBroker(versions={METADATA: range(3)})
    new.answers[METADATA] = old.metadata  # it tells of the old one alone

    async def ask() -> None:
        async with cluster(old), cluster(new) as client:
            await client.topics()
            await client.connection(client.cluster.brokers[7])
            assert "topic" in await client.topics()

    asyncio.run(asyncio.wait_for(ask(), 120))
    assert len(old.asked(MetadataRequest)) == 1


@pytest.mark.parametrize("latest", [4, 13])
def test_an_unknown_topic_is_tried_for_a_while_and_asked_for_without_making_it(latest: int) -> None:
    """Brokers from 0.11 on, whose latest version is 4, can be asked not to create it."""
    broker = ScriptedBroker(versions={METADATA: range(latest + 1)})
    with pytest.raises(BrokerError, match=r"topic other: UNKNOWN_TOPIC_OR_PARTITION \(3\)"):
        run(broker, lambda client: client.at_leader("other", 0, lambda _: asyncio.sleep(0)), retry_ms=500)
    asked = broker.asked(MetadataRequest)
    assert len(asked) > 1
    assert not any(each.allow_auto_topic_creation for each in asked)


@pytest.mark.parametrize("manner", ["new", "0.8.2"])
def test_an_existing_topic_is_found_without_naming_it_and_another_is_an_error_with_those_near(manner: str) -> None:
    async def work(client: Client) -> str:
        assert (await client.existing_topic("topic")).name == "topic"
        with pytest.raises(UnknownTopicError) as caught:
            await client.existing_topic("topics")
        return str(caught.value)

    broker = ScriptedBroker(manner)
    assert run(broker, work).endswith("found none of that name: is it 'topic'?")
    assert not any(request.topics for request in broker.asked(MetadataRequest))


def test_when_no_broker_answers_the_error_names_all() -> None:
    async def work() -> None:
        async with Client("127.0.0.1:1, [::1]:1", retry_ms=0) as client:
            await client.topics()

    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:1: .*\[::1\]:1: "):
        asyncio.run(work())
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client("localhost")


def listed(**fields: Any) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(**fields)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=[found])])


def test_offsets_of_times_and_ends_of_old_and_new_brokers() -> None:
    broker = ScriptedBroker(versions={LIST_OFFSETS: range(8)})

    def answer(request: Any, version: int) -> ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        offset = {EARLIEST: 5, LATEST: 90, NOW: 40}.get(timestamp, -1)
        if version == 0:
            return listed(old_style_offsets=(offset,) if offset >= 0 else ())
        return listed(offset=offset, timestamp=NOW + 1 if timestamp == NOW else -1)

    broker.answers[LIST_OFFSETS] = answer
    assert run(broker, lambda client: bounds(client, "topic", 0)) == (5, 90)
    assert run(broker, lambda client: list_offset(client, "topic", 0, NOW)) == ListedOffset(40, NOW + 1)
    assert run(broker, lambda client: list_offset(client, "topic", 0, NOW + 5)) == ListedOffset(None, None)
    broker.versions[LIST_OFFSETS] = range(1)
    assert run(broker, lambda client: bounds(client, "topic", 0)) == (5, 90)
    assert run(broker, lambda client: list_offset(client, "topic", 0, NOW)) == ListedOffset(40, None)
    assert run(broker, lambda client: list_offset(client, "topic", 0, NOW + 5)) == ListedOffset(None, None)


def test_a_group_commits_and_fetches_its_offsets_at_its_coordinator_even_if_that_moves() -> None:
    broker = ScriptedBroker()
    stored: dict[tuple[str, int], Committed] = {}
    errors = [16, 14]
    broker.answers[FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(node_id=7, host="127.0.0.1", port=broker.port)

    def commit(request: OffsetCommitRequest, _: int) -> OffsetCommitResponse:
        error = errors.pop(0) if errors else 0
        for topic in request.topics:
            for each in topic.partitions:
                if not error:
                    place = Committed(each.committed_offset, each.committed_metadata or "", each.committed_leader_epoch)
                    stored[topic.name, each.partition_index] = place
        answered = [OffsetCommitResponsePartition(partition_index=0, error_code=error)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=answered)])

    def fetch(request: Any, _: int) -> OffsetFetchResponse:
        found = []
        for index in request.topics[0].partition_indexes:
            place = stored.get(("topic", index), Committed(-1))
            found.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=place.offset,
                    metadata=place.metadata,
                    committed_leader_epoch=place.leader_epoch,
                )
            )
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="topic", partitions=found)])

    broker.answers[OFFSET_COMMIT], broker.answers[OFFSET_FETCH] = commit, fetch
    places = {("topic", 0): Committed(17, "here", 3)}

    async def work(client: Client) -> Any:
        await groups.commit_offsets(client, "readers", places)
        return await groups.committed_offsets(client, "readers", [("topic", 0), ("topic", 1)])

    assert run(broker, work) == places
    assert len(broker.asked(FindCoordinatorRequest)) == 2  # one that loads (14) stays the coordinator
    assert broker.asked(OffsetCommitRequest)[0].generation_id_or_member_epoch == -1


@pytest.mark.parametrize("zookeeper", [False, True])
def test_offsets_that_are_not_committed_are_left_out_and_other_errors_are_errors(zookeeper: bool) -> None:
    broker = ScriptedBroker()
    broker.answers[FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(node_id=7, host="127.0.0.1", port=broker.port)

    def answer(code: int) -> OffsetFetchResponse:
        found = OffsetFetchResponsePartition(committed_offset=-1, error_code=code)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="topic", partitions=[found])])

    async def work(client: Client) -> Any:
        return await groups.committed_offsets(client, "readers", [("topic", 0)], zookeeper=zookeeper)

    for code in (0, 3):
        broker.answers[OFFSET_FETCH] = lambda *_, code=code: answer(code)
        assert run(broker, work) == {}
    broker.answers[OFFSET_FETCH] = lambda *_: answer(30)
    with pytest.raises(BrokerError, match="offset of group readers in topic-0: GROUP_AUTHORIZATION_FAILED"):
        run(broker, work)
    versions = {version for request, version in broker.requests if type(request).__name__ == "OffsetFetchRequest"}
    assert versions == ({0} if zookeeper else {7})


def test_a_topic_is_made_at_the_controller_and_what_it_says_is_the_error() -> None:
    broker = ScriptedBroker()
    codes = [(41, None), (0, None), (36, "Topic 'new' already exists.")]

    def create(*_: Any) -> CreateTopicsResponse:
        code, message = codes.pop(0)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="new", error_code=code, error_message=message)])

    broker.answers[19] = create
    topic = admin.NewTopic("new", partitions=3, configs={"cleanup.policy": "compact"})
    run(broker, lambda client: admin.create_topic(client, topic))
    asked = broker.asked(CreateTopicsRequest)[-1].topics[0]
    assert (asked.name, asked.num_partitions, asked.configs[0].value) == ("new", 3, "compact")
    with pytest.raises(BrokerError, match=r"create topic new: TOPIC_ALREADY_EXISTS .*already exists"):
        run(broker, lambda client: admin.create_topic(client, topic))


def test_settings_are_changed_one_by_one_or_where_that_is_unknown_all_at_once() -> None:
    broker = ScriptedBroker()
    known = [
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1),
        DescribeConfigsResourceResult(name="cleanup.policy", value="delete", config_source=5),
        DescribeConfigsResourceResult(name="segment.bytes", value="99", config_source=1),
    ]
    broker.answers[32] = lambda *_: DescribeConfigsResponse(results=[DescribeConfigsResult(configs=known)])
    broker.answers[44] = lambda *_: incremental_alter_configs.IncrementalAlterConfigsResponse()
    broker.answers[33] = lambda *_: alter_configs.AlterConfigsResponse()
    changes = {"retention.ms": "7", "segment.bytes": None}

    async def work(client: Client) -> None:
        await admin.alter_configs(client, admin.ConfigResource.TOPIC, "topic", changes)

    run(broker, work)
    one_by_one = broker.asked(incremental_alter_configs.IncrementalAlterConfigsRequest)[0].resources[0].configs
    assert [(each.name, each.config_operation, each.value) for each in one_by_one] == [
        ("retention.ms", 0, "7"),
        ("segment.bytes", 1, None),
    ]
    broker.versions[44] = range(0)
    run(broker, work)
    at_once = broker.asked(alter_configs.AlterConfigsRequest)[0].resources[0].configs
    assert [(each.name, each.value) for each in at_once] == [("retention.ms", "7")]


def test_an_answer_about_something_else_is_an_error() -> None:
    broker = ScriptedBroker()
    broker.answers[LIST_OFFSETS] = lambda *_: ListOffsetsResponse()
    with pytest.raises(ProtocolError, match="topics: expected one, found 0"):
        run(broker, lambda client: bounds(client, "topic", 0))


def test_a_number_that_is_no_code_of_kafka_is_kept() -> None:
    error = BrokerError("fetch", 9999, broker="broker 1")
    assert (error.code, error.number) == (ErrorCode.UNKNOWN_SERVER_ERROR, 9999)
    assert str(error) == "broker 1: fetch: UNKNOWN_SERVER_ERROR (9999)"


class Hours:
    """A clock that is an hour on at each reading."""

    def __init__(self) -> None:
        self.hours = itertools.count()

    def now_ms(self) -> int:
        raise AssertionError("retries are no matter of dates")

    def monotonic_ms(self) -> int:
        return next(self.hours) * 3_600_000


def test_retries_are_counted_by_the_clock_and_spread_by_the_random_numbers_that_are_given() -> None:
    spread: list[tuple[float, float]] = []
    attempts = 0

    def jitter(low: float, high: float) -> float:
        spread.append((low, high))
        return 0.0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise NetworkError("127.0.0.1:1: no broker there")

    async def main() -> None:
        client = Client("127.0.0.1:1", retry_ms=3 * 3_600_000, backoff_ms=3_600_000, clock=Hours(), jitter=jitter)
        with pytest.raises(NetworkError):
            await client.retried(attempt)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert attempts == 3
    assert spread == [(0.8, 1.2)] * 2
