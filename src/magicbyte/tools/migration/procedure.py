"""Describe the next step of a migration as a procedure, and the objections to a topic's new format. Decisions only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import MAGIC_NAMES, PROTOCOL_OF_MAGIC, protocol_name, releases_of
from magicbyte.tools.migration.evidence import Unknown
from magicbyte.tools.migration.planner import TopicPlan
from magicbyte.tools.migration.status import FORMAT, PROTOCOL, BrokerFacts, ClusterStage, ClusterStep, OldClient
from magicbyte.tools.offline.migration import SEE, Step, TopicStage

TOPIC_FORMAT: Final = "message.format.version"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a procedure. `command`: the command for it, None if there is none."""

    do: str
    command: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate next --format json`."""
        return {"do": self.do, "command": self.command}


def procedure(
    stage: ClusterStage,
    brokers: Sequence[BrokerFacts],
    topics: Mapping[str, TopicStage],
    bootstrap: str,
    old: Sequence[OldClient] = (),
) -> list[Instruction]:
    """Return the instructions for the next step of a cluster. `old`: its clients of older formats."""
    instructions = [Instruction(f"first: {danger}") for danger in stage.dangers]
    about = ", ".join(map(str, stage.brokers))
    target = MAGIC_NAMES[stage.target.magic]
    healthy = Instruction(
        "after each broker, wait until every replica is in sync", f"magicbyte cluster status -b {bootstrap}"
    )
    status = Instruction("at the end, see that the step is done", f"magicbyte migrate status -b {bootstrap}")
    match stage.step:
        case ClusterStep.BRING_BACK:
            instructions.append(Instruction(f"start the brokers {about}: their software and protocol are unknown"))
        case ClusterStep.UPGRADE_BROKERS:
            protocol, form = _protocol_of_oldest(brokers), _oldest_format(brokers)
            instructions += [
                Instruction(
                    f"in server.properties of every broker: {PROTOCOL}={protocol}, {FORMAT}={form}, unless an older "
                    "version is set there"
                ),
                *lifted(brokers, [broker.id for broker in brokers], bootstrap),
                Instruction(
                    f"for each of the brokers {about}, one after the other: stop it, replace its software, start it"
                ),
                healthy,
            ]
        case ClusterStep.RAISE_PROTOCOL:
            protocol = protocol_name(PROTOCOL_OF_MAGIC[stage.target.magic])
            instructions += [
                Instruction(
                    f"in server.properties of the brokers {about}: {PROTOCOL}={protocol} or later; {FORMAT} stays"
                ),
                *_hidden(
                    PROTOCOL, [broker.id for broker in brokers if _hides_protocol(broker, stage)], stage, bootstrap
                ),
                Instruction(f"restart the brokers {about}, one after the other"),
                healthy,
            ]
        case ClusterStep.JUDGE_CANARY:
            formats = [(broker, broker.default_format) for broker in brokers]
            behind = [each for each, form in formats if form is not None and form.magic < stage.target.magic]
            older = _oldest_format(behind)
            instructions += [
                *(
                    Instruction(
                        f"compare broker {number} with the others for a day",
                        f"magicbyte migrate canary -b {bootstrap} --broker {number} --watch 3600",
                    )
                    for number in stage.brokers
                ),
                Instruction(f"to keep it: {FORMAT}={target} on the other brokers, restarted one after the other"),
                *lifted(brokers, [each.id for each in behind], bootstrap),
                *(
                    Instruction(
                        "to roll it back",
                        f"magicbyte migrate rollback -b {bootstrap} --broker {number} --to v{MAGIC_NAMES.index(older)}",
                    )
                    for number in stage.brokers
                ),
            ]
        case ClusterStep.SET_DEFAULT:
            instructions += [
                Instruction(
                    f"in server.properties of the brokers {about}: {FORMAT}={target}, for topics without a format of "
                    "their own"
                ),
                *lifted(brokers, stage.brokers, bootstrap),
                Instruction(f"restart the brokers {about}, one after the other"),
                healthy,
            ]
        case ClusterStep.UPGRADE_CONSUMERS | ClusterStep.UPGRADE_CLIENTS:
            instructions += [Instruction(f"upgrade {each.text}") for each in _concerned(stage, old)]
        case ClusterStep.TOPICS:
            instructions += [
                each for name, topic in sorted(topics.items()) for each in _topic(name, topic, brokers, bootstrap)
            ]
        case ClusterStep.SEE_PROTOCOL | ClusterStep.SEE_FORMAT | ClusterStep.SEE_TOPICS | ClusterStep.SEE_CLIENTS:
            instructions += _seen(stage, topics, bootstrap)
        case ClusterStep.NOTHING:
            done = (
                f"every topic and every broker stores {stage.target.title}, and no client of an older format was seen"
            )
            return [*instructions, Instruction(f"nothing: {done}")]
        case _:
            assert_never(stage.step)
    return [*instructions, status]


def _concerned(stage: ClusterStage, old: Iterable[OldClient]) -> Iterable[OldClient]:
    return (each for each in old if each.is_consumer or stage.step is ClusterStep.UPGRADE_CLIENTS)


def _seen(stage: ClusterStage, topics: Mapping[str, TopicStage], bootstrap: str) -> Iterator[Instruction]:
    """Yield how to find out what a step depends on, and to give it to the command."""
    wanted = {ClusterStep.SEE_PROTOCOL: PROTOCOL, ClusterStep.SEE_FORMAT: FORMAT}.get(stage.step)
    if wanted is not None:
        yield from _hidden(wanted, stage.brokers, stage, bootstrap)
    if stage.step is ClusterStep.SEE_TOPICS:
        for name, topic in sorted(topics.items()):
            if topic.step in SEE:
                yield Instruction(f"{name}: {topic.step.value}")
    if stage.step is ClusterStep.SEE_CLIENTS:
        yield from (Instruction(f"see which clients there are: {each.what}: {each.do}") for each in stage.unknown)


def _hides_protocol(broker: BrokerFacts, stage: ClusterStage) -> bool:
    return broker.protocol is None and broker.lacks_protocol(stage.target)


def _hidden(name: str, brokers: Iterable[int], stage: ClusterStage, bootstrap: str) -> Iterator[Instruction]:
    """Yield how to find out a setting of brokers that do not return it, and to give it to the command."""
    least = MAGIC_NAMES[stage.target.magic]
    if name == PROTOCOL:
        least = f"{protocol_name(PROTOCOL_OF_MAGIC[stage.target.magic])} or later"
    for number in brokers:
        yield Instruction(
            f"see in server.properties of broker {number} that {name} is {least}, and give what it is",
            f"magicbyte migrate next -b {bootstrap} --broker-setting {number}:{name}=VERSION",
        )


def lifted(brokers: Iterable[BrokerFacts], about: Collection[int], bootstrap: str) -> Iterator[Instruction]:
    """Yield the removal of formats that were changed while a broker ran: they override its server.properties."""
    for broker in brokers:
        if broker.id in about and FORMAT in broker.dynamic:
            yield Instruction(
                f"remove the {FORMAT} that was set while broker {broker.id} ran: it overrides its server.properties",
                f"magicbyte configs unset -b {bootstrap} --broker {broker.id} {FORMAT}",
            )


def _topic(name: str, stage: TopicStage, brokers: Sequence[BrokerFacts], bootstrap: str) -> Iterator[Instruction]:
    if stage.step in (Step.UPGRADE_CONSUMERS, Step.UPGRADE_PRODUCERS):
        who = ", ".join(sorted({each.client_id or "without a client id" for each in stage.who}))
        yield Instruction(f"{name}: {stage.step.value}: {who}")
    elif stage.step is Step.SET_FORMAT:
        command = f"magicbyte migrate apply -b {bootstrap} --to {stage.target.title} --topic {name}"
        if (reason := _cannot_change(brokers)) is not None:
            setting = f"{TOPIC_FORMAT}={MAGIC_NAMES[stage.target.magic]}"
            yield Instruction(
                f"{name}: store new records in format {stage.target.title}, by the tool of the brokers' own release "
                f"({reason})",
                f"kafka-configs.sh --zookeeper HOST:2181 --alter --entity-type topics --entity-name {name} "
                f"--add-config {setting}",
            )
        else:
            yield Instruction(f"{name}: store new records in format {stage.target.title}", command)
    elif stage.step is Step.WAIT:
        yield Instruction(
            f"{name}: wait until retention has deleted older records", f"magicbyte plan -b {bootstrap} --topic {name}"
        )
    elif stage.step is Step.CONVERT:
        command = f"magicbyte convert --to {stage.target.title}"
        yield Instruction(f"{name}: convert the logs of stopped brokers, or keep the older records", command)
    elif stage.step in SEE:
        yield Instruction(f"{name}: {stage.step.value}")


def _cannot_change(brokers: Sequence[BrokerFacts]) -> str | None:
    """Return why no broker may change the settings of topics, None if one may.

    Brokers before 0.11 do not know the request. Kafka's from there on tell the others of a change in a form that those
    before 0.10.1 do not read: they die at their next start.
    """
    able = [broker for broker in brokers if broker.answered is not None and ApiKey.ALTER_CONFIGS in broker.answered]
    if not able:
        return "brokers change settings by request from 0.11 on"
    first = [
        broker.id for broker in brokers if broker.answered is not None and ApiKey.CREATE_TOPICS not in broker.answered
    ]
    if first and not all(each.is_ours for each in able):
        numbers = ", ".join(map(str, first))
        return f"brokers {numbers} are older than 0.10.1, and do not read what Kafka's later brokers tell of changes"
    return None


def _protocol_of_oldest(brokers: Iterable[BrokerFacts]) -> str:
    """Return the protocol version of the oldest broker's software."""
    known = [broker for broker in brokers if broker.knows is not None and broker.answered is not None]
    oldest = min(known, key=lambda each: (each.knows or Format.V0).magic)
    lines = releases_of(oldest.answered or {})
    return lines[0] if lines else MAGIC_NAMES[(oldest.knows or Format.V0).magic]


def _oldest_format(brokers: Iterable[BrokerFacts]) -> str:
    """Return the oldest format of some brokers, as `log.message.format.version`."""
    formats = (broker.format or broker.knows or Format.V2 for broker in brokers)
    return MAGIC_NAMES[min((form.magic for form in formats), default=0)]


def objections(
    brokers: Sequence[BrokerFacts],
    old: Iterable[OldClient],
    plan: TopicPlan,
    target: Format,
    unknown_clients: Iterable[Unknown] = (),
) -> list[str]:
    """Return the reasons against setting a topic's format to `target`, empty if there are none.

    `old`: the clients that cannot read or do not send the format. `unknown_clients`: why clients are not known, which
    matters where the format is raised.
    """
    needed = protocol_name(PROTOCOL_OF_MAGIC[target.magic])
    against = []
    for facts in brokers:
        name = f"broker {facts.id} ({facts.software})"
        if facts.knows is None:
            against.append(f"{name}: its software is unknown")
        elif facts.knows.magic < target.magic:
            against.append(f"{name} does not know format {target.title}: upgrade it before")
        elif facts.lacks_protocol(target) and facts.protocol is None:
            against.append(
                f"{name}: its {PROTOCOL} is not known: see that it is {needed} or later, and give it with "
                "--broker-setting"
            )
        elif facts.lacks_protocol(target):
            against.append(
                f"{name} has {PROTOCOL} {protocol_name(facts.protocol or ())}, below the format: raise it to {needed} "
                "or later before"
            )
        elif facts.stores_newest:
            against.append(f"{name} stores format v2 whatever is set")
    if (reason := _cannot_change(brokers)) is not None:
        against.append(f"{reason}: kafka-configs.sh of the brokers' own release changes it")
    newer = sorted({form.title for form, _ in plan.facts.stored if form.magic > target.magic})
    if newer and not all(broker.is_ours for broker in brokers):
        against.append(
            f"format {' and '.join(newer)} stays in the log: Kafka's brokers convert by the setting, and send it "
            "unconverted to consumers that cannot read it"
        )
    consumers = [each for each in old if each.is_consumer]
    against += [f"{each.text}: everything is converted for it" for each in consumers]
    known = {each.caller.client_id for each in consumers}
    others = {each.client_id for each in plan.stage.who if each.is_consumer} - known
    against += [f"{name or 'a consumer without a client id'} reads older formats alone" for name in sorted(others)]
    configured = plan.facts.configured if plan.facts.knows_format else None
    if configured is None or configured.magic < target.magic:
        against += [
            f"whether consumers read format {target.title} is not known: {each.text}" for each in unknown_clients
        ]
    return against
