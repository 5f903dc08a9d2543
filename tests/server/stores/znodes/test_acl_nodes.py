"""ACLs in the metadata tree. Numbers in brackets are the specification's checks."""

import pytest

from magicbyte.engine.cluster.acls import (
    AccessControlEntry,
    AclOperation,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.errors import MetadataError
from magicbyte.server.stores.znodes.acl_nodes import acl_change, acls_path, dump_entries, load_entries


def test_a_node_is_written_as_kafka_2_8_writes_it_and_read_as_3_9_does() -> None:
    entries = frozenset({AccessControlEntry(Principal("User", "a"), Permission.ALLOW, AclOperation.READ)})
    data = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
    assert dump_entries(entries) == data
    newer = b'{"acls":[{"principal":"User:a","permissionType":"ALLOW","host":"*","operation":"read"}],"version":1}'
    assert load_entries("/kafka-acl/Topic/t", newer) == load_entries("/kafka-acl/Topic/t", data) == entries
    configs = frozenset({AccessControlEntry(Principal("User", "a"), Permission.DENY, AclOperation.DESCRIBE_CONFIGS)})
    assert b'"operation":"DescribeConfigs"' in dump_entries(configs)
    assert load_entries("/x", dump_entries(configs)) == configs


def test_a_single_backslash_in_a_name_is_read() -> None:  # [52]
    data = (
        rb'{"version":1,"acls":[{"principal":"User:CN=a\,b","permissionType":"Allow","operation":"Read","host":"*"}]}'
    )
    (entry,) = load_entries("/x", data)
    assert entry.principal.name == r"CN=a\,b"
    assert load_entries("/x", dump_entries(frozenset({entry}))) == {entry}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"a","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":7,"permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":7}',
        b" " * ((1 << 20) + 1),
    ],
)
def test_a_damaged_node_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataError):
        load_entries("/kafka-acl/Topic/t", data)


def test_paths_and_notes_are_kafkas() -> None:
    literal = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x")
    assert acls_path(literal) == "/kafka-acl/TransactionalId/x"
    assert acl_change(literal) == ("/kafka-acl-changes/acl_changes_", b"TRANSACTIONAL_ID:x")
    assert acl_change(literal, is_old=True) == ("/kafka-acl-changes/acl_changes_", b"TransactionalId:x")
    prefixed = ResourcePattern(ResourceType.TOPIC, "n", Pattern.PREFIXED)
    assert acls_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/n"
    assert acl_change(prefixed) == (
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"TOPIC","name":"n","patternType":"PREFIXED"}',
    )
