"""The partition of a key, compared with two other clients and with Kafka's published hashes."""

import random

import pytest
from aiokafka.partitioner import DefaultPartitioner
from kafka.partitioner.default import murmur2 as their_murmur2

from magicbyte.access.client.partitioning import murmur2, partition_of, partitions_of
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import columns_of

KEYS = [random.Random(7).randbytes(size) for size in range(100)]


@pytest.mark.parametrize(("key", "expected"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)])
def test_a_hash_is_the_one_that_kafkas_own_tests_name(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % (1 << 32)


def test_hashes_and_partitions_of_keys_of_any_size_are_those_of_other_clients() -> None:
    assert [murmur2(key) for key in KEYS] == [their_murmur2(key) for key in KEYS]
    for count in (1, 2, 3, 7, 50):
        partitions = list(range(count))
        theirs = [DefaultPartitioner()(key, partitions, partitions) for key in KEYS]
        assert [partition_of(key, count) for key in KEYS] == theirs


def test_the_partitions_of_a_column_of_keys_are_those_of_each_of_them() -> None:
    keys = [*KEYS, None, b"", *KEYS[:5], None]
    column = columns_of(Record(at, 0, 0, key, None) for at, key in enumerate(keys)).key
    assert column is not None
    expected = [-1 if key is None else partition_of(key, 7) for key in keys]
    assert partitions_of(column, 7).tolist() == expected
    assert partitions_of(column.slice(3, 9), 7).tolist() == expected[3:9]
    assert partitions_of(column.slice(0, 0), 7).tolist() == []
