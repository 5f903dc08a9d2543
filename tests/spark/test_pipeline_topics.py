"""Pipelines from and to live clusters, here our brokers; the tasks run in this process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.log.files.reader import Isolation, SegmentReader, Selection
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.spark.pipeline import topics
from magicbyte.spark.pipeline.config import PipelineError, load
from magicbyte.spark.pipeline.driver import PipelineRun, run
from magicbyte.testing import Broker
from magicbyte.tools.mirror import transactional
from magicbyte.tools.mirror.offset_topic import KnownMaps
from spark.conftest import GoldenLogs
from spark.in_process import InProcess
from spark.logs import some_records, write_partition
from tools.mirror.pair import CrashError, Dying, stable_end

COUNTS = (120, 40)


def fill(broker: Broker) -> None:
    """Make the topic `orders` of two partitions, in gzip and zstd, ten records in a batch."""

    async def work() -> None:
        async with Client(broker.bootstrap_servers) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 2))
            for number, count in enumerate(COUNTS):
                records = some_records(count)
                for at in range(0, count, 10):
                    options = ProduceOptions(codec=(Codec.GZIP, Codec.ZSTD)[at // 10 % 2])
                    await send(client, "orders", number, records[at : at + 10], options)

    asyncio.run(work())


def held(broker: Broker, partition: int, topic: str = "orders") -> tuple[list[Record], list[bytes]]:
    """Return the records of a partition, and what its batches hold behind their headers."""

    async def work() -> tuple[list[Record], list[bytes]]:
        async with Client(broker.bootstrap_servers) as client:
            ends = await bounds(client, topic, partition)
            records = [each async for part in read_records(client, topic, partition, *ends) for each in part]
            closed = []
            async for found in read_sets(client, topic, partition, *ends, FetchOptions()):
                positions, sizes = found.table.position, found.table.size
                closed += [bytes(found.data[at + 61 : at + size]) for at, size in zip(positions, sizes, strict=True)]
            return records, closed

    return asyncio.run(work())


def told(tmp_path: Path, text: str, *, resume: bool = False) -> PipelineRun:
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    return run(load(path), context=InProcess(), resume=resume)


def read(folder: Path) -> list[Record]:
    (found,) = discover([str(folder)])
    return [record for columns in SegmentReader(found).records() for record in columns]


def test_a_cluster_is_copied_into_a_log_directory_byte_for_byte(tmp_path: Path) -> None:
    with Broker() as broker:
        fill(broker)
        text = (
            f'[source]\nbootstrap = "{broker.bootstrap_servers}"\ntopics = ["ord*"]\n[[stage]]\ndo = "mirror"\n'
            '[[stage]]\ndo = "verify"\ndepth = "deep"\n[sink]\npath = "copy"\n'
        )
        done = told(tmp_path, text)
        assert done.status == 0, done.units
        (data,) = {each.log_directory for each in discover([str(tmp_path / "copy")])}
        assert data == str(tmp_path / "copy")
        for number, count in enumerate(COUNTS):
            assert read(tmp_path / f"copy/orders-{number}") == some_records(count) == held(broker, number)[0]
        again = told(tmp_path, text, resume=True)
        assert (again.status, again.kept) == (0, 2)


def test_stages_work_on_what_a_cluster_has(tmp_path: Path) -> None:
    with Broker() as broker:
        fill(broker)
        stages = '[[stage]]\ndo = "convert"\nformat = "v1"\ncodec = "gzip"\n[[stage]]\ndo = "records"\n'
        source = f'[source]\nbootstrap = "{broker.bootstrap_servers}"\npartitions = [1]\n'
        done = told(tmp_path, f'{source}{stages}[sink]\npath = "tables"\n')
    assert done.status == 0, done.units
    (unit,) = done.units
    assert unit["stages"][1]["records"] == COUNTS[1]
    assert [each.name for each in (tmp_path / "tables").glob("*.parquet")] == ["orders-1-00000000000000000000.parquet"]


def test_compact_works_on_the_topics_that_the_cluster_compacts(tmp_path: Path) -> None:
    async def make(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            for policy in ("compact", "delete", "compact,delete"):
                configs = {"cleanup.policy": policy}
                await admin.create_topic(client, admin.NewTopic(policy.replace(",", "-"), configs=configs))

    with Broker() as broker:
        asyncio.run(make(broker.bootstrap_servers))
        stages = '[[stage]]\ndo = "compact"\n[[stage]]\ndo = "verify"\n[sink]\npath = "copy"\n'
        done = told(tmp_path, f'[source]\nbootstrap = "{broker.bootstrap_servers}"\n{stages}')
    assert {unit["unit"]: [stage["do"] for stage in unit["stages"]] for unit in done.units} == {
        "compact-0": ["compact", "verify"],
        "compact-delete-0": ["compact", "verify"],
        "delete-0": ["verify"],
    }


def test_a_log_directory_goes_closed_into_a_cluster_and_a_rerun_sends_only_what_is_new(tmp_path: Path) -> None:
    folder = write_partition(tmp_path / "logs", "orders-1", some_records(100), codec=Codec.LZ4)
    write_partition(tmp_path / "logs", "orders-0", some_records(30), codec=Codec.ZSTD)
    closed = []
    with Broker() as broker:
        text = f'[source]\npath = "logs"\n[sink]\nbootstrap = "{broker.bootstrap_servers}"\n'
        first = told(tmp_path, text)
        assert first.status == 0, first.units
        for each in discover([str(tmp_path / "logs")]):
            chunks = [chunk.table for chunk in SegmentReader(each).chunks()]
            closed.append([
                bytes(table.buffer[at + 61 : at + size])
                for table in chunks
                for at, size in zip(table.position, table.size, strict=True)
            ])  # fmt: skip
        assert [held(broker, number)[1] for number in range(2)] == closed
        more = some_records(20, first=100)
        other = write_partition(tmp_path / "more", "x-0", more, codec=Codec.LZ4)
        (folder / f"{100:020}.log").write_bytes((other / f"{100:020}.log").read_bytes())
        again = told(tmp_path, text)
        assert {unit["unit"]: unit["stages"][-1]["records"] for unit in again.units} == {"orders-0": 0, "orders-1": 20}
        assert held(broker, 1)[0] == [*some_records(100), *more]


def test_what_stages_removed_is_not_sent_and_the_map_tells_the_offsets(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", "orders-0", some_records(60))

    async def noted(bootstrap: str) -> Any:
        async with Client(bootstrap) as client:
            maps = KnownMaps("nightly")
            await maps.refresh(client)
            return maps.maps["orders", 0].runs()

    with Broker() as broker:
        stages = '[[stage]]\ndo = "filter"\nfrom-offset = 15\n'
        sink = f'[sink]\nbootstrap = "{broker.bootstrap_servers}"\ngroup = "nightly"\n'
        done = told(tmp_path, f'[source]\npath = "logs"\n{stages}{sink}')
        assert done.status == 0, done.units
        found = held(broker, 0)[0]
        assert [each._replace(offset=each.offset + 15) for each in found] == some_records(60)[15:]
        assert any(run.source - run.target == 15 for run in asyncio.run(noted(broker.bootstrap_servers)))


def test_a_cluster_goes_closed_into_another_one(tmp_path: Path) -> None:
    with Broker() as source, Broker() as target:
        fill(source)
        text = f'[source]\nbootstrap = "{source.bootstrap_servers}"\n[[stage]]\ndo = "mirror"\n'
        for expected in (COUNTS, (0, 0)):
            done = told(tmp_path, f'{text}[sink]\nbootstrap = "{target.bootstrap_servers}"\n')
            assert done.status == 0, done.units
            assert {unit["unit"]: unit["stages"][0]["records"] for unit in done.units} == {
                f"orders-{number}": count for number, count in enumerate(expected)
            }
        assert [held(target, number) for number in range(2)] == [held(source, number) for number in range(2)]


def test_messages_of_an_old_format_go_into_a_new_cluster(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", "old-0", some_records(50, magic=1), target=Format.V1, codec=Codec.SNAPPY)
    with Broker() as broker:
        done = told(tmp_path, f'[source]\npath = "logs"\n[sink]\nbootstrap = "{broker.bootstrap_servers}"\n')
        assert done.status == 0, done.units
        assert held(broker, 0, "old")[0] == some_records(50, magic=1)


KINDS = ("basic-zstd", "compact-gzip.after", "txn-snappy", "txn-open-none", "txn-compact-none.after", "trimmed-none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_gets_the_committed_records_of_what_a_broker_wrote(
    tmp_path: Path, golden: GoldenLogs, kind: str
) -> None:
    topic = next(topic for topic, case in golden.cases.items() if case.id == f"3.9.1/{kind}")
    with Broker() as broker:
        source = f'[source]\npath = "{golden.path}"\ntopics = ["{topic}"]\n'
        done = told(tmp_path, f'{source}[sink]\nbootstrap = "{broker.bootstrap_servers}"\n')
        assert done.status == 0, done.units
        sent = held(broker, 0, topic)[0]
    (found,) = discover([str(golden.partition(topic))])
    wanted = Selection(first=log_start_offset(found), isolation=Isolation.READ_COMMITTED)
    columns = SegmentReader(found).records(wanted)
    committed = [record for each in columns for record in each]
    assert [each[3:] for each in sent] == [each[3:] for each in committed]
    assert sent


class DyingClient(Client):
    """A client whose process ends at a request that changes something, before it is sent or after that."""

    dying: Dying | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self.dying is not None:
            self.dying.patched(self)


def test_killed_at_its_requests_a_pipeline_in_transactions_sends_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "Client", DyingClient)
    monkeypatch.setattr(transactional, "FETCH_BYTES", 1500)
    at, arrives, has_died = 1, False, True
    with Broker() as broker:
        while has_died:
            name = f"topic{at}{arrives}"
            write_partition(tmp_path / name, f"{name}-0", some_records(60), per_batch=10)
            text = (
                f'[source]\npath = "{name}"\n[[stage]]\ndo = "filter"\nfrom-offset = 15\n[sink]\n'
                f'bootstrap = "{broker.bootstrap_servers}"\ngroup = "{name}"\ntransactional-id = "nightly"\n'
            )
            monkeypatch.setattr(DyingClient, "dying", Dying(at, arrives=arrives))
            try:
                told(tmp_path, text)
                has_died = False
            except CrashError:
                pass
            monkeypatch.setattr(DyingClient, "dying", None)
            again = told(tmp_path, text, resume=True)
            assert again.status == 0, again.units
            rows = asyncio.run(committed_rows(broker, name, 0))
            assert rows == [each[3:] for each in some_records(60)[15:]], (at, arrives)
            at, arrives = at + 5 * arrives, not arrives
    assert at > 10


async def committed_rows(broker: Broker, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """Return keys, values and headers of the committed records of a partition."""
    async with Client(broker.bootstrap_servers) as client:
        end = await stable_end(client, topic, partition)
        found = read_records(client, topic, partition, 0, end, FetchOptions(committed=True))
        return [each[3:] async for columns in found for each in columns]


def test_a_topic_of_others_is_not_written_into(tmp_path: Path) -> None:
    for number in range(2):
        write_partition(tmp_path / "logs", f"orders-{number}", some_records(10))
    with Broker() as broker:
        fill(broker)
        text = f'[source]\npath = "logs"\n[sink]\nbootstrap = "{broker.bootstrap_servers}"\n'
        done = told(tmp_path, text)
        assert done.status == 2
        assert len(held(broker, 0)[0]) == COUNTS[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[source]\npath = "logs"\nbootstrap = "a:1"\n[sink]\npath = "s"\n', "a path or a bootstrap: one of both"),
        ('[source]\ntopics = ["a"]\n[sink]\npath = "s"\n', "a path or a bootstrap: one of both, found none"),
        ('[source]\nbootstrap = "a:1"\n[[stage]]\ndo = "digest"\n', "for the records of a cluster"),
        ('[source]\npath = "l"\n[sink]\npath = "s"\ngroup = "g"\n', "a bootstrap with it"),
        ('[source]\npath = "l"\n[sink]\npath = "s"\ntransactional-id = "t"\n', "a bootstrap with it"),
        ('[source]\npath = "l"\n[sink]\nbootstrap = "a:1"\nscratch = "g"\n', "none with a cluster"),
        ('[source]\npath = "l"\n[[stage]]\ndo = "records"\n[sink]\nbootstrap = "a:1"\n', "a folder as .sink."),
        (
            '[source]\npath = "l"\n[[stage]]\ndo = "mirror"\n[[stage]]\ndo = "digest"\n[sink]\nbootstrap = "a:1"\n',
            "`mirror` of all topics as the last stage",
        ),
        (
            '[source]\nbootstrap = "a:1"\n[[stage]]\ndo = "compare"\n[sink]\npath = "s"\n',
            "a path to compare `with`, as a cluster is not read twice",
        ),
    ],
)
def test_what_does_not_go_with_clusters_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    with pytest.raises(PipelineError, match=said):
        load(path)
