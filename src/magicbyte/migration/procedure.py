"""Describe the next step of a migration as a procedure, and the objections to a topic's new format. Decisions only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from magicbyte.archive.migration import Step, TopicStage
from magicbyte.migration.status import BrokerFacts, ClusterStage, ClusterStep, OldClient
from magicbyte.records.encode import Format
from magicbyte.releases import MAGIC_NAMES, PROTOCOL_OF_MAGIC, protocol_name, releases_of

FORMAT: Final = "message.format.version"
_FIXED_FROM: Final = (3, 0)
"""From this protocol version on, Kafka's brokers store format v2 whatever the setting is (KIP-724)."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a procedure. `command`: the command for it, None if there is none."""

    do: str
    command: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate next --format json`."""
        return {"do": self.do, "command": self.command}


def procedure(
    stage: ClusterStage, brokers: Sequence[BrokerFacts], topics: Mapping[str, TopicStage], bootstrap: str
) -> list[Instruction]:
    """Return the instructions for the next step of a cluster."""
    instructions = [Instruction(f"first: {danger}") for danger in stage.dangers]
    about = ", ".join(map(str, stage.brokers))
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
                    f"in server.properties of every broker: inter.broker.protocol.version={protocol}, "
                    f"log.message.format.version={form}"
                ),
                Instruction(
                    f"for each of the brokers {about}, one after the other: stop it, replace its software, start it"
                ),
                healthy,
            ]
        case ClusterStep.RAISE_PROTOCOL:
            protocol = protocol_name(PROTOCOL_OF_MAGIC[stage.target.magic])
            instructions += [
                Instruction(
                    f"in server.properties of the brokers {about}: inter.broker.protocol.version={protocol} or later; "
                    "log.message.format.version stays"
                ),
                Instruction(f"restart the brokers {about}, one after the other"),
                healthy,
            ]
        case ClusterStep.JUDGE_CANARY:
            instructions += [
                *(
                    Instruction(
                        f"compare broker {number} with the others for a day",
                        f"magicbyte migrate canary -b {bootstrap} --broker {number} --watch 3600",
                    )
                    for number in stage.brokers
                ),
                Instruction(
                    f"to keep it: log.message.format.version={MAGIC_NAMES[stage.target.magic]} on the other brokers, "
                    "restarted one after the other"
                ),
                *(
                    Instruction(
                        "to roll it back", f"magicbyte migrate rollback -b {bootstrap} --broker {number} --to OLD"
                    )
                    for number in stage.brokers
                ),
            ]
        case ClusterStep.TOPICS:
            instructions += [each for name, topic in sorted(topics.items()) for each in _topic(name, topic, bootstrap)]
        case ClusterStep.NOTHING:
            return [*instructions, Instruction("nothing: every topic holds and every client speaks the format")]
        case _:
            assert_never(stage.step)
    return [*instructions, status]


def _topic(name: str, stage: TopicStage, bootstrap: str) -> Iterator[Instruction]:
    if stage.step in (Step.UPGRADE_CONSUMERS, Step.UPGRADE_PRODUCERS):
        who = ", ".join(sorted({each.client_id or "without a client id" for each in stage.who}))
        yield Instruction(f"{name}: {stage.step.value}: {who}")
    elif stage.step is Step.SET_FORMAT:
        command = f"magicbyte migrate apply -b {bootstrap} --to {stage.target.title} --topic {name}"
        yield Instruction(f"{name}: store new records in format {stage.target.title}", command)
    elif stage.step is Step.WAIT:
        yield Instruction(
            f"{name}: wait until retention has deleted older records", f"magicbyte plan -b {bootstrap} --topic {name}"
        )
    elif stage.step is Step.CONVERT:
        command = f"magicbyte convert --to {stage.target.title}"
        yield Instruction(f"{name}: convert the logs of stopped brokers, or keep the older records", command)


def _protocol_of_oldest(brokers: Iterable[BrokerFacts]) -> str:
    """Return the protocol version of the oldest broker's software."""
    known = [each for each in brokers if each.knows is not None and each.answered is not None]
    oldest = min(known, key=lambda each: (each.knows or Format.V0).magic)
    lines = releases_of(oldest.answered or {})
    return lines[0] if lines else MAGIC_NAMES[(oldest.knows or Format.V0).magic]


def _oldest_format(brokers: Iterable[BrokerFacts]) -> str:
    return MAGIC_NAMES[min((each.format or each.knows or Format.V2).magic for each in brokers)]


def objections(
    brokers: Sequence[BrokerFacts],
    old: Iterable[OldClient],
    stage: TopicStage,
    stored: Iterable[Format],
    target: Format,
) -> list[str]:
    """Return the reasons against setting a topic's format to `target`, empty if there are none.

    `old`: the clients that cannot read or do not send the format. `stage`: of the topic. `stored`: its formats.
    """
    needed = PROTOCOL_OF_MAGIC[target.magic]
    against = []
    for facts in brokers:
        name = f"broker {facts.id} ({facts.software})"
        if facts.knows is None:
            against.append(f"{name}: its software is unknown")
        elif facts.knows.magic < target.magic:
            against.append(f"{name} does not know format {target.title}: upgrade it before")
        elif facts.protocol is not None and facts.protocol < needed:
            against.append(
                f"{name} has inter.broker.protocol.version {protocol_name(facts.protocol)}, below the format: raise it "
                f"to {protocol_name(needed)} or later before"
            )
        elif facts.has_no_protocol or (
            not facts.is_ours and facts.protocol is not None and facts.protocol >= _FIXED_FROM
        ):
            against.append(f"{name} stores format v2 whatever is set")
    newer = sorted(form.title for form in stored if form.magic > target.magic)
    if newer and not all(each.is_ours for each in brokers):
        against.append(
            f"format {' and '.join(newer)} stays in the log: Kafka's brokers convert by the setting, and send it "
            "unconverted to consumers that cannot read it"
        )
    consumers = [each for each in old if each.is_consumer]
    against += [f"{each.text}: everything is converted for it" for each in consumers]
    known = {each.caller.client_id for each in consumers}
    others = {each.client_id for each in stage.who if each.is_consumer} - known
    return against + [
        f"{name or 'a consumer without a client id'} reads older formats alone" for name in sorted(others)
    ]
