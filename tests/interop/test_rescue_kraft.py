"""A real KRaft node starts on a rescued backup of old logs, and its checks of retention delete nothing of it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from cli.command import run
from golden_data import log_case
from interop import jvm
from interop.kraft_nodes import SECONDS, kraft_node, troubles
from magicbyte.access.client import Client
from magicbyte.access.client.groups import committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.groups.records import OffsetCommitKey, OffsetCommitValue
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.records.batch import build_batch, single_record
from magicbyte.tools.offline.writer import LogDirectoryWriter, end_offset

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.campaign, pytest.mark.usefixtures("needs_java")]

OLD_MS = 1_500_000_000_000
COMMITTED = 5
PLACE = ("orders", 0)
OFTEN = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "100",
    "offsets.retention.check.interval.ms": "1000",
}
ROUNDS_S = 8.0


def made(path: Path, case: str) -> Path:
    """Logs of a golden case as topic `orders`, and a group that committed years ago."""
    shutil.copytree(log_case(case).partition_dir(), path / "orders-0")
    key = OffsetCommitKey(1, "old", *PLACE).to_bytes()
    value = OffsetCommitValue(3, COMMITTED, -1, "", OLD_MS, -1, None).to_bytes()
    batch = build_batch(single_record(key, value), base_offset=0, last_offset_delta=0, base_timestamp=OLD_MS,
                        max_timestamp=OLD_MS, record_count=1, partition_leader_epoch=0)  # fmt: skip
    with LogDirectoryWriter(path).partition("__consumer_offsets", 0) as writer:
        writer.append(batch)
        writer.finish()
    return path


async def looked(bootstrap: str) -> tuple[int, int, int | None]:
    """The first offset of the topic, its end, and the group's offset, after some rounds of the node's checks."""
    async with Client(bootstrap) as client:
        await asyncio.sleep(ROUNDS_S)
        start, end = await bounds(client, *PLACE)
        committed = (await committed_offsets(client, "old", [PLACE])).get(PLACE)
        return start, end, None if committed is None else committed.offset


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
@pytest.mark.parametrize(
    "case",
    ["0.8.2.2/basic-snappy", "0.9.0.1/basic-lz4", "0.10.0.1/mixed-gzip-090-0100", "2.8.2/mixed-none-090-0102-28"],
)
def test_a_real_node_serves_records_of_formats_0_and_1_as_they_are(case: str, release: str, tmp_path: Path) -> None:
    backup, node = made(tmp_path / "backup", case), tmp_path / "node"
    before = [(path.name, path.read_bytes()) for path in sorted((backup / "orders-0").glob("*.log"))]
    done = run("rescue", backup, "--to-kraft", node / "data", "--release", release)
    assert done.exit_code == 0, done.stderr
    assert "records of formats 0 and 1 are those of the backup, byte for byte: orders" in done.stdout
    fields = ("offset", "key", "value")
    with kraft_node(release, node, 1, properties=OFTEN) as bootstrap:
        records = jvm.consumed_records("3.9.1", bootstrap, ["orders"], *fields)["orders"]
        later = jvm.consumed_records(release, bootstrap, ["orders"], *fields)["orders"]
    assert troubles(node) == []
    assert records == later == [{name: each[name] for name in fields} for each in log_case(case).records()]
    after = {path.name: path.read_bytes() for path in (node / "data/orders-0").glob("*.log")}
    assert [(name, after[name]) for name, _ in before] == before


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
@pytest.mark.parametrize("case", ["0.9.0.1/basic-none", "0.10.2.2/basic-gzip", "3.9.1/basic-none"])
def test_old_records_and_commits_survive_the_checks_of_a_real_node(case: str, release: str, tmp_path: Path) -> None:
    backup, node = made(tmp_path / "backup", case), tmp_path / "node"
    source = next(each for each in discover(str(backup)) if each.topic == "orders")
    expected = (source.segments[0].base_offset, end_offset(source), COMMITTED)
    done = run("rescue", backup, "--to-kraft", node / "data", "--release", release)
    assert done.exit_code in (0, 1), done.stderr
    with kraft_node(release, node, 1, properties=OFTEN) as bootstrap:
        assert asyncio.run(asyncio.wait_for(looked(bootstrap), SECONDS)) == expected
    assert troubles(node) == []


def test_without_the_change_of_retention_and_commits_the_same_node_deletes_both(tmp_path: Path) -> None:
    backup, node = made(tmp_path / "backup", "3.9.1/basic-none"), tmp_path / "node"
    words = ("--keep-retention", "--keep-commit-times", "--release", "4.3")
    done = run("rescue", backup, "--to-kraft", node / "data", *words)
    assert done.exit_code in (0, 1), done.stderr
    with kraft_node("4.3.1", node, 1, properties=OFTEN) as bootstrap:
        start, end, committed = asyncio.run(asyncio.wait_for(looked(bootstrap), SECONDS))
    assert start == end
    assert committed is None
