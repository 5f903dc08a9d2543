"""The worked examples of the pages on a log directory's files and on internal topics are real: they are read back."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.groups.records import OffsetCommitKey
from magicbyte.engine.groups.records import decode_key as group_key
from magicbyte.engine.groups.records import decode_value as group_value
from magicbyte.engine.log.files.indexes import EnrichedIndex, OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.transactions.records import TransactionKey
from magicbyte.engine.transactions.records import decode_value as transaction_value
from magicbyte.engine.wire.reader import Reader

PAGES = Path(__file__).parents[3] / "docs" / "formats"
EXAMPLE = re.compile(r"^## Worked example: (.*?)\n```hex\n(.*?)```\n\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
FIXED = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint32": 4}


def examples() -> dict[str, tuple[bytes, list[list[str]]]]:
    found = {}
    for name in ("log-directory.md", "internal-topics.md"):
        for title, raw, table in EXAMPLE.findall((PAGES / name).read_text()):
            rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
            found[title] = (bytes.fromhex(raw), rows)
    return found


EXAMPLES = examples()


def shown(reader: Reader, kind: str) -> str:
    """The value of the next field, as the pages show it."""
    if kind == "uint32":
        return f"{int.from_bytes(reader.take(4), 'big'):#010x}"
    if kind in FIXED:
        return str(int.from_bytes(reader.take(FIXED[kind]), "big", signed=True))
    if kind == "uuid":
        return base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")
    reader.flexible = kind == "compact string"
    return str(reader.unsigned_varint()) if kind == "varint" else f'`"{reader.string()}"`'


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_fields_of_an_example_fill_its_bytes_without_a_gap(title: str) -> None:
    raw, rows = EXAMPLES[title]
    reader = Reader(raw)
    for _, kind, at, encoded, value in rows:
        assert reader.position == int(at)
        found = shown(reader, kind)
        assert encoded == f"`{raw[int(at) : reader.position].hex()}`"
        assert value == found
    assert reader.position == len(raw)


PARSED: dict[str, Callable[[bytes], Any]] = {
    "the offset index of a segment at 100": lambda raw: [
        list(OffsetIndex.parse(raw, 100).offsets - 100),
        list(OffsetIndex.parse(raw, 100).positions),
    ],
    "the time index of a segment at 100": lambda raw: [
        list(TimeIndex.parse(raw, 100).timestamps),
        list(TimeIndex.parse(raw, 100).offsets - 100),
    ],
    "a transaction index": lambda raw: [[value] for value in TransactionIndex.parse(raw).entries[0]],
    "the enriched index of a segment at 100": lambda raw: [
        list(EnrichedIndex.parse(raw, 100).offsets - 100),
        list(EnrichedIndex.parse(raw, 100).timestamps),
        list(EnrichedIndex.parse(raw, 100).positions),
    ],
    "a snapshot of one producer": lambda raw: [[value] for value in ProducerSnapshot.parse(raw).producers[0]],
}


@pytest.mark.parametrize("title", PARSED)
def test_our_readers_find_the_values_that_the_page_shows(title: str) -> None:
    raw, rows = EXAMPLES[title]
    columns: dict[str, list[int]] = {}
    header = ("version", "crc", "count") if "snapshot" in title else ()
    for name, _, _, _, value in rows[len(header) :]:
        columns.setdefault(name, []).append(int(value))
    assert list(columns.values()) == PARSED[title](raw)


def test_our_decoders_find_the_values_of_the_internal_topics() -> None:
    key = OffsetCommitKey(1, "g", "t", 3)
    assert group_key(EXAMPLES["the key of a committed offset"][0]) == key
    for version in (3, 4):
        value = group_value(key, EXAMPLES[f"its value, version {version}"][0])
        assert value is not None
        assert value.to_json() == {
            "version": str(version),
            "data": {
                "offset": 42,
                "leaderEpoch": -1,
                "metadata": "note",
                "commitTimestamp": 1700000000000,
                **({"topicId": "AAECAwQFBgcICQoLDA0ODw"} if version == 4 else {}),
            },
        }
    transaction = transaction_value(TransactionKey("x"), EXAMPLES["the value of a transaction, version 0"][0])
    assert transaction is not None
    assert transaction.to_json()["data"] == {
        "producerId": 9,
        "producerEpoch": 1,
        "transactionTimeoutMs": 60000,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "t", "partitionIds": [4]}],
        "transactionLastUpdateTimestampMs": 1700000000005,
        "transactionStartTimestampMs": 1700000000000,
    }


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 9
