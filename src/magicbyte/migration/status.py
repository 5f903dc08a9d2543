"""Find the stage of a cluster in the two-phase migration to a format, and its next step.

Source: KIP-31, "Compatibility, Deprecation, and Migration Plan": first the brokers' software, then the inter-broker
protocol, consumers, the format (of one broker as a canary, then of all), and the remaining clients. Facts in, a verdict
out.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magicbyte.archive.migration import Phase, TopicStage, format_read_by
from magicbyte.log.append.rules import stored_format
from magicbyte.migration.sightings import CLIENT_ID, SeenClient, Sightings, caller_text, is_fetcher
from magicbyte.records.encode import KAFKA_FORMATS, Format
from magicbyte.releases import PROTOCOL_OF_MAGIC, inter_broker_versions, protocol_name, protocol_version, releases_of

_PRODUCE, _FETCH = 0, 1


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker. `answered`: the request versions that it accepts, by API key, None if it does not answer.

    `settings`: those of protocol and format, by name; None if it does not answer DescribeConfigs. `is_ours`: it is a
    `magicbyte serve`, which supports every format.
    """

    id: int
    address: str
    answered: Mapping[int, range] | None
    settings: Mapping[str, str] | None
    is_ours: bool = False

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
        return None if self.answered is None else format_read_by(self.answered.get(_FETCH, range(1))[-1])

    @property
    def protocol(self) -> tuple[int, ...] | None:
        """Its `inter.broker.protocol.version`, None if unknown or removed from its release."""
        text = (self.settings or {}).get("inter.broker.protocol.version")
        try:
            return None if text is None else protocol_version(text)
        except ValueError:
            return None

    @property
    def format(self) -> Format | None:
        """Its `log.message.format.version`, None if unknown or removed from its release."""
        text = (self.settings or {}).get("log.message.format.version")
        if text is None:
            return None
        return Format.ENRICHED if text == Format.ENRICHED.value else stored_format(text)

    @property
    def has_no_protocol(self) -> bool:
        """Whether it returns its settings, without an inter-broker protocol version: from 4.0 on."""
        return self.settings is not None and "inter.broker.protocol.version" not in self.settings

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {
            "id": self.id,
            "address": self.address,
            "software": self.software,
            "knowsFormat": None if self.knows is None else self.knows.value,
            "protocol": None if self.protocol is None else protocol_name(self.protocol),
            "format": None if self.format is None else self.format.value,
        }


class ClusterPhase(enum.Enum):
    """The phase of a cluster's migration to a format."""

    BEFORE = "before phase 1"
    ONE = "phase 1"
    CANARY = "phase 1, with a canary"
    TWO = "phase 2"
    DONE = "done"


class ClusterStep(enum.Enum):
    """The next step of a cluster."""

    BRING_BACK = "bring the brokers back that do not answer"
    UPGRADE_BROKERS = "upgrade the brokers' software, one after the other"
    RAISE_PROTOCOL = "raise inter.broker.protocol.version, one broker after the other"
    JUDGE_CANARY = "watch the canary, then keep its format or roll it back"
    TOPICS = "take the next step of each topic"
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
    """The verdict. `brokers`: those that the step concerns. `dangers`: conflicting settings."""

    target: Format
    phase: ClusterPhase
    step: ClusterStep
    brokers: tuple[int, ...] = ()
    dangers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {
            "target": self.target.value,
            "phase": self.phase.value,
            "next": self.step.value,
            "brokers": list(self.brokers),
            "dangers": list(self.dangers),
        }


def old_clients(sightings: Sightings, target: Format) -> list[OldClient]:
    """Return the clients that do not read, or do not send, `target`. Replica fetchers are left out."""
    newest: dict[tuple[SeenClient, bool], OldClient] = {}
    for asking, _ in sightings:  # ascending by version, so the newest replaces the others
        caller, key, version = asking
        if key in (_PRODUCE, _FETCH) and not is_fetcher(caller.client_id) and caller.client_id != CLIENT_ID:
            form = format_read_by(version) if key == _FETCH else _format_sent_by(version)
            newest[caller, key == _FETCH] = OldClient(caller, key == _FETCH, form, version)
    return [each for each in newest.values() if each.format.magic < target.magic]


def _format_sent_by(produce_version: int) -> Format:
    return Format.V0 if produce_version < 2 else Format.V1 if produce_version < 3 else Format.V2


def target_of(stages: Sequence[TopicStage], wanted: Format | None) -> Format:
    """Return the target format of a cluster: `wanted`, or else the newest target of its topics."""
    if wanted is not None:
        return wanted
    return max((each.target for each in stages), key=lambda form: form.magic, default=KAFKA_FORMATS[-1])


def stage_of_cluster(brokers: Sequence[BrokerFacts], topics: Sequence[TopicStage], target: Format) -> ClusterStage:
    """Return the stage of a cluster. `topics`: the stages of its topics."""
    dangers = tuple(dangers_of(brokers))
    needed = PROTOCOL_OF_MAGIC[target.magic]
    silent = [each.id for each in brokers if each.answered is None]
    old = [each.id for each in brokers if each.knows is not None and each.knows.magic < target.magic]
    low = [each.id for each in brokers if each.protocol is not None and each.protocol < needed]
    formats = {each.id: each.format for each in brokers if each.format is not None}
    ahead = [number for number, form in formats.items() if form.magic >= target.magic]

    def stage(phase: ClusterPhase, step: ClusterStep, about: Iterable[int] = ()) -> ClusterStage:
        return ClusterStage(target, phase, step, tuple(about), dangers)

    is_two = all(each.phase is not Phase.ONE for each in topics)
    if old:
        return stage(ClusterPhase.BEFORE, ClusterStep.UPGRADE_BROKERS, old)
    if silent:  # their software and settings are unknown: no step is safe
        return stage(ClusterPhase.TWO if is_two else ClusterPhase.ONE, ClusterStep.BRING_BACK, silent)
    if low:
        return stage(ClusterPhase.ONE, ClusterStep.RAISE_PROTOCOL, low)
    if ahead and len(ahead) < len(formats):
        return stage(ClusterPhase.CANARY, ClusterStep.JUDGE_CANARY, ahead)
    if all(each.phase is Phase.DONE for each in topics):
        return stage(ClusterPhase.DONE, ClusterStep.NOTHING)
    return stage(ClusterPhase.TWO if is_two else ClusterPhase.ONE, ClusterStep.TOPICS)


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
        fetches = inter_broker_versions(protocol).get(_FETCH, 0)
        for other in brokers:
            if other.answered is not None and fetches > other.answered.get(_FETCH, range(1))[-1]:
                yield (
                    f"broker {broker.id}: inter.broker.protocol.version {protocol_name(protocol)} is newer than broker "
                    f"{other.id} ({other.software}), which refuses its Fetch {fetches}: lower it until that is upgraded"
                )
