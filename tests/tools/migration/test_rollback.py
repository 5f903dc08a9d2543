"""Rolling a canary back: removed settings, where that would lose records, and where it has no effect."""

from dataclasses import replace

from magicbyte.engine.records.encode import Format
from magicbyte.tools.migration.rollback import LedPartition, RollBack, roll_back
from magicbyte.tools.migration.status import BrokerFacts
from tools.migration.builders import broker

CHANGED = LedPartition("orders", 0, (1, 2), (1, 2), Format.V1)


CANARY = broker(1, "0.11.0", "0.10.0", "0.10.0")
PEER_OF_V1 = broker(2, "0.11.0", "0.9.0", "0.9.0")
"""Fetches in version 1, as in the first variant of the document: its copy is converted."""
PEER_OF_V2 = broker(2, "0.11.0", "0.10.0", "0.9.0")
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


def test_a_copy_of_which_nothing_is_known_is_said_to_be_unknown() -> None:
    found = rolled(replace(CHANGED, replicas=(1, 9), in_sync=(1, 9)))
    assert (found.spread, found.unknown) == ({}, {"orders-0": (9,)})
    (reason,) = found.refused
    assert reason.startswith("orders-0: whether the copies on brokers 9 hold the new format is not known")


def test_our_broker_keeps_its_data() -> None:
    found = rolled(replace(CHANGED, in_sync=(1,)), canary=replace(CANARY, is_ours=True))
    assert (found.refused, found.removed) == ((), ())
    assert [each.do.split(":")[0] for each in found.steps] == [
        "in its server.properties",
        "restart broker 1",
        "nothing has to be removed",
        "see that it stores the old format",
    ]


def test_a_format_that_was_set_while_the_canary_ran_is_removed_because_it_overrides_its_file() -> None:
    canary = replace(CANARY, is_ours=True, dynamic=frozenset({"log.message.format.version"}))
    assert "magicbyte configs unset -b host:9092 --broker 1 log.message.format.version" in [
        each.command for each in rolled(CHANGED, canary=canary).steps
    ]


def test_what_a_follower_answers_counts_more_than_its_protocol() -> None:
    """The document's own variant: brokers of 0.10.0 and 0.10.2 do not return their protocol, but have their copies."""
    hidden = broker(2, "0.10.2")
    old = rolled(replace(CHANGED, copies={2: Format.V0}), peer=hidden)
    assert (old.refused, old.removed, old.spread, old.unknown) == ((), ("orders-0",), {}, {})
    assert rolled(replace(CHANGED, copies={2: Format.V1}), peer=hidden).spread == {"orders-0": (2,)}
    assert rolled(replace(CHANGED, copies={2: Format.V1}), peer=PEER_OF_V1).spread == {"orders-0": (2,)}
    assert rolled(replace(CHANGED, copies={2: None}), peer=PEER_OF_V1).spread == {}


def test_nothing_is_removed_where_nothing_was_written() -> None:
    found = rolled(replace(CHANGED, newest=None, in_sync=(1,)))
    assert (found.refused, found.removed) == ((), ())
    assert not any("remove these" in each.do for each in found.steps)
