"""Records of the metadata log: read, printed and written as Kafka does. The golden dumps are those of its own tool."""

import re
import uuid

import pytest

from kraft_data import FOLDER, KraftNode, nodes
from magicbyte.engine.cluster.metadata_records import (
    RECORD_TYPES,
    MetadataRecord,
    read_metadata_record,
    write_metadata_record,
)
from magicbyte.engine.errors import CorruptRecordError, UnsupportedVersionError
from magicbyte.engine.protocol.kafka_json import json_text
from magicbyte.engine.protocol.stored.config_record import ConfigRecord
from magicbyte.engine.protocol.stored.partition_record import PartitionRecord
from magicbyte.engine.protocol.stored.topic_record import TopicRecord
from magicbyte.engine.records.decode import DecodeOptions, decode

PAYLOAD = re.compile(r"^\| offset: (\d+) .* payload: (\{.*\})$")
TOPIC = TopicRecord(name="orders", topic_id=uuid.UUID(int=7))


def values_of(data: bytes) -> dict[int, bytes]:
    """Return the values of a log's or snapshot's records by their offsets."""
    columns = decode(memoryview(data), DecodeOptions(keys=False, headers=False))
    return {record.offset: record.value for each in columns for record in each if record.value is not None}


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_records_of_real_nodes_are_printed_as_by_kafkas_tool_and_written_as_they_were(node: KraftNode) -> None:
    files = node.files()
    for name, lines in node.dumps().items():
        printed = {int(match[1]): match[2] for line in lines if (match := PAYLOAD.match(line))}
        values = values_of(files[f"{FOLDER}/{name}"])
        records = {offset: read_metadata_record(values[offset]) for offset in printed}
        assert {offset: json_text(record.to_json()) for offset, record in records.items()} == printed
        assert {offset: write_metadata_record(record) for offset, record in records.items()} == {
            offset: values[offset] for offset in printed
        }


def test_the_golden_nodes_have_nearly_all_types_and_versions() -> None:
    seen = set[tuple[int, int]]()
    for node in nodes():
        for path, data in node.files().items():
            if path.startswith(f"{FOLDER}/") and path.endswith((".log", ".checkpoint")):
                seen |= {
                    (record.number, record.version) for record in map(read_metadata_record, values_of(data).values())
                }
    known = {(number, version) for number, kind in RECORD_TYPES.items() for version in kind.message.VALID_VERSIONS}
    assert known - seen == {(0, 0), (7, 0), (8, 0), (17, 2), (25, 0), (29, 0)}


@pytest.mark.parametrize(
    ("value", "field", "position"),
    [
        (None, "value of a metadata record", None),
        (b"", "length", 0),
        (b"\x00\x02\x00", "frame version of a metadata record", 0),
        (b"\x02\x02\x00", "frame version of a metadata record", 0),
        (b"\x01\x06\x00", "type of a metadata record", 1),
        (b"\x01\xff\xff\xff\xff\x0f\x00", "type of a metadata record", 1),
        (b"\x01\x02\x01", "version of a metadata record", 2),
        (b"\x01\x03\x03", "version of a metadata record", 2),
    ],
)
def test_a_value_that_no_release_writes_is_refused_with_its_position(
    value: bytes | None, field: str, position: int | None
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        read_metadata_record(value)
    assert field in caught.value.what
    assert caught.value.position == position


def test_a_value_that_was_cut_or_is_followed_by_bytes_is_refused() -> None:
    whole = write_metadata_record(MetadataRecord(2, 0, TOPIC))
    for size in range(len(whole)):
        with pytest.raises(CorruptRecordError):
            read_metadata_record(whole[:size])
    with pytest.raises(CorruptRecordError, match="end of a metadata record") as caught:
        read_metadata_record(whole + b"\0")
    assert caught.value.position == len(whole)
    assert read_metadata_record(whole) == MetadataRecord(2, 0, TOPIC)


def test_a_count_of_a_million_replicas_in_a_short_value_is_refused_before_anything_is_allocated() -> None:
    value = b"\x01\x03\x00" + bytes(4 + 16) + b"\xc1\x84\x3d"
    with pytest.raises(CorruptRecordError, match="replicas"):
        read_metadata_record(value)


def test_a_field_that_a_version_lacks_is_neither_written_nor_printed() -> None:
    partition = PartitionRecord(topic_id=uuid.UUID(int=7), directories=[uuid.UUID(int=9)])
    with pytest.raises(UnsupportedVersionError, match="directories"):
        write_metadata_record(MetadataRecord(3, 0, partition))
    assert "directories" not in MetadataRecord(3, 0, PartitionRecord()).to_json()["data"]
    assert "directories" in MetadataRecord(3, 1, partition).to_json()["data"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (12.5, "12.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (0.001, "0.001"),
        (0.00015, "1.5E-4"),
        (-1e300, "-1.0E300"),
        (float("inf"), '"Infinity"'),
    ],
)
def test_floats_are_printed_as_java_does(value: float, text: str) -> None:
    assert json_text(value) == text


def test_text_beyond_ascii_stays_and_bytes_are_base64() -> None:
    config = ConfigRecord(resource_type=2, resource_name="größe", name="a", value=None)
    printed = json_text(MetadataRecord(4, 0, config).to_json())
    assert printed == (
        '{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":2,"resourceName":"größe","name":"a","value":null}}'
    )
