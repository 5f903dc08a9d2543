"""Every conclusion of `migrate` and `plan`, with its evidence taken away: the tables of their pages are the cases."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import pytest

from magicbyte.cli.migrate import exit_status
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release
from magicbyte.tools.migration import planner
from magicbyte.tools.migration.canary import BrokerRates, judge_canary
from magicbyte.tools.migration.check import Facts, Verdict, check
from magicbyte.tools.migration.evidence import ClientSource, Unknown, unknown_clients
from magicbyte.tools.migration.planner import TopicFacts, TopicPlan
from magicbyte.tools.migration.procedure import objections
from magicbyte.tools.migration.rollback import LedPartition, roll_back
from magicbyte.tools.migration.sightings import CLIENT_ID, SeenClient, Sightings
from magicbyte.tools.migration.status import BrokerFacts, ClusterPhase, ClusterStage, ClusterStep, stage_of_cluster
from magicbyte.tools.migration.waiting import progress_of
from magicbyte.tools.offline.migration import SEE, Phase, Step, StoredEntries
from pages import EvidenceRow, evidence
from tools.migration.builders import broker

DOCS = Path(__file__).parents[3] / "docs/commands"
METADATA = 3


ROWS = evidence("migrate.md", "plan.md")


@dataclass
class World:
    """A cluster whose migration to v2 is done, as it is known. Evidence is taken away from it."""

    brokers: list[BrokerFacts] = field(
        default_factory=lambda: [broker(number, "1.1", "1.1", "1.1") for number in (0, 1)]
    )
    topic: TopicFacts = field(
        default_factory=lambda: TopicFacts(
            "orders",
            stored={(Format.V2, Codec.NONE): StoredEntries(1, 1)},
            shares=True,
            settings={"message.format.version": "2", "retention.ms": "1000"},
            is_asked=True,
        )
    )
    sightings: Sightings = field(default_factory=Sightings)
    sources: list[ClientSource] = field(default_factory=lambda: [ClientSource("kafka-request.log", 1)])
    silent: list[int] = field(default_factory=list)
    settings_unknown: list[Unknown] = field(default_factory=list)
    copies: dict[int, Format | None] = field(default_factory=lambda: {1: Format.V0})
    has_brokers: bool = True
    canary: BrokerRates = field(default_factory=lambda: BrokerRates(0, 10, 0, 0, 1, 1, 0.1, 0))

    def __post_init__(self) -> None:
        self.sightings.add(SeenClient("app"), METADATA, 5)

    @property
    def unknown_clients(self) -> list[Unknown]:
        return unknown_clients(self.sources, self.silent, has_clients=self.sightings.has_clients)

    def plan(self, target: Format = Format.V2) -> TopicPlan:
        brokers = self.brokers if self.has_brokers else None
        planned = planner.plan(
            {"orders": self.topic}, None, now_ms=0, target=target, rehearsals=0, brokers=brokers,
            knows_clients=not self.unknown_clients,
        )  # fmt: skip
        (topic,) = asyncio.run(planned).topics
        return topic

    def stage(self) -> ClusterStage:
        return stage_of_cluster(self.brokers, [self.plan().stage], Format.V2, (), self.unknown_clients)


def no_software(world: World) -> None:
    world.brokers[1] = BrokerFacts(1, "host1:9092", None, None)


def no_protocol(world: World) -> None:
    world.brokers[1] = broker(1, "1.1", form="1.1")
    world.brokers[1] = replace(world.brokers[1], given=frozenset({"log.message.format.version"}))


def no_format(world: World) -> None:
    world.brokers[1] = broker(1, "1.1", "1.1")


def no_topic_format(world: World) -> None:
    del world.topic.settings["message.format.version"]
    world.settings_unknown.append(Unknown("topic orders", "its settings are not known", "look"))


def no_stored(world: World) -> None:
    world.topic.unread.append(0)
    world.settings_unknown.append(Unknown("topic orders", "partitions 0 could not be read", "look"))


def no_retention(world: World) -> None:
    del world.topic.settings["retention.ms"]
    world.topic.is_asked = False
    world.topic.stored[Format.V1, Codec.NONE] = StoredEntries(1, 1)  # else it does not matter


def no_clients(world: World) -> None:
    world.sightings = Sightings()
    world.sightings.add(SeenClient(CLIENT_ID), METADATA, 5)  # this command itself is no client
    world.sources = []


def silent_source(world: World) -> None:
    world.sources.append(ClientSource("empty.log", 0, Unknown("empty.log", "no requests in it", "look")))


def silent_broker(world: World) -> None:
    world.silent.append(1)


def no_settings(world: World) -> None:
    world.settings_unknown.append(Unknown("broker 1", "its settings are not known", "look"))


def no_copy(world: World) -> None:
    world.copies[1] = None
    no_protocol(world)


def no_brokers(world: World) -> None:
    world.has_brokers = False


def no_figures(world: World) -> None:
    world.canary = replace(world.canary, fetch_ms=None)


TAKE: dict[str, Callable[[World], None]] = {
    "the software of each broker": no_software,
    "inter.broker.protocol.version of each broker": no_protocol,
    "log.message.format.version of each broker": no_format,
    "message.format.version of each topic": no_topic_format,
    "the stored formats of each partition": no_stored,
    "the retention of topics with older records": no_retention,
    "a client that was seen": no_clients,
    "requests in each source that is named": silent_source,
    "the clients of each broker": silent_broker,
    "the settings of each broker and topic": no_settings,
    "the formats of the copies in sync": no_copy,
    "that each broker is ready": no_brokers,
    "the figures of the canary and of another broker": no_figures,
}


def concluded(row: EvidenceRow, world: World) -> tuple[str, int]:
    """Return what a command concludes, and its exit status."""
    match row.command:
        case "check":
            facts = Facts(world.sightings, unknown=[*world.settings_unknown, *world.unknown_clients])
            report = check(facts, Release.of("4.3.1"))
            return report.verdict.value, exit_status(report)
        case "status, next":
            stage = world.stage()
            return stage.step.value if stage.phase is not ClusterPhase.DONE else "done", 1 if stage.dangers else 0
        case "next --wait":
            step = ClusterStep.SET_DEFAULT if "message" in row.evidence else ClusterStep.RAISE_PROTOCOL
            begun = ClusterStage(Format.V2, ClusterPhase.ONE, step, (0, 1))
            progress = progress_of(begun, [0, 1], world.brokers, 0)
            return "done" if progress.is_done else "not known" if progress.is_over else "not done", int(
                not progress.is_done
            )
        case "apply":
            world.topic.settings["message.format.version"] = "1"
            against = objections(world.brokers, [], world.plan(), Format.V2, world.unknown_clients)
            return "refused" if against else "set", int(bool(against))
        case "rollback":
            led = LedPartition("orders", 0, (0, 1), (0, 1), Format.V2, world.copies)
            plan = roll_back(world.brokers[0], world.brokers, [led], Format.V0, "host:9092")
            return "refused" if plan.refused else "it can go back", int(bool(plan.refused))
        case "canary --watch":
            judged = judge_canary(world.canary, [BrokerRates(1, 10, 0, 0, 1, 1, 0.1, 0)])
            return judged.verdict.value, int(not judged.keeps)
        case "plan":
            if row.conclusion == "set message.format.version":
                world.topic.settings["message.format.version"] = "1"
            stage_of_topic = world.plan().stage
            is_done = stage_of_topic.phase is Phase.DONE
            return "done" if is_done else stage_of_topic.step.value, 0
    raise AssertionError(row.command)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.command}: {row.conclusion} without {row.evidence}")
def test_without_its_evidence_nothing_is_concluded(row: EvidenceRow) -> None:
    whole = World()
    if row.evidence == "the retention of topics with older records":
        whole.topic.stored[Format.V1, Codec.NONE] = StoredEntries(1, 1)
        assert concluded(row, whole)[0] != row.without
    else:
        assert concluded(row, whole) == (row.conclusion, 0)
    world = World()
    TAKE[row.evidence](world)
    assert concluded(row, world) == (row.without, row.status)


def test_the_tables_have_every_evidence_and_every_conclusion() -> None:
    assert {row.evidence for row in ROWS} == TAKE.keys()
    concluded_without = {row.without for row in ROWS}
    assert {step.value for step in ClusterStep if step.value.startswith("see ")} <= concluded_without
    assert {step.value for step in SEE} <= concluded_without
    assert {row.command for row in ROWS} == {
        "check", "status, next", "next --wait", "apply", "rollback", "canary --watch", "plan"
    }  # fmt: skip


@pytest.mark.parametrize("count", [2, 3])
def test_of_any_evidence_taken_away_together_none_is_overlooked(count: int) -> None:
    for taken in combinations(TAKE.values(), count):
        done, world = World(), World()
        for take in taken:
            take(world)
        known = world.stage() == done.stage()
        assert known == (set(taken) <= {no_settings, no_brokers, no_figures}), (
            taken
        )  # which `status` does not depend on
        if not known:
            assert world.stage().phase is not ClusterPhase.DONE
            assert world.stage().step not in (ClusterStep.NOTHING, ClusterStep.TOPICS), taken
        report = check(
            Facts(world.sightings, unknown=[*world.settings_unknown, *world.unknown_clients]), Release.of("4.3.1")
        )
        nothing_known = bool(world.settings_unknown or world.unknown_clients)
        assert (report.verdict is Verdict.UNKNOWN) == nothing_known


def test_what_is_not_known_is_named_with_what_tells_it() -> None:
    for take in (no_software, no_protocol, no_format, no_clients, silent_source, silent_broker):
        world = World()
        take(world)
        assert world.stage().unknown
        assert all(unknown.subject and unknown.what and unknown.do for unknown in world.stage().unknown)
    assert World().stage().unknown == ()


def test_a_lone_old_broker_with_an_empty_topic_is_not_done() -> None:
    """0.10.2.2 returns no settings: the format of the first record is unknown until it is stored."""
    world = World(brokers=[broker(0, "0.10.2")], topic=TopicFacts("orders", shares=True))
    world.sources = []
    stage = stage_of_cluster(world.brokers, [world.plan(Format.V1).stage], Format.V1, (), world.unknown_clients)
    assert (stage.phase, stage.step) == (ClusterPhase.UNKNOWN, ClusterStep.SEE_PROTOCOL)
    given = replace(
        world.brokers[0],
        settings={"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"},
        given=frozenset({"inter.broker.protocol.version", "log.message.format.version"}),
    )
    world.brokers = [given]
    stage = stage_of_cluster(world.brokers, [world.plan(Format.V1).stage], Format.V1, (), world.unknown_clients)
    assert stage.step is ClusterStep.SEE_TOPICS
    assert world.plan(Format.V1).stage.step is Step.SEE_FORMAT
