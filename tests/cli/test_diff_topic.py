"""`magicbyte diff` with a topic on one side: brokers that give the sets of a log of a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import golden_data
from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.records.entry import entries

FETCH, LIST_OFFSETS = 1, 2
EARLIEST = -2
CASE = golden_data.log_case("3.9.1/basic-gzip")


def folder_of(case: golden_data.Case) -> Path:
    return Path(case.partition_dir())


class Topic:
    """What a broker answers for a topic whose partition 0 holds some sets, and whose partition 1 is empty."""

    def __init__(self, folder: Path, start: int = 0, largest: int = 3000) -> None:
        log = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        found = list(entries(log))
        places = [position for position, _ in found]
        contents = [log[at:end] for at, end in zip(places, [*places[1:], len(log)], strict=True)]
        self.sets = [(entry.next_offset or 0, one) for (_, entry), one in zip(found, contents, strict=True)]
        self.start, self.end, self.largest = start, self.sets[-1][0], largest

    def list_offsets(self, request: Any, _: int) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        ends = (self.start, self.end) if asked.partition_index == 0 else (0, 0)
        offset = ends[0] if asked.timestamp == EARLIEST else ends[1]
        found = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=[found])])

    def fetch(self, request: Any, _: int) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        data = b""
        for next_offset, content in self.sets:
            if data and len(data) + len(content) > self.largest:
                break
            if next_offset > asked.fetch_offset:
                data += content
        found = PartitionData(high_watermark=self.end, last_stable_offset=self.end, records=data)
        return FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=[found])])


@contextmanager
def served(topic: Topic) -> Iterator[str]:
    """Run a broker on a loop of its own inside the block; yield where it is."""
    broker = ScriptedBroker()
    broker.answers |= {FETCH: topic.fetch, LIST_OFFSETS: topic.list_offsets}
    with scripted(broker) as bootstrap:
        yield bootstrap


def log_directory(tmp_path: Path, case: golden_data.Case = CASE) -> Path:
    """The log as partition 0 of a topic, beside an empty partition 1."""
    for number in (0, 1):
        (tmp_path / f"topic-{number}").mkdir(parents=True)
    for path in sorted(folder_of(case).glob("*.log")):
        (tmp_path / "topic-0" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "topic-1" / f"{0:020}.log").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("threads", [1, 2])
def test_a_topic_and_the_log_directory_that_it_is_from_are_the_same(tmp_path: Path, threads: int) -> None:
    with served(Topic(folder_of(CASE))) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/topic", log_directory(tmp_path), "--threads", threads)
        other_way = run("diff", tmp_path, f"kafka://{bootstrap}/topic")
    assert (result.exit_code, result.stdout) == (
        0,
        "same: 123 records in 2 partitions compared: offset, key, value, timestamps, headers\n",
    )
    assert other_way.stdout == result.stdout


def test_two_topics_that_differ_in_one_record_do_so_with_the_digests_of_folders(tmp_path: Path) -> None:
    topic, cut = Topic(folder_of(CASE)), Topic(folder_of(CASE))
    cut.sets = cut.sets[:-1]
    cut.end = cut.sets[-1][0]
    with served(topic) as one, served(cut) as other:
        result = run("diff", f"kafka://{one}/topic", f"kafka://{other}/topic", "--format", "json")
        folders = run("diff", log_directory(tmp_path), tmp_path, "--format", "json")
    found, same = json.loads(result.stdout), json.loads(folders.stdout)
    assert result.exit_code == 1
    assert [each["partition"] for each in found["partitions"] if not each["same"]] == ["topic-0"]
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["what"], difference["firstOffset"], difference["lastOffset"]) == (["only in a"], cut.end, 122)
    assert found["partitions"][0]["a"]["digest"] == same["partitions"][0]["a"]["digest"]
    assert found["partitions"][0]["a"]["path"] == f"kafka://{one}/topic-0"


def test_what_lies_below_the_start_of_a_topic_does_not_count(tmp_path: Path) -> None:
    with served(Topic(folder_of(CASE), start=100)) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/topic", log_directory(tmp_path))
    assert result.exit_code == 1
    assert "topic-0: 100 records differ" in result.stdout
    assert "23 records in 2 partitions compared" in result.stdout


def test_a_topic_that_is_not_there_is_an_error_and_none_is_made() -> None:
    with served(Topic(folder_of(CASE))) as bootstrap:
        result = run("diff", f"kafka://{bootstrap}/other", folder_of(CASE))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "topic 'other'" in result.stderr


@pytest.mark.parametrize("address", ["kafka://127.0.0.1:9092", "kafka:///topic", "kafka://nowhere/topic"])
def test_an_address_without_broker_or_topic_is_wrong_use(address: str) -> None:
    result = run("diff", address, folder_of(CASE))
    assert result.exit_code == 2
    assert "kafka://" in result.stderr or "HOST:PORT" in result.stderr
