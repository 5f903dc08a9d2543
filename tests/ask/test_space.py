"""What fills a log: sums over Kafka's own list of batches, over what a consumer saw, and over the files of a folder."""

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import golden_data
from magicbyte.ask.space import AGES, BATCH_SIZES, Space, SpaceOptions
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.directory import discover

NOW_MS = 1_800_000_000_000
HEADER_BYTES = (26, 34, 61)  # by magic

CASES = [case for case in golden_data.log_cases() if case.state == "clean shutdown"]

Json = dict[str, Any]


def size_of(record: Json) -> int:
    cells = [record["key"], record["value"], *(value for _, value in record["headers"])]
    names = sum(len(name.encode()) for name, _ in record["headers"])
    return names + sum(len(base64.b64decode(cell or "")) for cell in cells)


def measured(*folders: Path, **options: Any) -> Space:
    space = Space(SpaceOptions(now_ms=NOW_MS, **options))
    for partition in discover(folders):
        space.add(partition)
    return space


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(CASES))
def test_bytes_by_format_size_and_age_are_sums_over_kafkas_list_of_batches(case: golden_data.Case) -> None:
    found = measured(case.partition_dir(named=True), retention_ms=NOW_MS - 1_479_998_000_000).to_json(10)
    rows = case.batches()
    total = found["total"]
    assert total["batches"] == len(rows)
    assert total["logBytes"] == sum(map(len, case.segments().values()))
    assert total["bytes"] == sum(map(len, case.partition_files().values()))
    for classes in ("ages", "batchSizes"):
        assert sum(each["bytes"] for each in found[classes]) == sum(row["size"] for row in rows)
        assert sum(each["headerBytes"] for each in found[classes]) == sum(HEADER_BYTES[row["magic"]] for row in rows)
    for each in found["batchSizes"]:
        inside = [row["size"] for row in rows if each["from"] <= row["size"] < (each["to"] or 1 << 62)]
        assert (each["batches"], each["bytes"]) == (len(inside), sum(inside))
    old = [row for row in rows if -1 < row["maxTimestamp"] < 1_479_998_000_000]
    assert found["pastRetention"]["batches"] == len(old)
    assert found["pastRetention"]["bytes"] == sum(row["size"] for row in old)


READ_BY_CONSUMERS = [case for case in CASES if case.has_records and case.topic != "trimmed-none"]
"""Of a trimmed log a consumer does not see the records before the log start offset."""


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(READ_BY_CONSUMERS))
def test_bytes_by_key_and_header_are_sums_over_what_a_consumer_saw(case: golden_data.Case) -> None:
    found = measured(case.partition_dir(named=True), contents=True, kept=None).to_json(10_000)["contents"]
    keys, headers = Counter[str | None](), Counter[str]()
    key_bytes = value_bytes = tombstones = 0
    for record in case.records():
        key, value = (None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value"))
        for name, cell in record["headers"]:
            headers[name] += len(name.encode()) + len(base64.b64decode(cell or ""))
        text = None if key is None else key.decode(errors="backslashreplace")
        keys[text] += size_of(record)
        key_bytes, value_bytes = key_bytes + len(key or b""), value_bytes + len(value or b"")
        tombstones += key is not None and value is None
    (topic,) = found["topics"]
    assert topic["records"] == len(case.records())
    assert (topic["keyBytes"], topic["valueBytes"]) == (key_bytes, value_bytes)
    assert topic["headerBytes"] == sum(headers.values())
    assert topic["bytes"] == sum(keys.values())
    assert topic["tombstones"] == tombstones
    last = {record["key"]: record["offset"] for record in case.records() if record["key"] is not None}
    again = [each for each in case.records() if each["key"] is not None and last[each["key"]] != each["offset"]]
    assert topic["overwrittenRecords"] == len(again)
    assert topic["overwrittenBytes"] == sum(map(size_of, again))
    assert not topic["overwrittenPartial"]
    short = {text: size for text, size in keys.items() if text is None or len(text) < 200}
    listed = {each["text"]: each["bytes"] for each in found["keys"]["heaviest"]}
    assert {text: listed.get(text) for text in short} == short
    assert sum(each["bytes"] for each in found["headers"]["heaviest"]) == sum(headers.values())


def test_every_file_of_a_folder_is_counted_once(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/basic-none")
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    for name, content in case.partition_files().items():
        (folder / name).write_bytes(content)
    (folder / "00000000000000000000.log.deleted").write_bytes(bytes(500))
    (folder / "00000000000000099999.index").write_bytes(bytes(16))
    (folder / "notes.txt").write_bytes(b"ten bytes.")
    found = measured(folder).to_json(10)
    beside = {each["kind"]: each["bytes"] for each in found["beside"]}
    assert (beside["leftovers"], beside["orphans"], beside["others"]) == (500, 16, 10)
    assert found["total"]["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_topics_and_partitions_come_largest_first() -> None:
    names = ("3.9.1/basic-none", "3.9.1/basic-zstd", "3.9.1/basic-lz4")
    folders = [golden_data.log_case(name).partition_dir(named=True) for name in names]
    found = measured(*folders).to_json(2)
    assert [each["bytes"] for each in found["topics"]] == sorted(
        (each["bytes"] for each in found["topics"]), reverse=True
    )
    assert len(found["topics"]) == 3
    assert len(found["partitions"]) == 2
    assert sum(each["bytes"] for each in found["topics"]) == found["total"]["bytes"]


def test_an_open_transaction_holds_back_all_bytes_from_its_first_batch_on() -> None:
    case = golden_data.log_case("4.3.1/txn-open-none")
    found = measured(case.partition_dir(named=True)).to_json(10)["openTransactions"]
    assert found
    for each in found:
        behind = [row["size"] for row in case.batches() if row["lastOffset"] >= each["firstOffset"]]
        assert each["bytes"] == sum(behind)


def test_damage_is_reported_and_the_rest_is_measured(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/basic-none")
    folder = tmp_path / "t-0"
    folder.mkdir()
    (name, content), *_ = case.segments().items()
    rows = case.batches()
    (folder / name).write_bytes(content[: rows[0]["size"]] + bytes(100))
    space, seen = Space(SpaceOptions(now_ms=NOW_MS)), list[CorruptRecordError]()
    (partition,) = discover(folder)
    space.add(partition, on_damage=seen.append)
    assert [each.position for each in seen] == [rows[0]["size"]]
    assert space.to_json(1)["total"]["damage"] == 1
    assert space.whole.batches == 1


def test_the_classes_are_in_order() -> None:
    assert list(AGES) == sorted(AGES)
    assert list(BATCH_SIZES) == sorted(BATCH_SIZES)
