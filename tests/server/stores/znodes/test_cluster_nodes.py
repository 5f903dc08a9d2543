"""What nodes of a cluster say, as brokers of each release write them, and what makes no sense."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.errors import MetadataError
from magicbyte.engine.ports import TopicPartition
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.layout import TopicNode

ENDPOINTS = (BrokerEndpoint("INSIDE", "SSL", "a", 9093), BrokerEndpoint("OUTSIDE", "PLAINTEXT", "::1", 9092))


@pytest.mark.parametrize("version", range(1, 6))
def test_a_registration_of_each_version_says_where_the_broker_is(version: int) -> None:
    found = layout.load_broker("b", layout.dump_broker(ENDPOINTS, "attic", 5, version))
    named = tuple(BrokerEndpoint(each.security_protocol, *each_rest(each)) for each in ENDPOINTS)
    expected = {1: named[1:], 2: named, 3: named}.get(version, ENDPOINTS)
    assert found == Registration(expected, "attic" if version >= 3 else None)


def each_rest(endpoint: BrokerEndpoint) -> tuple[str, str, int]:
    return endpoint.security_protocol, endpoint.host, endpoint.port


def test_a_topic_keeps_its_reassignments() -> None:
    node = TopicNode({0: [1, 2, 3], 1: [2]}, uuid.UUID(int=7), {0: [3]}, {0: [1]})
    assert TopicNode.load("t", node.dump()) == node
    without = TopicNode.load("t", b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{"0":[]}}')
    assert without == TopicNode({0: [1]}, None)


def test_a_change_of_settings_is_read_in_both_versions() -> None:
    assert layout.load_config_change("c", layout.dump_config_change("topics", "t")) == ("topics", "t")
    old = layout.dump({"version": 1, "entity_type": "topics", "entity_name": "t"})
    assert layout.load_config_change("c", old) == ("topics", "t")
    deep = layout.dump({"version": 2, "entity_path": "users/u/clients/c"})
    assert layout.load_config_change("c", deep) == ("users", "u/clients/c")


def test_reassignments_of_old_tools_are_read_and_written() -> None:
    wanted = {TopicPartition("t", 0): (1, 2), TopicPartition("u", 3): (2,)}
    assert layout.load_reassignments(layout.dump_reassignments(wanted)) == wanted


@pytest.mark.parametrize(
    ("load", "data"),
    [
        (layout.load_broker, b'{"version":4,"endpoints":["nonsense"]}'),
        (layout.load_broker, b'{"version":1,"host":"a"}'),
        (layout.load_broker, b'{"endpoints":[]}'),
        (layout.load_partitions, b'{"partitions":[{"topic":"t"}]}'),
        (layout.load_config_change, b'{"version":1}'),
        (layout.load_log_directory_event, b'{"broker":"1"}'),
        (TopicNode.load, b'{"partitions":{"0":[1]},"adding_replicas":[3]}'),
        (lambda _path, data: layout.load_reassignments(data), b'{"partitions":[{"topic":"t","partition":0}]}'),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(load: Callable[[str, bytes], Any], data: bytes) -> None:
    with pytest.raises(MetadataError, match="expected"):
        load("path", data)
