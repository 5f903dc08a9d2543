"""Which replicas are throttled, and how many bytes per second passed."""

from __future__ import annotations

import pytest

from magicbyte.engine.replication.throttle import ThrottledReplicas, Throughput


def test_replicas_are_listed_by_partition_and_broker() -> None:
    found = ThrottledReplicas.parse(" 0:1, 12:1,0:2,")
    assert [(partition, broker) for partition in (0, 1, 12) for broker in (1, 2) if found.has(partition, broker)] == [
        (0, 1), (0, 2), (12, 1),
    ]  # fmt: skip


def test_a_star_stands_for_all_replicas_and_nothing_for_none() -> None:
    assert ThrottledReplicas.parse("*").has(7, 9)
    assert not ThrottledReplicas.parse("").has(0, 0)


@pytest.mark.parametrize("text", ["0", "0:", ":1", "0:1:2", "a:1", "-1:1", "0:1,*", "0-1"])
def test_what_is_no_list_of_replicas_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        ThrottledReplicas.parse(text)


def test_bytes_are_spread_over_the_time_since_the_oldest_sample_began() -> None:
    passed = Throughput(11, 1000)
    assert passed.per_second(0) == 0
    passed.record(600, 0)
    passed.record(600, 400)
    assert passed.per_second(500) == 1200
    assert passed.per_second(2000) == 600
    passed.record(1200, 3000)
    assert passed.per_second(4000) == 600


def test_a_sample_is_forgotten_when_it_began_so_many_samples_ago() -> None:
    passed = Throughput(11, 1000)
    passed.record(1000, 0)
    passed.record(2000, 5000)
    assert passed.per_second(10_999) == 3_000_000 / 10_999
    assert passed.per_second(11_000) == 2000 / 6
    assert passed.per_second(16_000) == 0
