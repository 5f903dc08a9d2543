"""What each release does, beside facts from Kafka's own tables."""

import pytest

from magicbyte.engine.releases import (
    Release,
    first_with,
    inter_broker_versions,
    line_of,
    protocol_name,
    protocol_version,
    releases_of,
    tells_isr_at_once,
)
from magicbyte.server.settings.served import SERVED

FETCH, LIST_OFFSETS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, SHUTDOWN, EPOCHS = 1, 2, 4, 5, 6, 7, 23


@pytest.mark.parametrize(
    ("name", "versions"),
    [  # Fetch, LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, ListOffsets, OffsetForLeaderEpoch
        ("0.8.2", (0, 0, 0, 0, 0, 0, None)),
        ("0.9.0", (1, 0, 0, 1, 1, 0, None)),
        ("0.9.0-1", (2, 0, 0, 1, 1, 0, None)),
        ("0.10.0-IV0", (2, 0, 0, 1, 1, 0, None)),
        ("0.10.0", (2, 0, 0, 2, 1, 0, None)),
        ("0.10.1-IV0", (2, 0, 0, 2, 1, 0, None)),
        ("0.10.1-IV1", (3, 0, 0, 2, 1, 0, None)),
        ("0.10.1", (3, 0, 0, 2, 1, 1, None)),
        ("0.10.2", (3, 0, 0, 3, 1, 1, None)),
        ("0.11.0-IV0", (4, 0, 0, 3, 1, 2, None)),
        ("0.11.0-IV1", (5, 0, 0, 3, 1, 2, None)),
        ("0.11.0-IV2", (5, 0, 0, 3, 1, 2, 0)),
        ("0.11.0.3", (5, 0, 0, 3, 1, 2, 0)),
        ("1.0", (5, 1, 0, 4, 1, 2, 0)),
        ("1.1", (7, 1, 0, 4, 1, 2, 0)),
        ("2.0-IV0", (7, 1, 0, 4, 1, 2, 1)),
        ("2.0-IV1", (8, 1, 0, 4, 1, 3, 1)),
        ("2.1-IV1", (8, 1, 0, 4, 1, 4, 2)),
        ("2.1", (10, 1, 0, 4, 1, 4, 2)),
        ("2.2-IV0", (10, 2, 1, 5, 2, 4, 2)),
        ("2.2", (10, 2, 1, 5, 2, 5, 2)),
        ("2.3", (11, 2, 1, 5, 2, 5, 3)),
        ("2.4-IV0", (11, 3, 1, 5, 2, 5, 3)),
        ("2.4", (11, 4, 2, 6, 3, 5, 3)),
        ("2.6", (11, 4, 3, 6, 3, 5, 3)),
        ("2.7-IV1", (12, 4, 3, 6, 3, 5, 3)),
        ("2.8-IV0", (12, 4, 3, 6, 3, 6, 4)),
        ("2.8.2", (12, 5, 3, 7, 3, 6, 4)),
    ],
)
def test_brokers_send_each_request_in_the_version_of_their_protocol(
    name: str, versions: tuple[int | None, ...]
) -> None:
    found = inter_broker_versions(protocol_version(name))
    keys = FETCH, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, SHUTDOWN, LIST_OFFSETS, EPOCHS
    assert tuple(found.get(key) for key in keys) == versions


def test_protocol_versions_compare_and_have_names() -> None:
    assert protocol_version("0.9.0-1") == protocol_version("0.10.0-IV0") == (0, 10, 0, 0)
    assert protocol_version("0.10.0-IV0") < protocol_version("0.10.0-IV1") < protocol_version("0.10.1-IV0")
    assert [protocol_name(protocol_version(each)) for each in ("0.10.0-IV1", "2.8", "0.11.0.3", "3.9-IV0")] == [
        *("0.10.0-IV1", "2.8", "0.11.0", "3.9-IV0")
    ]
    assert line_of((0, 10, 0, 1)) == (0, 10, 0)
    assert line_of((2, 8, 1)) == line_of((2, 8)) == (2, 8)


@pytest.mark.parametrize("name", ["0.10.0-IVx", "0.7.0", "two", "2.8-IV", "", "5.0"])
def test_a_protocol_version_that_no_release_has_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name or "^$"):
        protocol_version(name)


def test_changes_of_in_sync_replicas_are_reported_at_once_from_the_protocol_with_alter_partition() -> None:
    told = [
        tells_isr_at_once(protocol_version(each)) for each in ("0.9.0", "2.6", "2.7-IV1", "2.7-IV2", "2.7", "2.8-IV0")
    ]
    assert told == [False, False, False, True, True, True]


def test_a_broker_whose_protocol_hides_transactions_is_known_all_the_same() -> None:
    for line in ("0.11.0", "2.8", "3.9"):
        answered = Release.of(line).answered()
        of_transactions = {key: answered.pop(key) for key in range(24, 29)}
        assert releases_of(answered) == [line]
        answered[24] = of_transactions[24]
        assert releases_of(answered) == []


def test_every_request_of_clients_is_known_by_the_releases_that_answer_it() -> None:
    between_brokers = {4, 5, 6, 7, 56, 67}
    assert {key for key in SERVED if first_with(key, SERVED[key].versions[0]) is None} == between_brokers


def test_requests_of_scram_tell_no_release_from_another() -> None:
    answered = Release.of("3.4").answered()
    del answered[50], answered[51]  # of KRaft
    assert releases_of(answered) == ["3.3", "3.4"]
