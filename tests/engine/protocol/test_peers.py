"""kio and kafka-python read the same values from our bytes and write the same bytes, in all versions they have."""

from collections.abc import Callable

import pytest

from engine.protocol.generated import codecs
from engine.protocol.peers import plain_values, tamed, through_kafka_python, through_kio
from engine.protocol.schemas import all_schemas, ends, versions
from engine.protocol.values import examples

Chosen = Callable[[], tuple[tuple[str, int], ...]]
KINDS = ("default inside", "null at 0", "null at 1", "lowest", "highest", "random")
# by kio, after Kafka 4.1: replica_id for candidate_id, and the names before 4.4
NAMED_OTHERWISE = {"VoteRequest", "StreamsGroupHeartbeatResponse", "TxnOffsetCommitRequest"}
HANDLED_BY_HAND = {"ApiVersionsResponse", "DeleteTopicsRequest"}  # by kafka-python, for its own needs


@pytest.mark.parametrize(
    ("chosen", "least"), [(ends, 250), pytest.param(versions, 550, marks=pytest.mark.slow)], ids=["ends", "all"]
)
def test_kio_reads_the_same_values_and_writes_the_same_bytes(chosen: Chosen, least: int) -> None:
    compared = set()
    for name, version in chosen():
        schema = all_schemas()[name]
        for example in examples(schema, version, KINDS):
            values = tamed(schema, schema.fields, version, example)
            data = codecs()[name].write(version, values)
            found = through_kio(name, version, data)
            if found is None:
                break
            compared.add((name, version))
            assert found[1] == data, (name, version, values)
            if name not in NAMED_OTHERWISE:
                assert found[0] == plain_values(schema, schema.fields, version, values), (name, version)
    assert len(compared) >= least


@pytest.mark.parametrize(
    ("chosen", "least"), [(ends, 150), pytest.param(versions, 430, marks=pytest.mark.slow)], ids=["ends", "all"]
)
def test_kafka_python_writes_the_bytes_that_it_read(chosen: Chosen, least: int) -> None:
    compared = set()
    for name, version in chosen():
        schema = all_schemas()[name]
        for example in examples(schema, version, KINDS):
            values = tamed(schema, schema.fields, version, example)
            data = codecs()[name].write(version, values)
            found = None if name in HANDLED_BY_HAND else through_kafka_python(name, version, data)
            if found is None:
                break
            compared.add((name, version))
            assert found == data, (name, version, values)
    assert len(compared) >= least
