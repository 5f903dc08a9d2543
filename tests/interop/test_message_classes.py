"""Kafka's own message classes against ours: the same bytes and the same values, for every API and version.

Old versions come from the classes of 3.9.1, new ones from 4.4.0; where both have a version, both are asked.
"""

import base64
from functools import cache

import pytest

from engine.protocol.generated import codecs
from engine.protocol.interpreter import Values, complete, read, write
from engine.protocol.kip_625 import EXAMPLES, FIXED, VERSION
from engine.protocol.schemas import all_schemas, versions
from engine.protocol.values import examples
from interop.kafka_messages import NEW, OLD, Json, ask, java_version
from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

Case = tuple[str, int, Values]
# An early access message of 4.0, gone in 4.1; other classes have its name before.
NOWHERE = {("ShareGroupPartitionMetadataValue", 0)}


@cache
def cases(kafka: str) -> list[Case]:
    """Return every example of every version that a Kafka release has."""
    return [
        (name, version, values)
        for name, version in versions()
        if java_version(name, version, kafka) is not None
        for values in examples(all_schemas()[name], version)
    ]


def question(operation: str, case: Case, kafka: str, **more: object) -> Json:
    name, version, _ = case
    return {"op": operation, "message": name, "version": java_version(name, version, kafka), **more}


def test_every_version_is_known_to_one_of_the_releases() -> None:
    missing = {
        (name, version)
        for name, version in versions()
        if all(java_version(name, version, kafka) is None for kafka in (OLD, NEW))
    }
    of_metadata_log = {each for each in versions() if all_schemas()[each[0]].type == "metadata"}  # compared by logs
    assert missing - of_metadata_log == NOWHERE


@pytest.mark.parametrize("kafka", [OLD, NEW])
def test_java_writes_the_bytes_that_we_write(kafka: str) -> None:
    questions = [question("encode", case, kafka, values=case[2]) for case in cases(kafka)]
    for (name, version, values), answer in zip(cases(kafka), ask(questions, kafka), strict=True):
        assert "error" not in answer, (name, version, values, answer)
        data = base64.b64decode(answer["bytes"])
        assert data == codecs()[name].write(version, values), (name, version, values)
        assert data == write(all_schemas()[name], version, values), (name, version, values)


@pytest.mark.parametrize("kafka", [OLD, NEW])
def test_java_reads_what_we_wrote_as_it_was_given_and_writes_it_again(kafka: str) -> None:
    written = [codecs()[name].write(version, values) for name, version, values in cases(kafka)]
    questions = [
        question("decode", case, kafka, bytes=base64.b64encode(data).decode())
        for case, data in zip(cases(kafka), written, strict=True)
    ]
    for case, data, answer in zip(cases(kafka), written, ask(questions, kafka), strict=True):
        name, version, values = case
        schema = all_schemas()[name]
        assert "error" not in answer, (case, answer)
        assert complete(schema, version, answer["values"]) == values, (case, answer)
        assert (base64.b64decode(answer["bytes"]), answer["rest"]) == (data, 0), (case, answer)
        assert codecs()[name].read(version, data) == values, case
        assert read(schema, version, data) == (values, len(data)), case


@pytest.mark.parametrize("kafka", [OLD, NEW])
def test_java_writes_and_refuses_in_another_version_what_we_do(kafka: str) -> None:
    questions, expected = [], []
    for name, schema in all_schemas().items():
        known = [version for version in schema.valid_versions if java_version(name, version, kafka) is not None]
        for version in known:
            for values in examples(schema, version, ("default", "default inside", "null at 0", "highest")):
                for other in known:
                    case = (name, version, values)
                    questions.append(question("encode", case, kafka, values=values, at=other))
                    try:
                        expected.append(codecs()[name].write(other, values))
                    except (ProtocolError, UnsupportedVersionError):
                        expected.append(None)
    refused = 0
    for asked, data, answer in zip(questions, expected, ask(questions, kafka), strict=True):
        refused += data is None
        assert ("error" in answer) == (data is None), (asked, answer)
        assert data is None or base64.b64decode(answer["bytes"]) == data, (asked, answer)
    assert refused > 1000


@pytest.mark.parametrize("kafka", [OLD, NEW])
def test_java_writes_the_messages_of_kip_625_in_3216_bytes(kafka: str) -> None:
    questions = [
        {"op": "encode", "message": "MetadataResponse", "version": VERSION, "values": example.best()}
        for example in EXAMPLES
    ]
    for example, answer in zip(EXAMPLES, ask(questions, kafka), strict=True):
        data = base64.b64decode(answer["bytes"])
        assert len(data) == FIXED
        assert data == codecs()["MetadataResponse"].write(VERSION, example.best())
