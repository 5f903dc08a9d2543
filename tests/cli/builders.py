"""What tests of several commands need: all commands with their options, and brokers that answer by a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import golden_data
from access.client.broker import ScriptedBroker, scripted
from magicbyte.cli.main import main
from magicbyte.cli.mirror_translate import translate
from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from magicbyte.engine.protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse
from magicbyte.engine.records.entry import entries

FETCH, LIST_OFFSETS = 1, 2
EARLIEST = -2


def commands(command: click.Command = main, name: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands, those of groups by both names."""
    if not isinstance(command, click.Group) or command.name == "mirror":
        yield " ".join(name), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, (*name, each))


COMMANDS = {**dict(commands()), "mirror translate": translate}
BESIDE = {  # what a command line needs besides the option
    "cat": "kafka://{}/t",
    "diff": "kafka://{}/t kafka://{}/t",
    "inventory": "kafka://{}/t",
    "configs describe": "-t t",
    "configs set": "-t t retention.ms=1",
    "configs unset": "-t t retention.ms",
    "consume": "-t t",
    "groups delete": "g",
    "groups describe": "g",
    "groups reset-offsets": "g -t t --to-earliest",
    "metadata export": "--dir .",
    "metadata format": "new --node-id 1",
    "metadata import": "--dir .",
    "migrate apply": "--topic t --to 1",
    "migrate rollback": "--broker 0 --to 0",
    "mirror": "--topics .* --from a:1 --to b:1",
    "mirror translate": "--from a:1 --to b:1 --group g",
    "produce": "-t t",
    "rescue": ".",
    "topics create": "t",
    "topics delete": "t",
    "topics describe": "t",
    "topics elect": "--all",
    "topics reassign": "--plan plan.json --verify",
    "transactions abort": "--topic t --partition 0 --start-offset 0 --yes",
    "transactions describe": "id",
}


def options() -> list[tuple[str, str]]:
    """Return every command with each of its options that take an address."""
    return [
        (name, parameter.opts[0])
        for name, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and "HOST:PORT" in (parameter.metavar or "")
    ]


CASE = golden_data.log_case("3.9.1/basic-gzip")


def folder_of(case: golden_data.Case) -> Path:
    """Return the folder of a golden partition."""
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


class Groups(ScriptedBroker):
    """A broker that keeps a group's offset 5 in partition 0 of its topic, whose end is 9."""

    def __init__(self, manner: str = "new", versions: dict[int, range] | None = None) -> None:
        super().__init__(manner, versions)
        self.answers |= {2: self.list_offsets, 8: self.offset_commit, 9: self.offset_fetch, 10: self.coordinator}
        self.answers[77] = self.no_share_group

    def no_share_group(self, request: Any, version: int) -> ShareGroupDescribeResponse:
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=each, error_code=69) for each in request.group_ids]
        )

    def coordinator(self, request: Any, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=7, host="127.0.0.1", port=self.port)

    def list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        offset = 0 if asked.timestamp == -2 else 9
        found = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        if version:
            found.offset = offset
        else:
            found.old_style_offsets = (offset,)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=[found])])

    def offset_fetch(self, request: Any, version: int) -> OffsetFetchResponse:
        kept = [OffsetFetchResponsePartition(partition_index=0, committed_offset=5)]
        nothing = [OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, error_code=3)]
        return OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name="topic", partitions=kept if version else nothing)]
        )

    def offset_commit(self, request: Any, version: int) -> OffsetCommitResponse:
        done = [OffsetCommitResponsePartition(partition_index=0)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=done)])
