"""ACLs by themselves: what they decide. Numbers in brackets are the specification's checks."""

import pytest

from magicbyte.access.security.acls import Acls, Filter
from magicbyte.engine.cluster.acls import (
    AccessControlEntry,
    AclOperation,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import Principal, parse_super_users
from magicbyte.engine.errors import InvalidRequestError

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOPIC = ResourceType.TOPIC
HOST = "10.0.0.1"
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def topic(
    name: str, *entries: AccessControlEntry, prefixed: bool = False
) -> tuple[ResourcePattern, frozenset[AccessControlEntry]]:
    return ResourcePattern(TOPIC, name, Pattern.PREFIXED if prefixed else Pattern.LITERAL), frozenset(entries)


def allow(operation: AclOperation, who: Principal = ALICE, host: str = "*") -> AccessControlEntry:
    return AccessControlEntry(who, ALLOW, operation, host)


def deny(operation: AclOperation, who: Principal = ALICE, host: str = "*") -> AccessControlEntry:
    return AccessControlEntry(who, DENY, operation, host)


def acls(
    *of: tuple[ResourcePattern, frozenset[AccessControlEntry]], super_users: str = "", or_else: bool = False
) -> Acls:
    return Acls(dict(of), parse_super_users(super_users), or_else=or_else)


def may(found: Acls, operation: AclOperation, name: str = "test", host: str = HOST) -> bool:
    return found.allows(ALICE, host, operation, TOPIC, name)


def test_super_users_are_split_at_semicolons_and_may_do_what_is_denied() -> None:  # [41]
    found = acls(topic("test", deny(AclOperation.ALL)), super_users="User:CN=a,O=b; User:alice")
    assert may(found, AclOperation.READ)
    assert found.allows(Principal("User", "CN=a,O=b"), HOST, AclOperation.READ, TOPIC, "test")
    assert not found.allows(BOB, HOST, AclOperation.READ, TOPIC, "test")
    with pytest.raises(InvalidRequestError):
        parse_super_users("alice")


@pytest.mark.parametrize("or_else", [False, True])
def test_where_there_is_no_acl_the_setting_decides(or_else: bool) -> None:  # [42]
    assert may(acls(or_else=or_else), AclOperation.READ) is or_else


def test_an_acl_of_anybody_on_a_name_or_a_beginning_of_it_ends_what_everyone_may() -> None:  # [43, 44]
    assert not may(acls(topic("test", allow(AclOperation.READ, BOB)), or_else=True), AclOperation.READ)
    assert not may(acls(topic("te", allow(AclOperation.READ, BOB), prefixed=True), or_else=True), AclOperation.READ)
    assert may(acls(topic("tex", allow(AclOperation.READ, BOB), prefixed=True), or_else=True), AclOperation.READ)


def test_a_denial_of_a_beginning_wins_over_what_is_allowed_for_the_name() -> None:  # [45]
    found = acls(topic("test", allow(AclOperation.READ)), topic("t", deny(AclOperation.READ), prefixed=True))
    assert not may(found, AclOperation.READ)


def test_describing_is_implied_by_what_is_allowed_and_denied_by_itself_alone() -> None:  # [46, 47]
    found = acls(topic("test", allow(AclOperation.READ), deny(AclOperation.DESCRIBE)))
    assert may(found, AclOperation.READ)
    assert not may(found, AclOperation.DESCRIBE)
    found = acls(topic("test", allow(AclOperation.WRITE), deny(AclOperation.READ)))
    assert may(found, AclOperation.DESCRIBE)
    for each in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert may(acls(topic("test", allow(each))), AclOperation.DESCRIBE)
    assert may(acls(topic("test", allow(AclOperation.ALTER_CONFIGS))), AclOperation.DESCRIBE_CONFIGS)
    assert not may(acls(topic("test", allow(AclOperation.CREATE))), AclOperation.DESCRIBE)


def test_hosts_are_compared_as_text() -> None:  # [48, 49]
    found = acls(topic("*", allow(AclOperation.ALL)), topic("test", deny(AclOperation.ALL, host=HOST)))
    assert not may(found, AclOperation.READ)
    assert may(found, AclOperation.READ, host="10.0.0.2")
    found = acls(topic("test", allow(AclOperation.READ, host="::1")))
    assert not may(found, AclOperation.READ, host="0:0:0:0:0:0:0:1")


def test_the_case_of_a_principal_counts() -> None:  # [50]
    assert not may(acls(topic("test", allow(AclOperation.READ, Principal("user", "alice")))), AclOperation.READ)


def test_a_beginning_that_is_an_asterisk_is_a_beginning() -> None:
    assert not may(acls(topic("*", allow(AclOperation.READ), prefixed=True)), AclOperation.READ)
    assert may(acls(topic("*", allow(AclOperation.READ), prefixed=True)), AclOperation.READ, "*a")


def test_any_topic_is_one_that_no_denial_covers() -> None:  # [64, 65]
    def any_of(found: Acls) -> bool:
        return found.allows_any(ALICE, HOST, AclOperation.WRITE, TOPIC)

    assert not any_of(acls())
    assert any_of(acls(or_else=True))
    assert any_of(acls(topic("a", allow(AclOperation.WRITE))))
    assert not any_of(acls(topic("ab", allow(AclOperation.WRITE)), topic("a", deny(AclOperation.WRITE), prefixed=True)))
    assert not any_of(acls(topic("*", deny(AclOperation.ALL)), topic("a", allow(AclOperation.WRITE)), or_else=True))
    assert any_of(acls(topic("*", allow(AclOperation.ALL)), topic("a", deny(AclOperation.WRITE))))
    both = acls(
        topic("a", allow(AclOperation.WRITE), prefixed=True), topic("abc", deny(AclOperation.WRITE), prefixed=True)
    )
    assert any_of(both)


@pytest.mark.parametrize(
    ("pattern", "name", "taken"),
    [
        (1, None, {"test", "*", "te", "t"}),
        (2, "test", {"test", "*", "te"}),
        (3, "test", {"test"}),
        (4, "te", {"te"}),
        (1, "te", {"te"}),
    ],
)
def test_filters_take_literal_names_beginnings_or_all_that_match(
    pattern: int, name: str | None, taken: set[str]
) -> None:
    entry = allow(AclOperation.READ)  # [71]
    wanted = Filter(2, name, pattern, None, None, 1, 1)
    resources = [topic(each)[0] for each in ("test", "*", "t")]
    resources.append(topic("te", prefixed=True)[0])
    assert {each.name for each in resources if wanted.takes(each, entry)} == taken
    assert not Filter(3, None, 1, None, None, 1, 1).takes(resources[0], entry)
    assert not Filter(2, None, 1, "User:bob", None, 1, 1).takes(resources[0], entry)


def test_what_was_asked_before_is_answered_alike_and_what_is_kept_of_it_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magicbyte.access.security.acls.MOST_KEPT", 10)
    found = acls(topic("te", allow(AclOperation.READ), prefixed=True), topic("test-3", deny(AclOperation.READ)))
    names = [f"test-{at}" for at in range(25)] + ["x" * 1000]
    for _ in range(3):
        assert [may(found, AclOperation.READ, name) for name in names] == [at not in (3, 25) for at in range(26)]
        assert not found.allows(BOB, HOST, AclOperation.READ, TOPIC, "test-1")
        assert not may(found, AclOperation.WRITE, "test-1")
        assert 0 < len(found._decisions) <= 10
        assert not found.allows(Principal("User", "y" * 1000), HOST, AclOperation.READ, TOPIC, "test-1")
        assert not any(len(each[0].name) + len(each[-1]) > 500 for each in found._decisions)
