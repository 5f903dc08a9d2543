"""Find the stage of a cluster in the two-phase migration to a format, and its next step.

Source: KIP-31, "Compatibility, Deprecation, and Migration Plan": first the brokers' software, then the inter-broker
protocol, consumers, the format (of one broker as a canary, then of all), and the remaining clients. Facts in, a verdict
out.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.engine.log.append.rules import stored_format
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.releases import (
    PROTOCOL_OF_MAGIC,
    inter_broker_versions,
    protocol_name,
    protocol_version,
    releases_of,
)
from magicbyte.tools.migration.evidence import Unknown
from magicbyte.tools.migration.sightings import CLIENT_ID, SeenClient, Sightings, caller_text, is_fetcher
from magicbyte.tools.offline.migration import SEE, Phase, Step, TopicStage, format_read_by

PROTOCOL: Final = "inter.broker.protocol.version"
FORMAT: Final = "log.message.format.version"
_FIXED_FROM: Final = (3, 0)
"""From this protocol version on, Kafka's brokers store format v2 whatever the setting is (KIP-724)."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker. `answered`: the request versions that it accepts, by API key, None if it does not answer.

    `settings`: those of protocol and format, by name; None if they are unknown. `is_ours`: it is a `magicbyte serve`,
    which supports every format. `given`: those of `settings` that the operator gave, because the broker does not return
    them. `dynamic`: those that were changed while it ran, which override its server.properties.
    """

    id: int
    address: str
    answered: Mapping[int, range] | None
    settings: Mapping[str, str] | None
    is_ours: bool = False
    given: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()

    @property
    def software(self) -> str:
        """Its software, as far as it follows from its request versions."""
        if self.is_ours:
            return "magicbyte"
        if self.answered is None:
            return "does not answer"
        lines = releases_of(self.answered)
        return f"Kafka {lines[0] if len(lines) == 1 else f'{lines[0]} to {lines[-1]}'}" if lines else "Kafka"

    @property
    def knows(self) -> Format | None:
        """The newest format that its software supports, None if it does not answer."""
        return None if self.answered is None else format_read_by(self.answered.get(ApiKey.FETCH, range(1))[-1])

    @property
    def protocol(self) -> tuple[int, ...] | None:
        """Its `inter.broker.protocol.version`, None if unknown or removed from its release."""
        text = (self.settings or {}).get(PROTOCOL)
        try:
            return None if text is None else protocol_version(text)
        except ValueError:
            return None

    @property
    def format(self) -> Format | None:
        """Its `log.message.format.version`, None if unknown or removed from its release."""
        text = (self.settings or {}).get(FORMAT)
        if text is None:
            return None
        return Format.ENRICHED if text == Format.ENRICHED.value else stored_format(text)

    @property
    def has_no_protocol(self) -> bool:
        """Whether it returns its settings, without an inter-broker protocol version: from 4.0 on."""
        return self.settings is not None and not self.given and PROTOCOL not in self.settings

    @property
    def stores_newest(self) -> bool:
        """Whether it stores format v2 whatever is set."""
        protocol = self.protocol
        return self.has_no_protocol or (not self.is_ours and protocol is not None and protocol >= _FIXED_FROM)

    @property
    def default_format(self) -> Format | None:
        """The format in which it stores records of topics without one of their own, None if unknown."""
        return Format.V2 if self.stores_newest else self.format

    def lacks_protocol(self, target: Format) -> bool:
        """Whether it is unknown, or known not to be, that its protocol version carries a format."""
        needed = PROTOCOL_OF_MAGIC[target.magic]
        if self.has_no_protocol or not target.magic:
            return False
        return self.protocol is None or self.protocol < needed

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {
            "id": self.id,
            "address": self.address,
            "software": self.software,
            "knowsFormat": None if self.knows is None else self.knows.value,
            "protocol": None if self.protocol is None else protocol_name(self.protocol),
            "format": None if self.format is None else self.format.value,
            "given": sorted(self.given),
            "changedWhileItRan": sorted(self.dynamic),
        }


class ClusterPhase(enum.Enum):
    """The phase of a cluster's migration to a format."""

    UNKNOWN = "not known"
    BEFORE = "before phase 1"
    ONE = "phase 1"
    CANARY = "phase 1, with a canary"
    TWO = "phase 2"
    DONE = "done"


class ClusterStep(enum.Enum):
    """The next step of a cluster. Those that begin with "see" find out what a further step depends on."""

    BRING_BACK = "bring the brokers back that do not answer"
    UPGRADE_BROKERS = "upgrade the brokers' software, one after the other"
    RAISE_PROTOCOL = "raise inter.broker.protocol.version, one broker after the other"
    SEE_PROTOCOL = "see which inter.broker.protocol.version the brokers have"
    SEE_FORMAT = "see which log.message.format.version the brokers have"
    JUDGE_CANARY = "watch the canary, then keep its format or roll it back"
    UPGRADE_CONSUMERS = "upgrade the consumers that read older formats only"
    TOPICS = "take the next step of each topic"
    SEE_TOPICS = "see what is not known of the topics"
    SET_DEFAULT = "set log.message.format.version, one broker after the other"
    UPGRADE_CLIENTS = "upgrade the clients that use older formats"
    SEE_CLIENTS = "see which clients use older formats"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class OldClient:
    """A client that only reads or writes older formats. `format`: the newest one seen."""

    caller: SeenClient
    is_consumer: bool
    format: Format
    version: int

    @property
    def text(self) -> str:
        """The use in one line."""
        does = f"reads up to {self.format.title}, Fetch" if self.is_consumer else f"sends {self.format.title}, Produce"
        return f"{caller_text(self.caller)} {does} v{self.version}"

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {
            "clientId": self.caller.client_id,
            "software": f"{self.caller.software} {self.caller.version}".strip() or None,
            "address": self.caller.address or None,
            "is": "consumer" if self.is_consumer else "producer",
            "format": self.format.value,
            "requestVersion": self.version,
        }


@dataclass(frozen=True, slots=True)
class ClusterStage:
    """The verdict. `brokers`: those that the step concerns. `dangers`: conflicting settings.

    `unknown`: what no source told, of what the steps depend on.
    """

    target: Format
    phase: ClusterPhase
    step: ClusterStep
    brokers: tuple[int, ...] = ()
    dangers: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {
            "target": self.target.value,
            "phase": self.phase.value,
            "next": self.step.value,
            "brokers": list(self.brokers),
            "dangers": list(self.dangers),
            "unknown": [each.to_json() for each in self.unknown],
        }


def old_clients(sightings: Sightings, target: Format) -> list[OldClient]:
    """Return the clients that do not read, or do not send, `target`. Replica fetchers are left out."""
    newest: dict[tuple[SeenClient, bool], OldClient] = {}
    for asking, _ in sightings:  # ascending by version, so the newest replaces the others
        caller, key, version = asking
        if key in (ApiKey.PRODUCE, ApiKey.FETCH) and not is_fetcher(caller.client_id) and caller.client_id != CLIENT_ID:
            form = format_read_by(version) if key == ApiKey.FETCH else _format_sent_by(version)
            newest[caller, key == ApiKey.FETCH] = OldClient(caller, key == ApiKey.FETCH, form, version)
    return [each for each in newest.values() if each.format.magic < target.magic]


def _format_sent_by(produce_version: int) -> Format:
    return Format.V0 if produce_version < 2 else Format.V1 if produce_version < 3 else Format.V2


def target_of(stages: Sequence[TopicStage], wanted: Format | None) -> Format:
    """Return the target format of a cluster: `wanted`, or else the newest target of its topics."""
    if wanted is not None:
        return wanted
    return max((each.target for each in stages), key=lambda form: form.magic, default=KAFKA_FORMATS[-1])


def stage_of_cluster(
    brokers: Sequence[BrokerFacts],
    topics: Sequence[TopicStage],
    target: Format,
    old: Sequence[OldClient] = (),
    unknown_clients: Sequence[Unknown] = (),
) -> ClusterStage:
    """Return the stage of a cluster. `topics`: the stages of its topics. `old`: its clients of older formats.

    `unknown_clients`: why its clients are not known, empty if they are.
    """
    unknown = (*unknown_settings(brokers, target), *unknown_clients)
    dangers = tuple(dangers_of(brokers))
    phase = _phase_of(brokers, topics, target)

    def stage(step: ClusterStep, about: Iterable[int] = (), phase: ClusterPhase = phase) -> ClusterStage:
        return ClusterStage(target, phase, step, tuple(about), dangers, unknown)

    behind, ahead, hidden = _by_format(brokers, target)
    is_two = phase is ClusterPhase.TWO
    if about := [broker.id for broker in brokers if broker.knows is not None and broker.knows.magic < target.magic]:
        return stage(ClusterStep.UPGRADE_BROKERS, about, ClusterPhase.BEFORE)
    if about := [broker.id for broker in brokers if broker.answered is None]:  # without their software no step is safe
        return stage(ClusterStep.BRING_BACK, about)
    if lacking := [broker for broker in brokers if broker.lacks_protocol(target)]:
        low = [each.id for each in lacking if each.protocol is not None]
        if low:
            return stage(ClusterStep.RAISE_PROTOCOL, low, ClusterPhase.ONE)
        return stage(ClusterStep.SEE_PROTOCOL, [each.id for each in lacking])
    if ahead and behind:
        return stage(ClusterStep.JUDGE_CANARY, ahead, ClusterPhase.CANARY)
    if hidden:
        return stage(ClusterStep.SEE_FORMAT, hidden)
    if not is_two and any(each.is_consumer for each in old):
        return stage(ClusterStep.UPGRADE_CONSUMERS)
    if any(each.step not in (*SEE, Step.NOTHING) for each in topics):
        return stage(ClusterStep.TOPICS)
    if behind and unknown_clients:
        return stage(ClusterStep.SEE_CLIENTS)
    if behind:
        return stage(ClusterStep.SET_DEFAULT, behind)
    if any(each.step in SEE - {Step.SEE_CLIENTS, Step.SEE_CONSUMERS} for each in topics):
        return stage(ClusterStep.SEE_TOPICS)
    if old:
        return stage(ClusterStep.UPGRADE_CLIENTS)
    if unknown_clients or any(each.step in SEE for each in topics):
        return stage(ClusterStep.SEE_CLIENTS)
    return stage(ClusterStep.NOTHING, phase=ClusterPhase.DONE)


def _phase_of(brokers: Sequence[BrokerFacts], topics: Sequence[TopicStage], target: Format) -> ClusterPhase:
    """Return phase 2 if every topic, and every broker's default, is known to store the target format."""
    behind, _, hidden = _by_format(brokers, target)
    if behind or any(each.phase is Phase.ONE for each in topics):
        return ClusterPhase.ONE
    is_known = not hidden and all(each.phase is not Phase.UNKNOWN for each in topics)
    return ClusterPhase.TWO if is_known else ClusterPhase.UNKNOWN


def _by_format(brokers: Sequence[BrokerFacts], target: Format) -> tuple[list[int], list[int], list[int]]:
    """Return the brokers whose default format is older than the target, those with the target or newer, and those
    that do not tell theirs.
    """
    behind, ahead, hidden = list[int](), list[int](), list[int]()
    for broker in brokers:
        form = broker.default_format
        (hidden if form is None else behind if form.magic < target.magic else ahead).append(broker.id)
    return behind, ahead, hidden


def unknown_settings(brokers: Sequence[BrokerFacts], target: Format) -> Iterator[Unknown]:
    """Yield the settings of brokers that a migration to a format depends on, and that no source told."""
    for broker in brokers:
        subject = f"broker {broker.id}"
        if broker.answered is None:
            yield Unknown(subject, "its software and settings are not known", "start it")
            continue
        if broker.protocol is None and broker.lacks_protocol(target):
            yield Unknown(subject, f"its {PROTOCOL} is not known", _give(broker, PROTOCOL))
        if broker.default_format is None:
            yield Unknown(subject, f"its {FORMAT} is not known", _give(broker, FORMAT))


def _give(broker: BrokerFacts, name: str) -> str:
    return f"see its server.properties, and give --broker-setting {broker.id}:{name}=VERSION"


def dangers_of(brokers: Sequence[BrokerFacts]) -> Iterable[str]:
    """Yield settings of brokers that conflict with other brokers or with their own protocol version."""
    for broker in brokers:
        protocol, form = broker.protocol, broker.format
        if protocol is not None and form is not None and form in KAFKA_FORMATS:
            needed = PROTOCOL_OF_MAGIC[form.magic]
            if protocol < needed and form is not Format.V0:
                yield (
                    f"broker {broker.id}: log.message.format.version {form.value} is above its "
                    f"inter.broker.protocol.version {protocol_name(protocol)}, whose brokers cannot read that; "
                    f"lower the format, or raise the protocol to {protocol_name(needed)} or later"
                )
        if protocol is None:
            continue
        fetches = inter_broker_versions(protocol).get(ApiKey.FETCH, 0)
        for other in brokers:
            if other.answered is not None and fetches > other.answered.get(ApiKey.FETCH, range(1))[-1]:
                yield (
                    f"broker {broker.id}: inter.broker.protocol.version {protocol_name(protocol)} is newer than broker "
                    f"{other.id} ({other.software}), which refuses its Fetch {fetches}: lower it until that is upgraded"
                )
