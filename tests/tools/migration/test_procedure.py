"""The next step as a procedure, and what speaks against setting a format."""

from dataclasses import replace

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release
from magicbyte.tools.migration.evidence import Unknown
from magicbyte.tools.migration.planner import TopicFacts, TopicPlan
from magicbyte.tools.migration.procedure import objections, procedure
from magicbyte.tools.migration.sightings import SeenClient
from magicbyte.tools.migration.status import BrokerFacts, ClusterPhase, ClusterStage, ClusterStep, OldClient
from magicbyte.tools.offline.migration import Phase, Step, StoredEntries, TopicStage, Use
from tools.migration import builders

READY = TopicStage(Format.V1, Phase.ONE, Step.SET_FORMAT)
OLD = OldClient(SeenClient("old", "library", "1", "10.0.0.7"), is_consumer=True, format=Format.V0, version=1)
USE = Use(True, Format.V0, 1, "reader", "", 1, 0, 0, 0, 0, 0)


def broker(number: int, release: str, protocol: str, form: str) -> BrokerFacts:
    settings = {"inter.broker.protocol.version": protocol, "log.message.format.version": form}
    return BrokerFacts(number, f"host{number}:9092", Release.of(release).answered(), settings)


def planned(stage: TopicStage, *stored: Format) -> TopicPlan:
    facts = TopicFacts("orders", stored={(form, Codec.NONE): StoredEntries(1, 1) for form in stored})
    return TopicPlan(facts, stage, (), 0)


NEW = broker(1, "0.11.0", "0.10.0", "0.9.0")


def stage(step: ClusterStep, *brokers: int, dangers: tuple[str, ...] = ()) -> ClusterStage:
    return ClusterStage(Format.V1, ClusterPhase.ONE, step, brokers, dangers)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (ClusterStep.BRING_BACK, ["start the brokers 0"]),
        (
            ClusterStep.UPGRADE_BROKERS,
            ["inter.broker.protocol.version=0.9.0, log.message.format.version=0.9.0", "for each of the brokers 0"],
        ),
        (
            ClusterStep.RAISE_PROTOCOL,
            ["brokers 0: inter.broker.protocol.version=0.10.0 or later", "restart the brokers 0"],
        ),
        (
            ClusterStep.JUDGE_CANARY,
            ["compare broker 0 with the others", "to keep it: log.message.format.version=0.10.0", "roll it back"],
        ),
        (ClusterStep.TOPICS, ["orders: store new records in format v1"]),
        (ClusterStep.NOTHING, ["nothing"]),
        (ClusterStep.SET_DEFAULT, ["log.message.format.version=0.10.0", "restart the brokers 0"]),
        (
            ClusterStep.SEE_PROTOCOL,
            ["see in server.properties of broker 0 that inter.broker.protocol.version is 0.10.0"],
        ),
        (ClusterStep.SEE_FORMAT, ["see in server.properties of broker 0 that log.message.format.version is 0.10.0"]),
    ],
)
def test_each_step_has_its_procedure(step: ClusterStep, said: list[str]) -> None:
    old = replace(broker(0, "0.9.0", "0.9.0", "0.9.0"), settings=None)
    found = procedure(stage(step, 0), [old, NEW], {"orders": READY}, "host:9092")
    assert [any(text in each.do for each in found) for text in said] == [True] * len(said)
    if step is not ClusterStep.NOTHING:
        assert found[-1].command == "magicbyte migrate status -b host:9092"


def test_dangers_come_first() -> None:
    found = procedure(stage(ClusterStep.TOPICS, dangers=("broker 1: something",)), [NEW], {"orders": READY}, "b")
    assert found[0].do == "first: broker 1: something"
    assert found[1].command == "magicbyte migrate apply -b b --to v1 --topic orders"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Step.UPGRADE_CONSUMERS, "t: upgrade consumers: reader"),
        (Step.WAIT, "t: wait until retention"),
        (Step.CONVERT, "t: convert the logs"),
    ],
)
def test_a_topic_has_its_own_step(step: Step, said: str) -> None:
    topic = TopicStage(Format.V1, Phase.TWO, step, (USE,) if step is Step.UPGRADE_CONSUMERS else ())
    assert procedure(stage(ClusterStep.TOPICS), [NEW], {"t": topic}, "b")[0].do.startswith(said)


def test_there_is_no_objection_to_a_format_that_all_clients_know() -> None:
    assert objections([NEW], [], planned(READY, Format.V0), Format.V1) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (BrokerFacts(0, "", None, None), "broker 0 (does not answer): its software is unknown"),
        (broker(0, "0.9.0", "0.9.0", "0.9.0"), "does not know format v1"),
        (broker(0, "0.11.0", "0.9.0", "0.9.0"), "inter.broker.protocol.version 0.9.0, below the format"),
        (broker(0, "3.9", "3.0", "2.8"), "stores format v2 whatever is set"),
        (BrokerFacts(0, "", Release.of("4.1").answered(), {}), "stores format v2 whatever is set"),
    ],
)
def test_a_format_that_a_broker_cannot_go_along_with_is_refused(other: BrokerFacts, said: str) -> None:
    first, *others = objections([other, NEW], [], planned(READY), Format.V1)
    assert said in first
    assert len(others) == (other.software == "Kafka 0.9.0")  # which does not read what a 0.11 tells of the change


def test_old_consumers_are_an_objection_and_old_producers_are_none() -> None:
    consumer, producer = OLD, replace(OLD, is_consumer=False)
    found = objections([NEW], [consumer, producer], planned(replace(READY, who=(USE,))), Format.V1)
    assert found == [
        "old (library 1, 10.0.0.7) reads up to v0, Fetch v1: everything is converted for it",
        "reader reads older formats alone",
    ]


def test_records_in_a_newer_format_are_an_objection_at_kafkas_brokers_alone() -> None:
    (objection,) = objections([NEW], [], planned(READY, Format.V1), Format.V0)
    assert objection.startswith("format v1 stays in the log")
    assert objections([replace(NEW, is_ours=True)], [], planned(READY, Format.V1), Format.V0) == []


def test_unseen_consumers_are_an_objection_where_the_format_is_raised() -> None:
    unknown = [Unknown("clients", "no client was seen", "give --capture")]
    (objection,) = objections([NEW], [], planned(READY), Format.V1, unknown)
    assert objection == "whether consumers read format v1 is not known: clients: no client was seen: give --capture"
    raised = planned(READY)
    raised.facts.settings["message.format.version"] = "0.10.0"
    assert objections([NEW], [], raised, Format.V0, unknown) == []


def test_where_no_broker_changes_settings_the_brokers_own_tool_is_printed() -> None:
    """Kafka changes settings by request from 0.11 on; one before 0.10.1 does not read what a 0.11 tells of a change."""
    for brokers in ([builders.broker(0, "0.10.2", "0.10.2", "0.9.0")], [builders.broker(0, "0.10.0", "0.10.0"), NEW]):
        found = procedure(stage(ClusterStep.TOPICS), brokers, {"orders": READY}, "b")
        assert found[0].command == (
            "kafka-configs.sh --zookeeper HOST:2181 --alter --entity-type topics --entity-name orders "
            "--add-config message.format.version=0.10.0"
        )
        assert "kafka-configs.sh" in " ".join(objections(brokers, [], planned(READY), Format.V1))
    ours = replace(NEW, is_ours=True)  # which writes what the oldest of the cluster reads
    found = procedure(stage(ClusterStep.TOPICS), [builders.broker(0, "0.10.0", "0.10.0"), ours], {"t": READY}, "b")
    assert found[0].command == "magicbyte migrate apply -b b --to v1 --topic t"


def test_the_roll_back_names_the_format_that_the_others_have() -> None:
    canary = builders.broker(0, "1.1", "1.1", "0.11.0")
    others = [builders.broker(1, "1.1", "1.1", "0.10.2"), builders.broker(2, "1.1", "1.1", "0.10.2")]
    judged = replace(stage(ClusterStep.JUDGE_CANARY, 0), target=Format.V2)
    commands = [each.command for each in procedure(judged, [canary, *others], {}, "b")]
    assert "magicbyte migrate rollback -b b --broker 0 --to v1" in commands


def test_a_format_that_was_set_while_a_broker_ran_is_removed_before_its_file_counts() -> None:
    changed = replace(builders.broker(0, "1.1", "1.1", "0.9.0"), dynamic=frozenset({"log.message.format.version"}))
    found = procedure(stage(ClusterStep.SET_DEFAULT, 0), [changed], {}, "b")
    assert found[1].command == "magicbyte configs unset -b b --broker 0 log.message.format.version"
