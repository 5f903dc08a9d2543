"""Rolling a canary back: what is removed, where that would lose records, and where it would bring nothing."""

from dataclasses import replace

from magicbyte.migration.rollback import LedPartition, RollBack, roll_back
from magicbyte.migration.status import BrokerFacts
from magicbyte.records.encode import Format
from magicbyte.releases import Release

CHANGED = LedPartition("orders", 0, (1, 2), (1, 2), Format.V1)


def broker(number: int, protocol: str, form: str) -> BrokerFacts:
    settings = {"inter.broker.protocol.version": protocol, "log.message.format.version": form}
    return BrokerFacts(number, f"host{number}:9092", Release.of("0.11.0").answered(), settings)


CANARY = broker(1, "0.10.0", "0.10.0")
PEER_OF_V1 = broker(2, "0.9.0", "0.9.0")
"""Fetches in version 1, as in the first variant of the document: its copy is converted."""
PEER_OF_V2 = broker(2, "0.10.0", "0.9.0")
"""Fetches in version 2: the new format spreads to it."""


def rolled(*led: LedPartition, canary: BrokerFacts = CANARY, peer: BrokerFacts = PEER_OF_V1) -> RollBack:
    return roll_back(canary, [canary, peer], led, Format.V0, "host:9092")


def test_the_data_that_it_led_is_removed_between_its_stop_and_its_start() -> None:
    empty, old = replace(CHANGED, partition=1, newest=None), replace(CHANGED, partition=2, newest=Format.V0)
    found = rolled(CHANGED, empty, old)
    assert (found.refused, found.removed, found.spread) == ((), ("orders-0",), {})
    assert [each.do.split(":")[0] for each in found.steps] == [
        "stop broker 1, and wait until other brokers lead its partitions",
        "remove these folders from its log.dirs",
        "in its server.properties",
        "start it; it replicates the removed data",
        "wait until every replica is in sync",
        "see that it stores the old format",
    ]
    assert found.steps[2].do.endswith("log.message.format.version=0.9.0")


def test_what_it_alone_has_is_not_to_be_removed() -> None:
    (reason,) = rolled(replace(CHANGED, in_sync=(1,))).refused
    assert reason.startswith("orders-0: broker 1 alone is in sync")


def test_what_has_spread_would_come_back() -> None:
    found = rolled(CHANGED, peer=PEER_OF_V2)
    assert found.spread == {"orders-0": (2,)}
    (reason,) = found.refused
    assert "the copies on brokers 2 hold the new format, too" in reason


def test_a_copy_of_a_broker_that_is_not_known_is_taken_for_one_in_the_new_format() -> None:
    assert rolled(replace(CHANGED, replicas=(1, 9), in_sync=(1, 9))).spread == {"orders-0": (9,)}


def test_a_broker_of_ours_keeps_its_data() -> None:
    found = rolled(replace(CHANGED, in_sync=(1,)), canary=replace(CANARY, is_ours=True))
    assert (found.refused, found.removed) == ((), ())
    assert found.steps[0].command == ("magicbyte configs set -b host:9092 --broker 1 log.message.format.version=0.9.0")


def test_nothing_is_removed_where_nothing_was_written() -> None:
    found = rolled(replace(CHANGED, newest=None, in_sync=(1,)))
    assert (found.refused, found.removed) == ((), ())
    assert not any("remove these" in each.do for each in found.steps)
