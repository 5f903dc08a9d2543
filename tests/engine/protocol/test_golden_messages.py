"""Thousands of messages that Kafka's own classes wrote, of every API in every version: always run, without Java."""

import pytest

from engine.protocol.generated import codecs
from engine.protocol.golden_messages import golden_messages
from engine.protocol.interpreter import RefusedError, read, write
from engine.protocol.schemas import all_schemas, versions
from engine.protocol.values import examples
from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError

NO_CLASS = {("ShareGroupPartitionMetadataValue", 0)}  # of 4.0 alone


def test_there_are_thousands_and_some_of_every_version() -> None:
    assert len(golden_messages()) > 2000
    # Those of the metadata log: tests/engine/cluster/test_metadata_records.py
    expected = {(name, version) for name, version in versions() if all_schemas()[name].type != "metadata"}
    assert {(each.name, each.version) for each in golden_messages()} == expected - NO_CLASS


def test_generated_code_reads_their_values() -> None:
    for name, version, values, data in golden_messages():
        assert codecs()[name].read(version, data) == values, (name, version)


def test_generated_code_writes_their_bytes_and_says_their_size() -> None:
    for name, version, values, data in golden_messages():
        message = codecs()[name].message(values)
        assert bytes(message.encode(version)) == data, (name, version, values)
        assert message.size(version) == len(data), (name, version, values)


def test_the_interpreter_of_schemas_reads_and_writes_them() -> None:
    for name, version, values, data in golden_messages():
        assert write(all_schemas()[name], version, values) == data, (name, version, values)
        assert read(all_schemas()[name], version, data) == (values, len(data)), (name, version, values)


@pytest.mark.parametrize("kind", ["default inside", "null at 0", "highest"])
def test_generated_code_writes_and_refuses_in_other_versions_what_the_interpreter_does(kind: str) -> None:
    refused = 0
    for name, schema in all_schemas().items():
        for version in schema.valid_versions:
            for values in examples(schema, version, (kind,)):
                message = codecs()[name].message(values)
                for other in schema.valid_versions:
                    try:
                        expected = write(schema, other, values)
                    except RefusedError:
                        refused += 1
                        with pytest.raises((ProtocolError, UnsupportedVersionError)):
                            message.encode(other)
                    else:
                        assert bytes(message.encode(other)) == expected, (name, version, other, values)
    assert refused > 50
