"""Fetches that were captured at real brokers, asked of ours over the same logs: the same codes; where Kafka sends what
is stored, the same bytes; where it converts, the same records.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_data
from broker.serving import Peer, Running, run
from golden_data import WireCase
from magicbyte.protocol import APIS, read_request, read_response, write_request
from magicbyte.protocol.messages.fetch import FetchResponse, PartitionData
from magicbyte.records.columns import Record
from magicbyte.records.decode import DecodeOptions, decode
from magicbyte.records.scan import scan
from magicbyte.wire.checksum import Buffer

MAGIC_OF_VERSION = (0, 0, 1, 1)
CASES = [case for name in golden_data.wire_brokers() for case in golden_data.wire_cases(name, "fetch-")]


def topic_of(case: WireCase) -> str:
    return case.id.replace("/", ".")


def exchanges(case: WireCase) -> Iterator[tuple[str, bytes, dict[str, Any], bytes]]:
    """Label, request, what is said of it, the answer's record set."""
    sets = {label: data for label, _, data in case.record_sets()}
    for label, (request, response) in case.exchanges().items():
        name = label.removeprefix(".")
        if response:
            yield name, request, case.info["requests"][name], sets.get(name, b"")


async def fetch(peer: Peer, topic: str, request: bytes) -> tuple[int, PartitionData]:
    """Ask the same of another topic's partition 0, without waiting."""
    found = read_request(request[4:])
    message: Any = found.message
    message.topics[0].topic, message.topics[0].partitions[0].partition, message.max_wait_ms = topic, 0, 0
    message.topics[0].partitions[0].current_leader_epoch = -1
    version = found.header.request_api_version
    answer = await peer.exchange(bytes(write_request(message, version, correlation_id=7, client_id="test")))
    assert answer, "the broker closed the connection"
    _, response = read_response(answer[4:], APIS[1], version)
    assert isinstance(response, FetchResponse)
    return version, response.responses[0].partitions[0]


def bytes_of(data: PartitionData) -> bytes:
    return bytes(data.records) if isinstance(data.records, memoryview) else b""


def records_of(data: Buffer, offset: int, magic: int) -> list[tuple[object, ...]]:
    """The records from an offset on, as much of them as a format has; those of whole entries."""
    table = scan(memoryview(data))
    whole = memoryview(data)[: table.end]
    found = [record for columns in decode(whole, DecodeOptions(control=False)) for record in columns]
    return [facts(record, magic) for record in found if record.offset >= offset]


def facts(record: Record, magic: int) -> tuple[object, ...]:
    return record.offset, record.timestamp if magic else -1, record.key, record.value


async def check(peer: Peer, case: WireCase, name: str, request: bytes, said: dict[str, Any], theirs: bytes) -> str:
    """Compare one answer; return what it was: an error, bytes or records."""
    where = f"{case} {name}"
    version, ours = await fetch(peer, topic_of(case), request)
    known = said["errorCode"]
    refuses_headers = case.broker == "0.11.0.3" and "headers" in case.name and known == -1
    assert ours.error_code == (0 if refuses_headers else known), where
    if ours.error_code:
        assert (bytes_of(ours), ours.high_watermark) == (b"", -1), where
        return "error"
    assert refuses_headers or ours.high_watermark == said["highWatermark"], where
    if name.endswith("committed"):
        _, kafka = read_response(case.exchanges()[f".{name}"][1][4:], APIS[1], version)
        assert isinstance(kafka, FetchResponse)
        aborted = kafka.responses[0].partitions[0].aborted_transactions or []
        assert aborted, where
        told = ours.aborted_transactions or []
        assert told[: len(aborted)] == aborted, where  # theirs end with a segment, of which ours is all
        assert case.broker != "2.8.2" or len(told) == len(aborted), where
    stored, offset = case.segment, said["fetchOffset"]
    magic = MAGIC_OF_VERSION[version] if version < len(MAGIC_OF_VERSION) else 2
    data = bytes_of(ours)
    is_stored = bool(theirs) and theirs in stored
    if is_stored and data in stored:
        assert data.startswith(theirs), where
        ends_early = "txn" in case.name or case.broker == "0.10.0.1"  # with a segment; in front of what is cut
        assert ends_early or data == theirs, where
        return "bytes"
    wanted = records_of(stored, offset, magic)
    found = records_of(data, offset, magic)
    assert found == wanted[: len(found)], where
    assert found or not records_of(stored[: said["maxBytes"]], offset, magic), where
    if theirs and not is_stored:
        assert len(found) >= len(records_of(theirs, offset, magic)) or "txn" in case.name, where
    return "records"


@pytest.mark.parametrize("name", golden_data.wire_brokers())
def test_a_captured_fetch_finds_what_the_broker_gave(name: str, folder: Path) -> None:
    cases = [case for case in CASES if case.broker == name]
    for case in cases:
        partition = folder / f"{topic_of(case)}-0"
        partition.mkdir()
        (partition / f"{0:020}.log").write_bytes(case.segment)

    async def work() -> set[str]:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            kinds = {await check(peer, case, *exchange) for case in cases for exchange in exchanges(case)}
            peer.close()
            return kinds

    assert run(work()) >= {"bytes", "records"}
