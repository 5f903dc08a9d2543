"""Compaction through the shuffle: the result is the log cleaner's, byte for byte."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import golden_data
from cli.command import run as command
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.spark.pipeline.shuffle import _ROW, HashCollisionError, last_of_each
from spark.compactions import compacted
from spark.conftest import lay_out_closed
from spark.logs import START, write_partition
from stage_proof import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def users(count: int, first: int, seed: int) -> list[Record]:
    """Return records of 60 keys, some of them without a key, some tombstones."""
    rng = random.Random(seed)
    return [
        Record(
            offset,
            START + 1000 * offset,
            0,
            None if rng.random() < 0.05 else b"user-%d" % rng.randrange(60),
            None if rng.random() < 0.1 else rng.randbytes(20),
            (),
        )
        for offset in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `logs`: partitions of five segments in two formats, with and without compression."""
    folder = tmp_path_factory.mktemp("shuffle")
    for number, (target, codec) in enumerate(
        [(Format.V2, Codec.NONE), (Format.V2, Codec.LZ4), (Format.V1, Codec.GZIP)]
    ):
        parts = [users(200, first, first + number) for first in range(0, 1000, 200)]
        write_partition(folder / "logs", f"users-{number}", *parts, target=target, codec=codec, per_batch=7)
    return folder


def test_the_result_is_the_cleaners(archive: Path) -> None:
    plain = compacted(archive, archive / "logs", "plain", shuffled=False)
    shuffled = compacted(archive, archive / "logs", "shuffled", shuffled=True)
    assert (plain.status, shuffled.status) == (0, 0)
    assert contents(archive / "shuffled") == contents(archive / "plain")
    for one, other in zip(plain.units, shuffled.units, strict=True):
        (first,), (second,) = one["stages"], other["stages"]
        assert (first["shuffled"], second["shuffled"]) == (False, True)
        assert (first["keys"], first["cleanTo"], first["dropped"]) == (
            second["keys"],
            second["cleanTo"],
            second["dropped"],
        )
    assert not (archive / "shuffled/.pipeline").exists()


@pytest.mark.parametrize(
    ("version", "topics"),
    [("0.10.2.2", ("basic-gzip",)), ("2.8.2", ("txn-none", "txn-zstd")), ("3.9.1", ("txn-none", "txn-snappy"))],
)
def test_transactions_and_old_formats_are_as_the_cleaner_leaves_them(
    tmp_path: Path, version: str, topics: tuple[str, ...]
) -> None:
    lay_out_closed(tmp_path / "logs", [golden_data.log_case(f"{version}/{topic}") for topic in topics])
    split = '[[stage]]\ndo = "split"\nsegment-bytes = 700\n'
    for sink, shuffled in (("plain", False), ("shuffled", True)):
        done = compacted(tmp_path, tmp_path / "logs", sink, shuffled=shuffled, before=split)
        assert done.status == 0, [unit["error"] for unit in done.units]
    assert contents(tmp_path / "shuffled") == contents(tmp_path / "plain")
    assert any(unit["stages"][1]["rounds"] for unit in done.units)


@pytest.mark.parametrize(("dirty", "start"), [(400, 0), (450, 0), (0, 130), (600, 130)])
def test_what_was_clean_before_and_what_is_trimmed_count_as_they_do_for_the_cleaner(
    tmp_path: Path, dirty: int, start: int
) -> None:
    parts = [users(200, first, first) for first in range(0, 1000, 200)]
    write_partition(tmp_path / "logs", "users-0", *parts)
    (tmp_path / "logs/cleaner-offset-checkpoint").write_text(f"0\n1\nusers 0 {dirty}\n" if dirty else "0\n0\n")
    (tmp_path / "logs/log-start-offset-checkpoint").write_text(f"0\n1\nusers 0 {start}\n" if start else "0\n0\n")
    (tmp_path / "logs/.kafka_cleanshutdown").touch()
    for sink, shuffled in (("plain", False), ("shuffled", True)):
        done = compacted(tmp_path, tmp_path / "logs", sink, shuffled=shuffled)
        assert done.status == 0, done.units[0]["error"]
    assert contents(tmp_path / "shuffled") == contents(tmp_path / "plain")
    assert done.units[0]["stages"][0]["dropped"][0]["superseded"] > 0


@pytest.mark.slow
@pytest.mark.spark
def test_through_sparks_own_shuffle_the_result_is_the_cleaners(spark: "SparkSession", archive: Path) -> None:
    compacted(archive, archive / "logs", "plain-spark", shuffled=False)
    done = compacted(archive, archive / "logs", "spark", shuffled=True, context=spark.sparkContext)
    assert done.status == 0
    assert contents(archive / "spark") == contents(archive / "plain-spark")


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(("policy", "outcome"), [("stop", "damaged"), ("salvage", "done")])
def test_damage_that_the_shuffle_finds_is_as_any_other(
    archive: Path, tmp_path: Path, policy: str, outcome: str, indexed: bool
) -> None:
    parts = [users(200, first, first) for first in range(0, 1000, 200)]
    folder = write_partition(tmp_path / "logs", "users-0", *parts)
    if indexed:
        assert command("rebuild-index", str(folder), "--write").exit_code == 0
    path = folder / f"{400:020}.log"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    policy = f'on-damage = "{policy}"\n'
    done = compacted(tmp_path, tmp_path / "logs", "shuffled", shuffled=True, before=policy)
    assert [unit["outcome"] for unit in done.units] == [outcome]
    assert f"{400:020}.log" in (done.units[0]["error"] or done.units[0]["salvagedFor"])
    plain = compacted(tmp_path, tmp_path / "logs", "plain", shuffled=False, before=policy)
    assert [unit["outcome"] for unit in plain.units] == [outcome], "without the shuffle it is the same"
    assert contents(tmp_path / "shuffled") == contents(tmp_path / "plain")


def rows(*given: tuple[int, int, int, int]) -> np.ndarray:
    return np.array(list(given), _ROW)


def test_the_last_of_each_key_stays_and_what_is_not_dirty_makes_nothing_go() -> None:
    kept, gone = last_of_each(rows((1, 1, 7, 10), (1, 2, 7, 11), (1, 1, 7, 12), (2, 1, 7, 3), (2, 1, 7, 5)), 4)
    assert sorted(kept["offset"].tolist()) == [5, 11, 12]
    assert sorted(gone.tolist()) == [3, 10]
    kept, gone = last_of_each(rows((1, 1, 7, 1), (1, 1, 7, 2)), 4)
    assert (len(kept), len(gone)) == (2, 0)
    kept, gone = last_of_each(rows(), 0)
    assert (len(kept), len(gone)) == (0, 0)


def test_two_keys_of_one_hash_are_noticed() -> None:
    with pytest.raises(HashCollisionError):
        last_of_each(rows((1, 1, 7, 10), (1, 1, 8, 12)), 0)


def test_keys_that_share_half_of_their_hash_are_two_in_whatever_order_they_come() -> None:
    given = [(1, 1 + offset % 2, 7 + offset % 2, offset) for offset in range(40)]
    for seed in range(5):
        random.Random(seed).shuffle(given)
        kept, gone = last_of_each(rows(*given), 0)
        assert sorted(kept["offset"].tolist()) == [38, 39]
        assert sorted(gone.tolist()) == list(range(38))


def test_marks_say_the_same_of_a_range_and_of_single_offsets() -> None:
    loaded = []

    def load(base: int) -> tuple[np.ndarray, np.ndarray]:
        loaded.append(base)
        return np.array([base + 1, base + 5]), np.array([base + 2])

    marks = OffsetMarks(100, 300, 9, [100, 200], load)
    assert (marks.begin, marks.latest, marks.marked_end, marks.keys) == (100, 299, 300, 9)
    assert np.flatnonzero(marks.superseded(100, 110)).tolist() == [1, 5]
    assert np.flatnonzero(marks.odd(202, 210)).tolist() == [0]
    assert marks.superseded_of(np.array([200, 201, 205, 206])).tolist() == [False, True, True, False]
    assert loaded == [100, 200], "a segment's are read once"
