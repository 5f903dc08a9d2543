"""Real KRaft nodes on written, rescued and repaired directories: checks by the numbers of docs/evidence/checks.md."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from cli.command import run
from cli.test_metadata_repair import DAMAGE, HIDDEN, in_two
from golden_data import log_case
from interop import jvm
from interop.kraft_nodes import SECONDS, kraft_node, troubles
from kraft_data import FOLDER, KraftNode
from magicbyte.access.client import Client
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.groups.records import OffsetCommitKey, OffsetCommitValue
from magicbyte.engine.internal_topics import INTERNAL
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import build_batch, single_record
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.entry import entries
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.writer import LogDirectoryWriter, end_offset

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

RELEASES: Final = ["4.3.1", *(pytest.param(each, marks=pytest.mark.campaign) for each in ("3.9.1", "4.4.0"))]
FIRST: Final = 3_000_000_000
OLD_MS: Final = 1_500_000_000_000
PLACE: Final = TopicPartition("orders", 0)
USUAL: Final = re.compile(r"DUPLICATE_BROKER_REGISTRATION|apiKey=ASSIGN_REPLICAS_TO_DIRS|AssignmentsManager")
"""Until the session ends that the node had; while it makes an empty folder for a partition that has none."""
KEEPS_ALL: Final = {"log.retention.ms": "-1"}


def batch(first: int, key: bytes, value: bytes, count: int = 1) -> bytes:
    records = b"".join(single_record(key, value, offset_delta=at) for at in range(count))
    return build_batch(records, base_offset=first, last_offset_delta=count - 1, base_timestamp=OLD_MS,
                       max_timestamp=OLD_MS, record_count=count, partition_leader_epoch=0)  # fmt: skip


async def seen(bootstrap: str) -> tuple[int, int, int]:
    """The first offset of the topic, its end, and the group's offset."""
    async with Client(bootstrap) as client:
        committed = (await committed_offsets(client, "late", [PLACE]))[PLACE]
        return *(await bounds(client, *PLACE)), committed.offset


async def produce(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await send(client, *PLACE, [Record(0, OLD_MS, 0, b"k", b"later")], ProduceOptions())
        await commit_offsets(client, "late", {PLACE: Committed(FIRST + 11, "")})


@pytest.mark.parametrize("release", RELEASES)
def test_116_120_121_offsets_above_2_31_stay_and_nothing_is_recovered(release: str, tmp_path: Path) -> None:
    backup, node = tmp_path / "backup", tmp_path / "node"
    value = OffsetCommitValue(3, FIRST + 7, -1, "", OLD_MS, -1, None).to_bytes()
    committed = batch(0, OffsetCommitKey(1, "late", *PLACE).to_bytes(), value)
    writer = LogDirectoryWriter(backup)
    for topic, content in (("orders", batch(FIRST, b"key", b"value", 10)), ("__consumer_offsets", committed)):
        with writer.partition(topic, 0) as partition:
            partition.append(content)
            partition.finish()
    done = run("rescue", backup, "--to-kraft", node / "data", "--release", release)
    assert done.exit_code in (0, 1), done.stderr
    assert (node / f"data/orders-0/{FIRST:020}.log").exists()
    with kraft_node(release, node, 1) as bootstrap:
        assert asyncio.run(asyncio.wait_for(seen(bootstrap), SECONDS)) == (FIRST, FIRST + 10, FIRST + 7)
        asyncio.run(asyncio.wait_for(produce(bootstrap), SECONDS))
        assert asyncio.run(asyncio.wait_for(seen(bootstrap), SECONDS)) == (FIRST, FIRST + 11, FIRST + 11)
    assert troubles(node) == []
    assert "Skipping recovery of " in (node / "broker.log").read_text()


@pytest.mark.parametrize("release", RELEASES)
def test_127_aborted_records_stay_hidden_without_their_index(release: str, tmp_path: Path) -> None:
    case, backup, node = log_case("3.9.1/txn-none"), tmp_path / "backup", tmp_path / "node"
    shutil.copytree(case.partition_dir(), backup / f"{case.topic}-0", ignore=shutil.ignore_patterns("*.txnindex"))
    done = run("rescue", backup, "--to-kraft", node / "data", "--release", release)
    assert done.exit_code == 0, done.stderr
    assert list((node / f"data/{case.topic}-0").glob("*.txnindex"))
    with kraft_node(release, node, 1) as bootstrap:
        lines = jvm.consumed("3.9.1", bootstrap, [case.topic], "read_committed")[case.topic]
    assert troubles(node) == []
    assert [int(each.split("\t")[0]) for each in lines] == [each["offset"] for each in case.committed()]


def ends_of(node: Path) -> list[tuple[int, int]]:
    """The first and the next offset of each batch in a metadata log."""
    (folder,) = [each for each in discover(str(node)) if Path(each.path).name == FOLDER]
    logs = [Path(segment.log.path).read_bytes() for segment in folder.segments]
    return [(each.base_offset, each.next_offset or 0) for log in logs for _, each in entries(log)]  # type: ignore[union-attr]


@pytest.mark.parametrize("release", RELEASES)
def test_131_132_a_metadata_log_goes_back_and_forth_without_a_gap_and_ids_stay(release: str, tmp_path: Path) -> None:
    source = KraftNode(f"{release}/clean-a", "node").unpacked(tmp_path / "source")
    ids, end = dict(read_metadata(str(source)).image.topic_names), read_metadata(str(source)).end
    for leg in range(2):
        node = tmp_path / f"node-{leg}"
        done = run("metadata", "export", source, "--to-kraft", node / "data", "--logs", source, "--release", release)
        assert done.exit_code == 0, done.stderr
        with kraft_node(release, node, 1, properties=KEEPS_ALL):
            pass
        assert troubles(node, has_indexes=leg > 0) == []
        source, batches = node / "data", ends_of(node / "data")
        assert batches[0][0] == end
        assert all(following[0] == before[1] for before, following in itertools.pairwise(batches))
        described = read_metadata(str(source))
        assert dict(described.image.topic_names) == ids
        assert described.end is not None
        assert end is not None
        assert described.end > end
        end = described.end


async def ends(bootstrap: str, logs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    async with Client(bootstrap) as client:
        return {key: (await bounds(client, *key))[1] for key in logs}


@pytest.mark.parametrize(
    ("release", "damage"),
    [
        pytest.param(release, damage, marks=() if is_quick and release == "4.3.1" else pytest.mark.campaign)
        for release in ("4.3.1", "3.9.1", "4.4.0")
        for damage in DAMAGE
        if (release, damage) != ("4.4.0", "a flipped bit in the middle")  # its log is shorter
        for is_quick in (damage in ("a torn tail", "a flipped bit in the middle", "another topic's id"),)
    ],
)
def test_a_real_node_starts_on_a_repaired_directory(release: str, damage: str, tmp_path: Path) -> None:
    source, node = KraftNode(f"{release}/clean-a", "node").unpacked(tmp_path / "source"), tmp_path / "node"
    DAMAGE[damage][0](source)
    done = run("metadata", "check", source, "--repair", "--out", node / "data")
    assert done.exit_code in (0, 1), done.stderr
    image, logs = read_metadata(str(node / "data")).image, dict[TopicPartition, int]()
    for each in discover(str(node / "data")):
        if each.topic in image.topics and each.topic not in INTERNAL and each.partition is not None:
            logs[TopicPartition(each.topic, each.partition)] = end_offset(each)
    assert logs
    with kraft_node(release, node, 1, properties=KEEPS_ALL) as bootstrap:
        assert asyncio.run(asyncio.wait_for(ends(bootstrap, logs), SECONDS)) == logs
    assert [each for each in troubles(node, has_indexes=False) if not USUAL.search(each)] == []
    assert read_metadata(str(node / "data")).image.topic_names == image.topic_names
    if damage in HIDDEN and release == "4.3.1":
        assert all((node / "data" / name.removeprefix("folder of ")).exists() for name in HIDDEN[damage])


@pytest.mark.parametrize("release", RELEASES)
def test_a_real_node_starts_on_one_directory_of_two(release: str, tmp_path: Path) -> None:
    source, node = KraftNode(f"{release}/clean-a", "node").unpacked(tmp_path / "source"), tmp_path / "node"
    logs = {PLACE._replace(topic="alpha-one"): end_offset(next(iter(discover(str(source / "alpha-one-0")))))}
    in_two(source, tmp_path / "second")
    done = run("metadata", "check", source, tmp_path / "second", "--repair", "--out", node / "data")
    assert done.exit_code == 0, done.stderr
    with kraft_node(release, node, 1, properties=KEEPS_ALL) as bootstrap:
        assert asyncio.run(asyncio.wait_for(ends(bootstrap, logs), SECONDS)) == logs
    assert troubles(node, has_indexes=False) == []
