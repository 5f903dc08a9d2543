"""`magicbyte inventory`: its numbers equal sums over Kafka's own list of batches, and over logs that others wrote."""

import itertools
import json
import random
import re
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

import golden_data
from cli.command import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import headers as log_headers
from magicbyte.engine.log.files import heads
from magicbyte.engine.log.files.checkpoints import HIGH_WATERMARK, format_offset_checkpoint
from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.message import build_message

CASES = golden_data.log_cases()
PLAIN = golden_data.log_case("3.9.1/basic-none")

Json = dict[str, Any]


def inventory(*arguments: str | Path, status: int = 0) -> Json:
    result = run("inventory", "--format", "json", *arguments)
    assert result.exit_code == status, result.stderr
    found: Json = json.loads(result.stdout)
    return found


def only_partition(*arguments: str | Path, status: int = 0) -> Json:
    (partition,) = inventory(*arguments, status=status)["partitions"]
    found: Json = partition
    return found


def records_of(row: Json, *, deep: bool) -> int | None:
    """How many records an entry is known to have: a wrapper's only by decompressing, a control batch none."""
    if row.get("isControl"):
        return 0
    if not deep and row["magic"] < 2 and row["codec"] != "none":
        return None
    count: int = row["recordCount"] if deep or row["magic"] < 2 else row["count"]
    return count


def add(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


def formats_of(rows: list[Json], *, deep: bool) -> list[Json]:
    names = sorted({(row["magic"], row["codec"]) for row in rows})
    chosen = {name: [row for row in rows if (row["magic"], row["codec"]) == name] for name in names}
    return [
        {
            "magic": magic,
            "codec": codec,
            "batches": len(chosen[magic, codec]),
            "bytes": sum(row["size"] for row in chosen[magic, codec]),
            "records": add([records_of(row, deep=deep) for row in chosen[magic, codec]]),
        }
        for magic, codec in names
    ]


def holes_of(rows: list[Json]) -> Json:
    gaps = [after["baseOffset"] - before["lastOffset"] - 1 for before, after in itertools.pairwise(rows)]
    return {"count": sum(gap > 0 for gap in gaps), "offsets": sum(gap for gap in gaps if gap > 0)}


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(CASES))
def test_a_shallow_inventory_is_the_sum_over_kafkas_list_of_batches(case: golden_data.Case) -> None:
    damaged = "tear.crashed" in case.id or "zeros.crashed" in case.id or index_is_damaged(case)
    found = only_partition(case.partition_dir(named=True), status=int(damaged))
    rows = case.batches()
    wrappers = [row["magic"] < 2 and row["codec"] != "none" for row in rows]
    markers = Counter(row["marker"]["endTxnMarker"] for row in rows if "marker" in row)
    assert (found["topic"], found["partition"]) == (case.topic, case.partition)
    assert found["bytes"] == sum(map(len, case.segments().values()))
    assert found["segments"] == len(case.segments())
    assert found["batches"] == len(rows)
    assert found["formats"] == formats_of(rows, deep=False)
    assert found["records"] == add([records_of(row, deep=False) for row in rows])
    if rows:
        assert found["firstOffset"] == (None if wrappers[0] else rows[0]["baseOffset"])
        assert found["lastOffset"] == rows[-1]["lastOffset"]
    assert found["holes"] == (None if any(wrappers[1:]) else holes_of(rows))
    assert found["controlBatches"] == sum(row.get("isControl", False) for row in rows)
    assert (found["transactions"]["committed"], found["transactions"]["aborted"]) == (
        markers["COMMIT"],
        markers["ABORT"],
    )
    times = [row["maxTimestamp"] for row in rows if not row.get("isControl") and row.get("count", 1)]
    times = [time for time in times if time != -1]
    assert found["maxTimestamp"] == max(times, default=None)
    assert found["minBatchTimestamp"] == min(times, default=None)
    lz4 = Counter("broken" if row["magic"] == 0 else "correct" for row in rows if row["codec"] == "lz4")
    assert found["lz4Headers"] == {"correct": lz4["correct"], "broken": lz4["broken"], "other": 0}
    assert found["deep"] is None


def index_is_damaged(case: golden_data.Case) -> bool:
    """The cut log leaves index entries that point behind its end."""
    return "crash-tear.crashed" in case.id


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(case for case in CASES if case.has_records))
def test_a_deep_inventory_counts_what_a_consumer_saw(case: golden_data.Case) -> None:
    found = only_partition(case.partition_dir(named=True), "--deep")
    rows, records = case.batches(), case.records()
    assert found["formats"] == formats_of(rows, deep=True)
    assert found["holes"] == holes_of(rows)
    assert (found["firstOffset"], found["lastOffset"]) == (
        (rows[0]["baseOffset"], rows[-1]["lastOffset"]) if rows else (None, None)
    )
    if case.topic == "trimmed-none":
        assert found["records"] == sum(row["recordCount"] for row in rows)
        return
    assert found["records"] == len(records)
    assert found["deep"] == {
        "records": len(records),
        "tombstones": sum(record["value"] is None for record in records),
        "withKey": sum(record["key"] is not None for record in records),
        "withoutKey": sum(record["key"] is None for record in records),
        "withHeaders": sum(bool(record["headers"]) for record in records),
        "headers": sum(len(record["headers"]) for record in records),
    }
    times = [record["timestamp"] for record in records if record["timestamp"] not in (None, -1)]
    assert found["maxTimestamp"] == max(times, default=None)
    assert found["minTimestamp"] == min(times, default=None)


@pytest.mark.parametrize(
    "case", golden_data.one_of_each_kind(case for case in CASES if case.has_records and "trimmed" not in case.id)
)
def test_the_smallest_timestamp_is_shown_without_decoding_only_where_it_is_right(case: golden_data.Case) -> None:
    found = only_partition(case.partition_dir(named=True))
    times = [record["timestamp"] for record in case.records() if record["timestamp"] not in (None, -1)]
    assert found["minTimestamp"] in (None, min(times, default=None))
    if times:
        assert found["minBatchTimestamp"] >= min(times)


@pytest.mark.parametrize("case", [case for case in CASES if case.has_committed], ids=str)
def test_open_transactions_are_those_of_the_brokers_last_snapshot(case: golden_data.Case) -> None:
    found = only_partition(case.partition_dir(named=True))
    snapshots = {name: lines for name, lines in case.indexes().items() if name.endswith(".snapshot")}
    said = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) .*?currentTxnFirstOffset: OptionalLong\[(\d+)\] lastTimestamp: (\d+)",
        "\n".join(snapshots[max(snapshots)]),
    )
    keys = ("producerId", "producerEpoch", "firstOffset", "lastTimestamp")
    assert {tuple(str(each[key]) for key in keys) for each in found["openTransactions"]} == set(said)
    assert found["transactions"]["open"] == len(said)


# ---- logs that are not bundled


def write_log(folder: Path, *segments: bytes, base: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for at, content in enumerate(segments):
        (folder / f"{base + at:020}.log").write_bytes(content)
    return folder


def batch(
    offset: int, count: int, codec: int, rng: random.Random, *, transactional: bool = False, pid: int = -1
) -> bytes:
    """A v2 batch by aiokafka."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=pid,
        producer_epoch=0 if pid >= 0 else -1,
        base_sequence=0 if pid >= 0 else -1,
        batch_size=1 << 20,
    )
    for at in range(count):
        key = None if at % 5 == 0 else b"key-%d" % at
        value = None if at % 7 == 0 else rng.randbytes(20).hex().encode()
        assert builder.append(at, 1_700_000_000_000 + offset + at, key, value, [("h", b"1")] * (at % 3 == 0))
    content = bytearray(builder.build())
    struct.pack_into(">q", content, 0, offset)
    return bytes(content)


def legacy(offset: int, count: int, magic: int, codec: int) -> bytes:
    """Messages or a wrapper by aiokafka, with the offsets that a broker would write."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for at in range(count):
        inner = at if codec and magic == 1 else offset + at
        assert builder.append(inner, timestamp=1_700_000_000_000 + at, key=b"k", value=b"value %d" % at)
    content = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", content, 0, offset + count - 1)
    return bytes(content)


@pytest.mark.parametrize("codec", range(5))
def test_a_log_written_by_another_library_is_counted_right(codec: int, tmp_path: Path) -> None:
    rng = random.Random(codec)
    counts = [rng.randint(1, 40) for _ in range(30)]
    offset, content, expected_holes = 100, [], 0
    for at, count in enumerate(counts):
        content.append(batch(offset, count, codec, rng))
        hole = 3 if at % 10 == 4 else 0
        expected_holes += hole
        offset += count + hole
    folder = write_log(tmp_path / "made-5", b"".join(content), base=100)
    found = only_partition(folder, "--deep")
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    size = sum(map(len, content))
    total = sum(counts)
    assert found["formats"] == [{"magic": 2, "codec": codecs[codec], "batches": 30, "bytes": size, "records": total}]
    assert found["holes"] == {"count": 3, "offsets": expected_holes}
    assert (found["firstOffset"], found["lastOffset"]) == (100, offset - 1)
    assert found["deep"]["withoutKey"] == sum(-(-count // 5) for count in counts)
    assert found["deep"]["tombstones"] == sum(-(-count // 7) for count in counts)
    assert found["deep"]["headers"] == sum(-(-count // 3) for count in counts)
    shallow = only_partition(folder)
    assert shallow["records"] == total
    assert shallow["maxTimestamp"] == found["maxTimestamp"] == 1_700_000_000_000 + offset - 1


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_wrappers_tell_their_records_only_when_they_are_opened(magic: int, codec: int, tmp_path: Path) -> None:
    content = legacy(0, 10, magic, codec) + legacy(15, 20, magic, codec)
    folder = write_log(tmp_path / "old-0", content)
    shallow, deep = only_partition(folder), only_partition(folder, "--deep")
    assert shallow["records"] == (None if codec else 30)
    assert shallow["holes"] == (None if codec else {"count": 1, "offsets": 5})
    assert (deep["records"], deep["holes"]) == (30, {"count": 1, "offsets": 5})
    assert (deep["firstOffset"], deep["lastOffset"], shallow["lastOffset"]) == (0, 34, 34)
    frames = sum(shallow["lz4Headers"].values())
    assert frames == (2 if codec == 3 else 0)


def test_transactions_are_followed_across_blocks_and_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_headers, "ROWS_PER_BLOCK", 7)
    rng = random.Random(5)
    offset, segments, open_ones, times, ends = 0, [], {}, {}, Counter()
    for _ in range(4):
        content = b""
        for _ in range(40):
            pid = rng.randrange(5)
            if rng.random() < 0.6:
                content += batch(offset, 2, 0, rng, transactional=True, pid=pid)
                open_ones.setdefault(pid, offset)
                times[pid] = 1_700_000_000_000 + offset + 1
                offset += 2
            else:
                kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
                content += build_marker(
                    kind, base_offset=offset, timestamp=5, producer_id=pid, producer_epoch=0, coordinator_epoch=1
                )
                open_ones.pop(pid, None)
                ends[kind] += 1
                offset += 1
        segments.append(content)
    folder = tmp_path / "txn-0"
    folder.mkdir()
    at = 0
    for content in segments:
        (folder / f"{at:020}.log").write_bytes(content)
        at = offset_behind(content)
    found = only_partition(folder)
    assert found["transactions"] == {
        "committed": ends[ControlType.COMMIT],
        "aborted": ends[ControlType.ABORT],
        "open": len(open_ones),
    }
    assert {each["producerId"]: each["firstOffset"] for each in found["openTransactions"]} == open_ones
    assert [each["producerId"] for each in found["openTransactions"]] == sorted(open_ones)
    for each in found["openTransactions"]:
        assert (each["producerEpoch"], each["lastTimestamp"]) == (0, times[each["producerId"]])
    (text,) = [line for line in run("inventory", folder).stdout.splitlines() if "open transaction of producer" in line][
        :1
    ]
    pid = min(open_ones)
    assert (
        f"open transaction of producer {pid}, epoch 0, from offset {open_ones[pid]}; last written 2023-11-14T" in text
    )
    assert found["holes"] == {"count": 0, "offsets": 0}
    assert found["controlBatches"] == ends.total()


def offset_behind(content: bytes) -> int:
    at = last = 0
    while at < len(content):
        offset, size = struct.unpack_from(">qi", content, at)
        last = offset + struct.unpack_from(">i", content, at + 23)[0] + 1
        at += 12 + size
    return last


def test_enriched_logs_are_read_in_their_dialect(tmp_path: Path) -> None:
    inner = b"".join(build_enriched_message(at, b"k", b"v") for at in range(4))
    wrapper = build_enriched_wrapper(
        Codec.LZ4,
        inner,
        num_messages=4,
        non_keyed=False,
        start_offset=1,
        seconds=1_700_000_100,
        timestamp_ms=1_700_000_100_500,
    )
    plain = build_enriched_message(0, None, b"v", seconds=1_700_000_050)
    folder = write_log(tmp_path / "rich-0", plain + wrapper)
    found = only_partition(folder, "--dialect", "enriched")
    assert found["dialect"] == "enriched"
    assert [(each["magic"], each["codec"], each["records"]) for each in found["formats"]] == [
        (1, "lz4", None),
        (1, "none", 1),
    ]
    assert found["maxTimestamp"] == 1_700_000_100_500
    assert found["minBatchTimestamp"] == 1_700_000_050_000
    assert found["lz4Headers"] == {"correct": 1, "broken": 0, "other": 0}
    assert only_partition(folder, "--dialect", "enriched", "--deep")["records"] == 5


@pytest.mark.parametrize("rows", [1, 100, 700])
@pytest.mark.parametrize("size", [10, 5000])
def test_every_way_of_reading_headers_finds_the_same(
    rows: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_log(tmp_path / "a-0", b"".join(build_message(1, at, at, None, bytes(size)) for at in range(rows)))
    expected = only_partition(folder)
    assert (expected["records"], expected["lastOffset"]) == (rows, rows - 1)
    names = (log_headers, "MANY_ROWS", 0), (log_headers, "WINDOW_BYTES", 100), (log_headers, "ROWS_PER_BLOCK", 3)
    for module, name, value in (*names, (heads, "LARGE_ENTRY", 0)):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert only_partition(folder) == expected


# ---- the files beside, bad input, text


def test_leftovers_orphans_and_damaged_files_beside_the_log_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    shutil.copytree(PLAIN.partition_dir(), folder)
    (folder / "00000000000000000007.log.deleted").write_bytes(b"")
    (folder / "00000000000000000009.index").write_bytes(b"")
    (folder / "00000000000000000000.index").write_bytes(b"123")
    (folder / "leader-epoch-checkpoint").write_bytes(b"what?\n")
    found = only_partition(folder, status=1)
    assert found["leftovers"] == ["00000000000000000007.log.deleted"]
    assert found["orphans"] == ["00000000000000000009.index"]
    damaged = [Path(each["path"]).name for each in found["damagedIndexes"]]
    assert damaged == ["00000000000000000000.index", "leader-epoch-checkpoint"]
    assert found["records"] == 240
    text = run("inventory", folder)
    assert text.exit_code == 1
    assert "left behind by a broker: 00000000000000000007.log.deleted" in text.stdout
    assert text.stderr.count("magicbyte: damage: ") == 2


def test_damage_ends_neither_the_report_nor_the_count_of_what_is_sound(tmp_path: Path) -> None:
    good = write_log(tmp_path / "logs" / "good-0", legacy(0, 10, 1, 0))
    write_log(tmp_path / "logs" / "bad-0", legacy(0, 10, 1, 0) + b"\xff" * 50, legacy(20, 10, 1, 0))
    found = inventory(good.parent, status=1)
    assert [each["records"] for each in found["partitions"]] == [20, 10]
    (damage,) = found["partitions"][0]["damage"]
    assert damage["position"] == len(legacy(0, 10, 1, 0))
    assert found["total"]["damage"] == 1


def test_a_flipped_byte_is_found_by_deep_only(tmp_path: Path) -> None:
    content = bytearray(batch(0, 20, 0, random.Random(1)) * 1)
    content[-1] ^= 1
    folder = write_log(tmp_path / "a-0", bytes(content))
    assert only_partition(folder)["damage"] == []
    (damage,) = only_partition(folder, "--deep", status=1)["damage"]
    assert (damage["what"], damage["position"], damage["offsets"]) == ("crc", 0, [0, 19])


def test_the_json_has_the_same_keys_for_every_log(tmp_path: Path) -> None:
    empty = inventory(write_log(tmp_path / "empty-0", b""))
    keys = {
        tuple(
            inventory(case.partition_dir(), status=int(index_is_damaged(case) or "zeros.crashed" in case.id))[
                "partitions"
            ][0]
        )
        for case in CASES[::40]
    }
    assert keys == {tuple(empty["partitions"][0])}
    assert (empty["total"]["records"], empty["total"]["batches"], empty["total"]["maxTimestamp"]) == (0, 0, None)


def test_totals_are_the_sums(tmp_path: Path) -> None:
    for name in ("basic-gzip", "basic-gzip.p1", "txn-none", "basic-lz4"):
        case = golden_data.log_case(f"3.9.1/{name}")
        shutil.copytree(case.partition_dir(), tmp_path / "data" / f"{case.topic}-{case.partition}")
    found = inventory(tmp_path / "data")
    parts, total = found["partitions"], found["total"]
    for key in ("segments", "bytes", "batches", "records", "controlBatches"):
        assert total[key] == sum(part[key] for part in parts)
    assert total["partitions"] == len(parts) == 4
    assert total["maxTimestamp"] == max(part["maxTimestamp"] for part in parts)
    assert total["transactions"]["aborted"] == sum(part["transactions"]["aborted"] for part in parts)
    assert sum(each["bytes"] for each in total["formats"]) == total["bytes"]
    assert len(inventory(tmp_path / "data", "--topic", "basic-gzip")["partitions"]) == 2


def test_the_table_fits_100_columns_and_names_what_is_unknown() -> None:
    old = golden_data.log_case("0.10.2.2/mixed-snappy-0102-090")
    result = run(
        "inventory",
        old.partition_dir(named=True),
        golden_data.log_case("3.9.1/txn-open-none").partition_dir(named=True),
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("mixed-snappy-0102-090-0") and " ? " in line for line in lines)
    assert "    transactions: 6 committed, 5 aborted, 1 open" in lines
    assert "\x1b" not in result.stdout


def test_threads_make_no_difference_to_what_is_found() -> None:
    folder = golden_data.log_case("2.8.2/stored-v1-gzip").partition_dir()
    assert inventory(folder, "--deep", "--threads", "3") == inventory(folder, "--deep", "--threads", "1")


def test_a_log_is_never_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of batches of 100 kB only the heads are read."""
    content = b"".join(build_message(1, at, at, None, bytes(100_000)) for at in range(20))
    folder = write_log(tmp_path / "a-0", content)
    read = []
    plain_read = LocalFile.read_at

    def counting(self: LocalFile, position: int, length: int) -> bytes:
        found = plain_read(self, position, length)
        read.append(len(found))
        return found

    monkeypatch.setattr(LocalFile, "read_at", counting)
    assert only_partition(folder)["records"] == 20
    assert sum(read) < 300_000


def test_every_member_of_the_json_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/commands/inventory.md").read_text()
    found = inventory(PLAIN.partition_dir(), "--deep")
    for part in (found["partitions"][0], found["total"], found["total"]["deep"], found["total"]["lz4Headers"]):
        assert all(f"`{key}`" in page for key in part)


def test_logs_in_a_remote_store_are_read_as_local_ones_are() -> None:
    """An address of fsspec; its store in memory stands for S3 and its like."""
    files = fsspec.filesystem("memory")
    for name, content in PLAIN.partition_files().items():
        files.pipe(f"/remote/{PLAIN.topic}-{PLAIN.partition}/{name}", content)
    local, remote = only_partition(PLAIN.partition_dir(named=True)), only_partition("memory://remote")
    assert {**remote, "path": local["path"]} == local
    local_lines, remote_lines = (
        run("cat", path, "--format", "jsonl").stdout for path in (PLAIN.partition_dir(named=True), "memory://remote")
    )
    assert remote_lines == local_lines != ""


def test_what_checkpoints_and_other_files_prove_to_be_missing_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "data" / f"{PLAIN.topic}-{PLAIN.partition}"
    shutil.copytree(PLAIN.partition_dir(), folder)
    ends = {TopicPartition(PLAIN.topic, PLAIN.partition): 10**6, TopicPartition("gone", 0): 7}
    (tmp_path / "data" / HIGH_WATERMARK).write_bytes(format_offset_checkpoint(ends))
    found = inventory(tmp_path / "data", status=1)
    (gone,), (end,) = found["missing"], found["partitions"][0]["missing"]
    assert (gone["topic"], gone["count"], gone["certainty"]) == ("gone", 7, "records")
    assert (end["what"], end["offsets"][1]) == ("end of the log", 10**6 - 1)
    assert found["total"]["missing"] == 2
    shown = run("inventory", tmp_path / "data")
    assert shown.exit_code == 1
    assert shown.stdout.count("missing: ") == 2
