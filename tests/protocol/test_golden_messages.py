"""Thousands of messages that Kafka's own classes wrote, of every API in every version: always run, without Java."""

from protocol.golden_messages import golden_messages
from protocol.interpreter import read, write
from protocol.schemas import all_schemas


def test_there_are_thousands() -> None:
    assert len(golden_messages()) > 2000


def test_the_interpreter_of_schemas_reads_and_writes_them() -> None:
    for name, version, values, data in golden_messages():
        assert write(all_schemas()[name], version, values) == data, (name, version, values)
        assert read(all_schemas()[name], version, data) == (values, len(data)), (name, version, values)
