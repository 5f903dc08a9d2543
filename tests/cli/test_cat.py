"""`magicbyte cat`: its contract on every golden log, every format read back, every filter, and what bad input gets."""

import base64
import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import golden_data
from cli.command import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.units import parse_time
from magicbyte.engine.printable import time_text
from magicbyte.engine.records import columnar
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.message import build_message, build_wrapper

CASES = golden_data.log_cases()
PLAIN = golden_data.log_case("3.9.1/basic-none")
LZ4 = golden_data.log_case("3.9.1/basic-lz4")
NO_TIMES = "null", '"timestamp": null, "timestampType": null', '"timestamp": -1, "timestampType": "NoTimestampType"'

Json = dict[str, Any]


def folder_of(case: golden_data.Case) -> Path:
    """The partition folder; of a trimmed log with the checkpoint beside it that says where it starts."""
    if case.topic != "trimmed-none":
        return case.partition_dir(named=True)
    path = case.partition_dir(golden_data.scratch() / "beside a checkpoint", named=True)
    checkpoint = f"0\n1\n{case.topic} {case.partition} 77\n"
    (path.parent / "log-start-offset-checkpoint").write_text(checkpoint)
    return path


def named(case: golden_data.Case, lines: list[str]) -> list[str]:
    """The golden lines behind topic and partition."""
    head = f'{{"topic": "{case.topic}", "partition": {case.partition}, '
    return [head + line[1:] for line in lines]


def expected_lines(case: golden_data.Case, *, committed: bool = False) -> list[str]:
    """The golden lines. Consumers before 0.10 know no timestamps: there we say that v0 has none."""
    lines = named(case, case.record_lines(committed=committed))
    if case.version in ("0.8.2.2", "0.9.0.1"):
        return [line.replace(*NO_TIMES[1:]) for line in lines]
    return lines


def batch_lines(case: golden_data.Case) -> list[str]:
    return named(case, case.read("batches.jsonl").decode().splitlines())


def jsonl(*arguments: str | Path) -> list[Json]:
    """Return the records without the name of their partition."""
    result = run("cat", "--format", "jsonl", "--values", "base64", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [{name: each[name] for name in each if name not in ("topic", "partition")} for each in found]


def cells(record: Json) -> list[bytes | None]:
    return [None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value")]


# ---- the contract


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(case for case in CASES if case.has_records))
def test_jsonl_is_line_by_line_what_a_consumer_saw(case: golden_data.Case) -> None:
    result = run("cat", folder_of(case), "--format", "jsonl", "--values", "base64")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == expected_lines(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.has_committed], ids=str)
def test_jsonl_with_read_committed_is_what_such_a_consumer_saw(case: golden_data.Case) -> None:
    options = ("--format", "jsonl", "--values", "base64", "--isolation", "read_committed")
    result = run("cat", folder_of(case), *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == expected_lines(case, committed=True)


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(CASES))
def test_batches_are_line_by_line_those_of_kafkas_dump_tool(case: golden_data.Case) -> None:
    result = run("cat", folder_of(case), "--batches", "--on-damage", "skip")
    assert result.stdout.splitlines() == batch_lines(case)
    damaged = case.state == "crashed" and "kill" not in case.id
    assert result.exit_code == damaged
    assert bool(result.stderr) == damaged


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("case", [case for case in CASES if case.state == "crashed"], ids=str)
def test_a_damaged_log_gives_every_record_before_the_damage(case: golden_data.Case, threads: str) -> None:
    result = run("cat", folder_of(case), "--format", "jsonl", "--threads", threads)
    sound = [row for row in case.batches() if row["isvalid"]]
    offsets = [at for row in sound for at in row.get("offsets", range(row["baseOffset"], row["lastOffset"] + 1))]
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == offsets
    if "kill" in case.id:
        assert (result.exit_code, result.stderr) == (0, "")
    else:
        assert result.exit_code == 1
        assert re.match(
            r"magicbyte: (cut short|damage): .+\.log, position \d+.*: expected .*, found .*\n", result.stderr
        )
        assert result.stderr.startswith("magicbyte: damage") == ("flip" in case.id)  # the others are cut short


# ---- many partitions


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with five partitions, two of one topic, and one that is being deleted."""
    target = tmp_path_factory.mktemp("logs") / "data"
    for name in ("basic-gzip", "basic-gzip.p1", "basic-none", "txn-none", "trimmed-none"):
        case = golden_data.log_case(f"3.9.1/{name}")
        shutil.copytree(case.partition_dir(), target / f"{case.topic}-{case.partition}")
    gone = "a" * 32
    shutil.copytree(PLAIN.partition_dir(), target / f"basic-none-0.{gone}-delete")
    (target / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed-none 0 77\n")
    return target


def test_each_line_begins_with_topic_and_partition(log_directory: Path) -> None:
    result = run("cat", log_directory, "--format", "jsonl", "--values", "base64")
    assert result.exit_code == 0
    assert "-delete" in result.stderr
    assert result.stderr.count("\n") == 1
    found: dict[tuple[str, int], list[str]] = {}
    for line in result.stdout.splitlines():
        head = re.match(r'\{"topic": "([^"]+)", "partition": (\d+), ', line)
        assert head is not None
        found.setdefault((head[1], int(head[2])), []).append(line)
    names = ("basic-gzip", "basic-gzip.p1", "basic-none", "txn-none", "trimmed-none")
    cases = [golden_data.log_case(f"3.9.1/{name}") for name in names]
    assert found == {(case.topic, case.partition): expected_lines(case) for case in cases}


def test_topics_and_partitions_are_chosen_by_name(log_directory: Path) -> None:
    only = jsonl(log_directory, "--topic", "basic-gzip", "--partition", "1")
    assert only == golden_data.log_case("3.9.1/basic-gzip.p1").records()
    two = run("cat", log_directory, "--topic", "basic-none", "--topic", "txn-none", "--batches").stdout.splitlines()
    assert {json.loads(line)["topic"] for line in two} == {"basic-none", "txn-none"}
    assert list(json.loads(two[0]))[:3] == ["topic", "partition", "segment"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic", "basic"], "no topic 'basic' here: expected one of basic-gzip, basic-none, trimmed-none, txn-none"),
        (
            ["--topic", "basic-gzip", "--partition", "7"],
            "no partition 7 here: expected one of basic-gzip-0, basic-gzip-1",
        ),
    ],
)
def test_an_unknown_topic_or_partition_lists_the_existing_ones(
    log_directory: Path, options: list[str], said: str
) -> None:
    result = run("cat", log_directory, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_folder_of_any_name_is_named_by_as(tmp_path: Path) -> None:
    nameless = shutil.copytree(PLAIN.partition_dir(), tmp_path / "some folder")
    named = run("cat", nameless, "--as", "orders-3", "--topic", "orders", "-n", "1", "--format", "jsonl")
    assert json.loads(named.stdout).items() >= {"topic": "orders", "partition": 3, "offset": 0}.items()
    bare = run("cat", nameless, "-n", "1", "--format", "jsonl").stdout
    assert json.loads(bare) == json.loads(named.stdout) | {"topic": None, "partition": None}
    assert run("cat", nameless, "-n", "1", "--format", "csv").stdout.splitlines()[1].startswith(",,0,")
    unknown = run("cat", nameless, "--topic", "orders")
    assert unknown.exit_code == 2
    assert "--as TOPIC-N" in unknown.stderr


# ---- filters


@pytest.mark.parametrize(
    "case", [PLAIN, golden_data.log_case("0.10.2.2/basic-gzip"), golden_data.log_case("0.9.0.1/basic-snappy")], ids=str
)
def test_from_is_inclusive_and_to_is_not(case: golden_data.Case) -> None:
    options = ("--format", "jsonl", "--values", "base64", "--from", "37", "--to", "91")
    lines = run("cat", folder_of(case), *options).stdout.splitlines()
    assert lines == expected_lines(case)[37:91]
    assert run("cat", folder_of(case), "--from", "37", "--to", "37").stdout == ""


def test_from_an_offset_below_the_log_start_begins_at_the_log_start(log_directory: Path) -> None:
    for path in (log_directory / "trimmed-none-0", log_directory):
        found = jsonl(path, "--topic", "trimmed-none", "--from", "3", "--to", "80") if path != log_directory else []
        assert [record["offset"] for record in found] == ([77, 78, 79] if found else [])
    both = run("cat", log_directory, "--topic", "trimmed-none", "--to", "80", "--format", "jsonl")
    assert [json.loads(line)["offset"] for line in both.stdout.splitlines()] == [77, 78, 79]


@pytest.mark.parametrize("case", [PLAIN, LZ4, golden_data.log_case("0.10.2.2/basic-gzip")], ids=str)
def test_since_is_inclusive_and_until_is_not(case: golden_data.Case) -> None:
    records = case.records()
    times = sorted(record["timestamp"] for record in records)
    since, until = times[50], times[120]
    expected = [record for record in records if since <= record["timestamp"] < until]
    assert jsonl(folder_of(case), "--since", str(since), "--until", str(until)) == expected
    assert jsonl(folder_of(case), "--since", time_text(since), "--until", time_text(until)) == expected


def test_a_key_is_given_as_text_base64_or_hex() -> None:
    records = PLAIN.records()
    folder = folder_of(PLAIN)
    for key in {cells(record)[0] for record in records} - {None}:
        assert key is not None
        expected = [record for record in records if cells(record)[0] == key]
        assert jsonl(folder, "--key", "hex:" + key.hex()) == expected
        if expected[0]["offset"] < 20:
            assert jsonl(folder, "--key", "base64:" + base64.b64encode(key).decode()) == expected
    assert jsonl(folder, "--key", "ключ") == [record for record in records if cells(record)[0] == "ключ".encode()]
    assert jsonl(folder, "--key", "") == [record for record in records if cells(record)[0] == b""]
    assert jsonl(folder, "--key", "no such key") == []


@pytest.mark.parametrize("count", [0, 1, 100, 10_000])
def test_count_ends_after_so_many_records_of_all_partitions(log_directory: Path, count: int) -> None:
    everything = run("cat", log_directory, "--format", "jsonl").stdout.splitlines()
    assert run("cat", log_directory, "--format", "jsonl", "-n", str(count)).stdout.splitlines() == everything[:count]


def test_count_and_offsets_hold_for_batches_too() -> None:
    lines = batch_lines(PLAIN)
    assert run("cat", folder_of(PLAIN), "--batches", "-n", "3").stdout.splitlines() == lines[:3]
    expected = [line for line in lines if json.loads(line)["lastOffset"] >= 50 and json.loads(line)["baseOffset"] < 60]
    assert run("cat", folder_of(PLAIN), "--batches", "--from", "50", "--to", "60").stdout.splitlines() == expected


# ---- formats


def test_csv_reads_back_with_null_apart_from_empty(log_directory: Path) -> None:
    text = run("cat", log_directory, "--topic", "basic-none", "--format", "csv", "--values", "base64").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    records = PLAIN.records()
    assert [(int(row["offset"]), int(row["timestamp"]), row["timestampType"]) for row in rows] == [
        (record["offset"], record["timestamp"], record["timestampType"]) for record in records
    ]
    assert [(row["key"], row["value"]) for row in rows] == [(r["key"] or "", r["value"] or "") for r in records]
    assert [json.loads(row["headers"]) for row in rows] == [record["headers"] for record in records]
    raw = [line.split(",")[5:7] for line in text.splitlines()[1:]]
    assert [[None if cell == "" else json.loads(cell) for cell in line] for line in raw] == [
        [record["key"], record["value"]] for record in records
    ]
    many = run("cat", log_directory, "--topic", "basic-gzip", "--format", "csv").stdout.splitlines()
    assert many[0] == text.splitlines()[0] == "topic,partition,offset,timestamp,timestampType,key,value,headers"
    assert many[-1].startswith("basic-gzip,1,")


def test_csv_keeps_line_ends_and_quotes_of_text(tmp_path: Path) -> None:
    folder = one_message_each(tmp_path, [b'say "hi"\r\nplease, now', None, b"", b"null"])
    content = run("cat", folder, "--format", "csv", "--values", "utf8").stdout_bytes.decode()
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    assert [row["value"] for row in rows] == ['say "hi"\r\nplease, now', "", "", "null"]


def one_message_each(folder: Path, values: list[bytes | None]) -> Path:
    """A v1 log with a message for each value."""
    messages = [build_message(1, at, 1_700_000_000_000 + at, b"k", value) for at, value in enumerate(values)]
    folder.mkdir(exist_ok=True)
    (folder / "00000000000000000000.log").write_bytes(b"".join(messages))
    return folder


def test_values_are_utf8_json_base64_or_hex(tmp_path: Path) -> None:
    document = b'{"a": [1.50, null],\n "a": "\\n"}'
    folder = one_message_each(tmp_path, [document, b"text", b"\xff\x00", None, b"", b"NaN", b"12"])

    def values(kind: str) -> list[Any]:
        lines = run("cat", folder, "--format", "jsonl", "--values", kind).stdout.splitlines()
        assert len(lines) == 7
        return [json.loads(line)["value"] for line in lines]

    assert values("hex") == [document.hex(), b"text".hex(), "ff00", None, "", b"NaN".hex(), b"12".hex()]
    assert values("utf8") == [document.decode(), "text", "\\xff\x00", None, "", "NaN", "12"]
    plain = run("cat", folder, "--format", "jsonl").stdout
    assert plain == run("cat", folder, "--format", "jsonl", "--values", "utf8").stdout
    assert values("json") == [{"a": "\n"}, "text", "\\xff\x00", None, "", "NaN", 12]
    raw = run("cat", folder, "--format", "jsonl", "--values", "json", "-n", "1").stdout
    assert '"value": {"a": [1.50, null],  "a": "\\n"}, "headers"' in raw  # as it stands: digits and doubles kept


def as_rows(table: pa.Table) -> list[Json]:
    """Arrow rows in the shape of the golden records."""

    def text(cell: bytes | None) -> str | None:
        return None if cell is None else base64.b64encode(cell).decode()

    labels = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        {
            "offset": row["offset"],
            "timestamp": time // 1000,
            "timestampType": labels[row["timestampType"]],
            "key": text(row["key"]),
            "value": text(row["value"]),
            "headers": [[each["key"], text(each["value"])] for each in row["headers"] or ()],
        }
        for row, time in zip(table.drop(["timestamp"]).to_pylist(), times, strict=True)
    ]


@pytest.mark.parametrize("case", [PLAIN, LZ4, golden_data.log_case("0.10.2.2/mixed-none-090-0102")], ids=str)
def test_arrow_and_parquet_read_back_as_the_same_records(case: golden_data.Case, tmp_path: Path) -> None:
    result = run("cat", folder_of(case), "--format", "arrow")
    assert result.exit_code == 0
    streamed = pa.ipc.open_stream(result.stdout_bytes).read_all()
    assert run("cat", folder_of(case), "--format", "parquet", "-o", tmp_path / "x.parquet").exit_code == 0
    stored = pq.read_table(tmp_path / "x.parquet")
    assert as_rows(streamed) == as_rows(stored) == case.records()
    assert set(streamed["topic"].to_pylist()) == {case.topic}
    assert set(stored["partition"].to_pylist()) == {case.partition}


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_timestamp_beyond_microseconds_is_counted_and_can_be_had_as_stored(tmp_path: Path, form: str) -> None:
    times = [5, 1 << 62, 1_700_000_000_123_456_789]
    records = [Record(offset, time, 0, None, b"v") for offset, time in enumerate(times)]
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0/00000000000000000000.log").write_bytes(encode_records(records, Format.V2, Codec.NONE))
    output = tmp_path / "out"
    result = run("cat", tmp_path / "t-0", "--format", form, "-o", output)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"magicbyte: warning: 2 timestamps are beyond the range of microseconds (t-0, offset 1: {1 << 62} ms): null in "
        "the column timestamp; --timestamp-millis adds a column that has them\n"
    )
    result = run("cat", tmp_path / "t-0", "--format", form, "-o", output, "--timestamp-millis")
    assert "timestampMillis has them" in result.stderr
    table = pa.ipc.open_stream(output).read_all() if form == "arrow" else pq.read_table(output)
    assert table["timestampMillis"].to_pylist() == times
    assert table["timestamp"].is_null().to_pylist() == [False, True, True]
    assert run("cat", tmp_path / "t-0", "--json", "--timestamp-millis").exit_code == 2


def test_parquet_is_written_in_row_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "ROW_GROUP_ROWS", 10)
    folder = golden_data.log_case("3.9.1/txn-none").partition_dir()
    assert run("cat", folder, "--format", "parquet", "-o", tmp_path / "x.parquet").exit_code == 0
    stored = pq.ParquetFile(tmp_path / "x.parquet")
    assert stored.num_row_groups > 1
    assert stored.metadata.num_rows == 140


def test_what_lies_before_damage_can_be_read_from_arrow_and_parquet(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/crash-flip.crashed")
    for form, read in (("arrow", lambda path: pa.ipc.open_stream(path).read_all()), ("parquet", pq.read_table)):
        assert run("cat", case.partition_dir(), "--format", form, "-o", tmp_path / form).exit_code == 1
        assert read(tmp_path / form)["offset"].to_pylist() == list(range(54))


def test_text_is_one_safe_line_per_record(tmp_path: Path) -> None:
    values = [b"plain", "größe €".encode(), b"two\nlines\t\x1b[31m", b"\xff\xfe\x00", None, b"", "\u202e".encode()]
    lines = run("cat", one_message_each(tmp_path, values)).stdout.split("\n")
    shown = ["plain", "größe €", "two\\nlines\\t\\x1b[31m", "\\xff\\xfe\\x00", "<null>", '""', "\\u202e"]
    assert lines == [f"{at}\t2023-11-14T22:13:20.00{at}Z\tk\t{text}" for at, text in enumerate(shown)] + [""]


def test_text_shows_the_partition_first_and_headers_after_the_value(log_directory: Path) -> None:
    lines = run("cat", log_directory, "--topic", "basic-gzip").stdout.splitlines()
    records = golden_data.log_case("3.9.1/basic-gzip").records()
    assert lines[0].startswith("basic-gzip-0\t0\t")
    assert [len(line.split("\t")) == 6 for line in lines[: len(records)]] == [bool(r["headers"]) for r in records]


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(-1, "-"), (0, "1970-01-01T00:00:00.000Z"), (-2, "-2ms"), (10**15, "1000000000000000ms"),
     (253_402_300_799_999, "9999-12-31T23:59:59.999Z")],
)  # fmt: skip
def test_every_timestamp_has_a_text(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [("1970-01-01", 0), ("1970-01-01T00:00:01.5", 1500), ("1970-01-01T01:00:00+01:00", 0), ("1500", 1500), ("-5", -5),
     ("1970-01-02T00:00Z", 86_400_000)],
)  # fmt: skip
def test_times_are_iso_8601_or_milliseconds(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


# ---- bad input


def write_log(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "00000000000000000000.log").write_bytes(content)
    return folder


def test_skip_continues_after_every_damage_and_reports_each(tmp_path: Path) -> None:
    content = bytearray(PLAIN.segments()["00000000000000000000.log"])
    rows = [row for row in PLAIN.batches() if row["segment"] == "00000000000000000000.log"]
    broken = [rows[1], rows[4]]
    for row in broken:
        content[row["position"] + 70] ^= 1
    folder = write_log(tmp_path / "a-0", bytes(content))
    gone = {at for row in broken for at in range(row["baseOffset"], row["lastOffset"] + 1)}
    last = rows[-1]["lastOffset"]
    for threads in ("1", "2"):
        result = run("cat", folder, "--format", "jsonl", "--on-damage", "skip", "--threads", threads)
        offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
        assert offsets == [at for at in range(last + 1) if at not in gone]
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 2
        for row in broken:
            said = f".log, position {row['position']}, offsets {row['baseOffset']}..{row['lastOffset']}: crc"
            assert said in result.stderr
        stopped = run("cat", folder, "--format", "jsonl", "--threads", threads)
        assert len(stopped.stdout.splitlines()) == broken[0]["baseOffset"]
        assert stopped.exit_code == 1
        assert stopped.stderr.count("\n") == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_decompression_bomb_stops_at_the_limit(tmp_path: Path, magic: int) -> None:
    zeros = bytes(3 << 20)
    if magic == 2:
        from magicbyte.engine.codecs import compress

        bomb = build_batch(
            compress(Codec.GZIP, zeros),
            base_offset=0,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=1,
            attributes=1,
        )
    else:
        bomb = build_wrapper(magic, Codec.GZIP, build_message(magic, 0, 5, None, zeros), 0, 5)
    folder = write_log(tmp_path / "bomb-0", bomb)
    for arguments in ([], ["--batches"]):
        result = run("cat", folder, "--max-batch-bytes", "1MiB", *arguments)
        assert result.exit_code == 1
        assert "decompressed size: expected <= 1048576" in result.stderr


def test_batches_above_the_limit_are_damage(tmp_path: Path) -> None:
    rows = PLAIN.batches()
    small = [at for row in rows if row["size"] <= 2048 for at in range(row["baseOffset"], row["lastOffset"] + 1)]
    result = run("cat", folder_of(PLAIN), "--format", "jsonl", "--max-batch-bytes", "2k", "--on-damage", "skip")
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == small
    assert result.exit_code == 1
    assert result.stderr.count("batch size: expected <= 2048, found") == sum(row["size"] > 2048 for row in rows) > 0


@pytest.mark.parametrize(("command", "status"), [("cat", 1), ("inventory", 0), ("verify", 0)])
def test_a_log_in_the_other_dialect_is_warned_about(command: str, status: int) -> None:
    case = golden_data.log_case("0.10.2.2/basic-none")
    result = run(command, case.partition_dir(), "--dialect", "enriched")
    assert result.exit_code == status
    assert "warning" in result.stderr.splitlines()[0]
    assert "is this log in Kafka's own dialect?" in result.stderr.splitlines()[0]


def test_an_empty_log_gives_nothing_and_is_sound(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "a-0", b"")
    for form in ("text", "jsonl", "csv", "arrow"):
        result = run("cat", folder, "--format", form)
        assert (result.exit_code, result.stderr) == (0, "")
    assert run("cat", folder).stdout == ""


@pytest.mark.parametrize("content", [b"\x00" * 300, b"\xff" * 300, b"not a log" * 50, bytes(range(256)) * 4])
def test_junk_is_damage_with_file_and_position(tmp_path: Path, content: bytes) -> None:
    for arguments in ([], ["--batches"], ["--isolation", "read_committed"]):
        result = run("cat", write_log(tmp_path / "a-0", content), *arguments)
        assert result.exit_code == 1
        assert "00000000000000000000.log, position 0" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "xml"], "'xml' is not one of 'text', 'jsonl', 'csv', 'arrow', 'parquet'"),
        (["--format", "parquet"], "expected -o FILE"),
        (["--values", "hex"], "--values is for --format jsonl and csv"),
        (["--since", "yesterday"], "expected a time such as 2024-01-31T12:00:00Z"),
        (["--until", "9" * 30], "expected a time"),
        (["--key", "hex:xyz"], "expected the key's bytes in hex"),
        (["--key", "base64:*"], "expected the key's bytes in base64"),
        (["--from", "-3"], "-3"),
        (["--from", "9", "--to", "3"], "expected an offset from 9"),
        (["--max-batch-bytes", "0"], "expected 1 to 2147483647 bytes"),
        (["--max-batch-bytes", "a lot"], "such as 1048576 or 64MiB"),
        (["--threads", "0"], "0"),
        (["--as", "orders"], "expected TOPIC-N"),
        (["--dialect", "klingon"], "'kafka', 'enriched'"),
        (["--isolation", "none"], "'read_uncommitted', 'read_committed'"),
        (["--on-damage", "panic"], "'stop', 'skip'"),
        (["--batches", "--key", "a"], "--key is for records"),
        (["--batches", "--isolation", "read_committed"], "--isolation is for records"),
        (["--batches", "--format", "csv"], "expected --format jsonl"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_was_expected(options: list[str], said: str) -> None:
    result = run("cat", folder_of(PLAIN), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("size", ["1048576", "1MiB", "1m", "1 MB", "1024k"])
def test_sizes_have_units(size: str) -> None:
    assert run("cat", folder_of(PLAIN), "--max-batch-bytes", size, "-n", "1").exit_code == 0
