"""Where a cluster stands: the steps of KIP-31's plan in order, and what must not be."""

import pytest

from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release, releases_of
from magicbyte.tools.migration.sightings import CLIENT_ID, SeenClient, Sightings
from magicbyte.tools.migration.status import (
    BrokerFacts,
    ClusterPhase,
    ClusterStage,
    ClusterStep,
    old_clients,
    stage_of_cluster,
    target_of,
)
from magicbyte.tools.offline.migration import Phase, Step, TopicStage
from tools.migration.builders import broker

PRODUCE, FETCH, METADATA = 0, 1, 3
ONE = TopicStage(Format.V1, Phase.ONE, Step.UPGRADE_CONSUMERS)
TWO = TopicStage(Format.V1, Phase.TWO, Step.WAIT)
DONE = TopicStage(Format.V1, Phase.DONE, Step.NOTHING)


def staged(*brokers: BrokerFacts, topic: TopicStage = ONE) -> ClusterStage:
    return stage_of_cluster(brokers, [topic], Format.V1)


def test_the_steps_of_the_plan_come_in_their_order() -> None:
    """A cluster of two on its way from 0.9 to 0.10 and format 1, as in KIP-31."""
    old, new = broker(0, "0.9.0"), broker(1, "0.10.0", "0.9.0", "0.9.0")
    found = staged(old, new)
    assert (found.phase, found.step, found.brokers) == (ClusterPhase.BEFORE, ClusterStep.UPGRADE_BROKERS, (0,))
    found = staged(broker(0, "0.10.0", "0.9.0", "0.9.0"), broker(1, "0.10.0", "0.10.0", "0.9.0"))
    assert (found.phase, found.step, found.brokers) == (ClusterPhase.ONE, ClusterStep.RAISE_PROTOCOL, (0,))
    raised = [broker(number, "0.10.0", "0.10.0", "0.9.0") for number in (0, 1)]
    found = staged(*raised)
    assert (found.phase, found.step, found.brokers) == (ClusterPhase.ONE, ClusterStep.TOPICS, ())
    found = staged(raised[0], broker(1, "0.10.0", "0.10.0", "0.10.0"))
    assert (found.phase, found.step, found.brokers) == (ClusterPhase.CANARY, ClusterStep.JUDGE_CANARY, (1,))
    ahead = [broker(number, "0.10.0", "0.10.0", "0.10.0") for number in (0, 1)]
    found = staged(*ahead, topic=TWO)
    assert (found.phase, found.step) == (ClusterPhase.TWO, ClusterStep.TOPICS)
    found = staged(*ahead, topic=DONE)
    assert (found.phase, found.step, found.dangers) == (ClusterPhase.DONE, ClusterStep.NOTHING, ())


def test_nothing_is_advised_while_a_broker_is_silent() -> None:
    silent = BrokerFacts(0, "host0:9092", None, None)
    found = staged(silent, broker(1, "0.10.0", "0.10.0", "0.9.0"))
    assert (found.step, found.brokers, silent.software) == (ClusterStep.BRING_BACK, (0,), "does not answer")


def test_brokers_without_a_protocol_version_need_none_raised() -> None:
    found = BrokerFacts(0, "host:9092", Release.of("4.1").answered(), {})
    assert found.has_no_protocol
    assert staged(found, topic=DONE).phase is ClusterPhase.DONE


def test_a_protocol_that_an_old_broker_does_not_speak_is_a_danger() -> None:
    found = staged(broker(0, "0.9.0"), broker(1, "0.10.0", "0.10.0", "0.9.0"))
    (danger,) = found.dangers
    assert danger.startswith("broker 1: inter.broker.protocol.version 0.10.0 is newer than broker 0")
    assert "Fetch 2" in danger


def test_a_format_above_the_protocol_is_a_danger() -> None:
    (danger,) = staged(broker(0, "0.10.0", "0.9.0", "0.10.0")).dangers
    assert danger.startswith("broker 0: log.message.format.version 1 is above its inter.broker.protocol.version 0.9.0")
    assert staged(broker(0, "0.10.0", "0.9.0", "0.9.0")).dangers == ()


@pytest.mark.parametrize("line", ["0.10.0", "0.11.0", "1.1", "2.8", "3.9", "4.1"])
def test_a_release_is_recognized_by_the_versions_that_it_accepts(line: str) -> None:
    assert line in releases_of(Release.of(line).answered())
    assert BrokerFacts(0, "", Release.of(line).answered(), None).software.startswith("Kafka ")


def test_clients_are_old_by_the_newest_version_that_they_were_seen_to_use() -> None:
    sightings = Sightings()
    for name, key, version in (
        ("old", FETCH, 1), ("mixed", FETCH, 1), ("mixed", FETCH, 4), ("sender", PRODUCE, 2), ("sender", METADATA, 0),
        ("broker-1-fetcher-0", FETCH, 1), (CLIENT_ID, FETCH, 0),
    ):  # fmt: skip
        sightings.add(SeenClient(name), key, version)
    assert [each.text for each in old_clients(sightings, Format.V2)] == [
        "old reads up to v0, Fetch v1",
        "sender sends v1, Produce v2",
    ]
    assert [each.caller.client_id for each in old_clients(sightings, Format.V1)] == ["old"]


def test_the_target_is_what_is_wanted_or_the_newest_of_the_topics() -> None:
    assert target_of([ONE, TopicStage(Format.V2, Phase.ONE, Step.SET_FORMAT)], None) is Format.V2
    assert target_of([ONE], Format.V2) is Format.V2
    assert target_of([], None) is Format.V2
