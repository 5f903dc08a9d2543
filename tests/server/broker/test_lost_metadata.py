"""The metadata of a log directory, missing, damaged, of another type: known topics are served, the rest is reported."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.log.appended import batch_of
from engine.log.damaged_directories import DAMAGES, Damage, copied
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.server.broker.broker import Broker
from magicbyte.server.metadata.sqlite import FILE_NAME
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes import layout
from server.broker.conftest import MEMORY
from server.broker.serving import Peer
from server.broker.test_offline_partitions import GOOD, after_a_start, created, takes_records, with_good_topic

FILES = [FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", f"{FILE_NAME}-journal", "meta.properties"]
OTHERS = {"retention.ms": "7200000"}
SETTINGS = {"retention.ms": "3600000", "segment.bytes": "1048576"}


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A directory with a topic that has settings, and records of a producer with an id."""
    with tempfile.TemporaryDirectory(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None) as above:
        folder = Path(above) / "logs"

        async def make(broker: Broker, peer: Peer) -> None:
            for number in range(6):
                await created(peer, f"more-{number:02}")
            await broker.topics.alter(GOOD, lambda _: SETTINGS)
            await broker.topics.alter("more-03", lambda _: OTHERS)
            await broker.parts.producer_ids.fill()
            assert broker.parts.producer_ids.next() == 0

        with_good_topic(folder)
        after_a_start(folder, make)
        yield folder


async def nothing_is_deleted(broker: Broker, _: Peer) -> None:
    """Unless its settings are still known, a topic keeps all its records."""
    own = broker.topics.known(GOOD).configs
    assert own in (SETTINGS, {"retention.bytes": "-1", "retention.ms": "-1"})


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", FILES)
def test_the_topics_are_served_and_losses_are_reported(
    base: Path, folder: Path, name: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    path = copied(base, folder / "logs")
    damage(path / name)
    if (name, damage.__name__) == ("meta.properties", "short"):  # the cluster's id is another one by that
        with pytest.raises(LogDirectoryError, match="or move the metadata or"):
            after_a_start(path, nothing_is_deleted)
        return
    after_a_start(path, nothing_is_deleted)
    lost = name == FILE_NAME and damage.__name__ != "huge"  # SQLite knows how long it is
    assert not lost or any(FILE_NAME in each or "are adopted" in each for each in caplog.messages), caplog.messages
    caplog.clear()
    after_a_start(path, nothing_is_deleted)
    assert not [each for each in caplog.messages if FILE_NAME in each], "it is reported once"


def flipped(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def starts_or_says_why(path: Path) -> None:
    """A start serves the topics, or is refused in words that name the file."""
    try:
        after_a_start(path, nothing_is_deleted)
    except LogDirectoryError as error:
        assert FILE_NAME in str(error) or "cluster" in str(error)  # noqa: PT017


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(each, marks=pytest.mark.slow) for each in range(6, 200))])
def test_a_flipped_bit_is_no_traceback_and_hides_no_topic(base: Path, folder: Path, seed: int) -> None:
    path = copied(base, folder / "logs")
    chance = random.Random(seed)
    file = path / FILE_NAME
    flipped(file, chance.randrange(100 if seed % 3 == 0 else file.stat().st_size), chance.randrange(8))
    starts_or_says_why(path)


def test_a_kept_protocol_that_does_not_exist_is_refused_by_file_and_node(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")
    node = layout.directory_path(0)
    with closing(sqlite3.connect(path / FILE_NAME)) as database:
        data = layout.dump_config({"log.message.format.version": "2.8", "inter.broker.protocol.version": "2.9"})
        database.execute("UPDATE nodes SET data = ? WHERE path = ?", (data, node))
        database.commit()
    with pytest.raises(LogDirectoryError, match=f"{node} of the metadata .{FILE_NAME}.*'2.9'.*later version"):
        after_a_start(path, nothing_is_deleted)


def test_settings_of_nodes_that_can_be_read_are_kept(
    base: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = copied(base, folder / "logs")
    with closing(sqlite3.connect(path / FILE_NAME)) as database:
        database.execute("UPDATE nodes SET data = ? WHERE path = ?", (b"{junk", layout.topic_path("more-03")))
        database.commit()

    async def look(broker: Broker, _: Peer) -> None:
        assert broker.topics.known(GOOD).configs == SETTINGS
        assert broker.topics.known("more-03").configs == OTHERS, "its settings had nothing to do with the damage"
        assert broker.topics.adopted == ["more-03"]

    after_a_start(path, look)
    line = next(each for each in caplog.messages if FILE_NAME in each and "nodes of the metadata are kept" in each)
    assert layout.topic_path("more-03") in line
    assert [each.name for each in (path / "quarantine").iterdir()] == [FILE_NAME]


def test_the_settings_that_were_lost_keep_all_records(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")
    with closing(sqlite3.connect(path / FILE_NAME)) as database:
        database.execute("UPDATE nodes SET data = ? WHERE path = ?", (b"\xff", layout.config_path("topics", GOOD)))
        database.commit()

    async def look(broker: Broker, _: Peer) -> None:
        assert broker.topics.known(GOOD).configs == {"retention.bytes": "-1", "retention.ms": "-1"}

    after_a_start(path, look)


def test_a_producer_id_that_a_log_knows_is_not_given_again(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")

    async def write(broker: Broker, _: Peer) -> None:
        log = broker.topics.log(GOOD, 0)
        batch = batch_of(log.log_end_offset, 1, producer_id=4711, producer_epoch=0, base_sequence=0)
        log.append(record_set(batch, log.config.rules), 1)

    after_a_start(path, write)
    for each in path.glob(f"{FILE_NAME}*"):
        each.unlink()

    async def look(broker: Broker, _: Peer) -> None:
        await broker.parts.producer_ids.fill()
        assert broker.parts.producer_ids.next() == 4712

    after_a_start(path, look)


def test_an_enriched_topic_without_metadata_is_adopted_as_one(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")

    async def make(broker: Broker, _: Peer) -> None:
        await broker.topics.create("rich", 1, 1, {"message.format.version": "enriched"})
        broker.topics.log("rich", 0)

    after_a_start(path, make)
    for each in path.glob(f"{FILE_NAME}*"):
        each.unlink()

    async def look(broker: Broker, _: Peer) -> None:
        assert broker.topics.known("rich").configs["message.format.version"] == "enriched"
        assert broker.topics.offline() == []

    after_a_start(path, look)


def test_metadata_of_a_later_format_is_refused_and_left_alone(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")
    with closing(sqlite3.connect(path / FILE_NAME)) as database:
        database.execute("PRAGMA user_version = 2")
    before = (path / FILE_NAME).read_bytes()
    with pytest.raises(LogDirectoryError, match="this magicbyte reads format 1, the file has format 2"):
        after_a_start(path, nothing_is_deleted)
    assert (path / FILE_NAME).read_bytes() == before


def test_metadata_that_another_process_holds_is_not_put_aside(base: Path, folder: Path) -> None:
    path = copied(base, folder / "logs")

    async def look(_: Broker, peer: Peer) -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)})
        with pytest.raises(LogDirectoryError, match="another process"):
            await Broker(config).start()
        await takes_records(peer)

    after_a_start(path, look)
    assert not (path / "quarantine").exists()
