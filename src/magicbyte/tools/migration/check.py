"""Find what the upgrade of a cluster to a release would break: refused clients, settings and stored formats.

Facts in, findings out, each with a remedy. The rules are those of real brokers: `tests/tools/migration` compares them
with the answers of 4.3.1 to each version of each request, to each format and each setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release, first_with
from magicbyte.tools.migration.evidence import Unknown
from magicbyte.tools.migration.sightings import CLIENT_ID, SeenClient, Sightings, caller_text, is_fetcher

_BETWEEN_BROKERS: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)
"""Keys of the APIs between controllers and brokers, which are upgraded together."""
_SEGMENT_SIZES: Final = ("segment.bytes", "log.segment.bytes")


class Weight(Enum):
    """The severity of a finding for the upgrade."""

    BREAKS = "breaks"
    UNKNOWN = "not known"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests that a release refuses. `least`: the oldest version that it accepts. `count` 0: unknown."""

    release: str
    api: str
    version: int
    least: int
    count: int
    last_ms: int | None

    @property
    def text(self) -> str:
        """The finding in one line; the date is in UTC."""
        count = f", {_many(self.count, 'request')}" if self.count else ""
        last = ""
        if self.last_ms is not None:
            last = f", last {datetime.fromtimestamp(self.last_ms // 1000, UTC):%Y-%m-%d %H:%M}"
        accepted = f"Kafka {self.release} accepts v{self.least} and later"
        return f"sends {self.api} v{self.version}{count}{last}; {accepted}"

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate check --format json`."""
        return {
            "api": self.api,
            "version": self.version,
            "leastVersion": self.least,
            "requests": self.count or None,
            "lastMs": self.last_ms,
        }


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """A finding about the upgrade. `subject`: a client, topic or broker. `do`: the remedy."""

    kind: str
    weight: Weight
    subject: str
    what: str
    do: str
    caller: SeenClient | None = None
    refused: tuple[Refused, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate check --format json`."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "weight": self.weight.value,
            "subject": self.subject,
            "what": self.what,
            "do": self.do,
        }
        if self.caller is not None:
            fields["client"] = {
                "id": self.caller.client_id,
                "software": self.caller.software or None,
                "version": self.caller.version or None,
                "address": self.caller.address or None,
            }
            fields["refused"] = [each.to_json() for each in self.refused]
        return fields


@dataclass(slots=True)
class Facts:
    """The known facts about a cluster. `brokers`, `topics`: their non-default settings.

    `answered`: the request versions that its brokers accept, by API key, if known. `stored`: the formats found in each
    topic. `unknown`: what could not be asked.
    """

    sightings: Sightings = field(default_factory=Sightings)
    answered: Mapping[int, range] = field(default_factory=dict)
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: dict[str, frozenset[Format]] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)


class Verdict(Enum):
    """The conclusion of a check. "Breaks nothing" is concluded only if nothing is unknown."""

    BREAKS = "breaks something"
    UNKNOWN = "not known"
    NOTHING = "breaks nothing that was seen"


@dataclass(frozen=True, slots=True)
class Check:
    """All findings, the most severe first. `sightings`: number of combinations of client, API and version checked."""

    target: str
    findings: tuple[UpgradeFinding, ...]
    sightings: int
    topics: int
    brokers: int
    notes: tuple[str, ...] = ()

    @property
    def looked_at(self) -> str:
        """The extent of the check, as text."""
        clients = _many(self.sightings, "kind") + " of requests by client"
        return f"{clients}, {_many(self.topics, 'topic')}, {_many(self.brokers, 'broker')}"

    @property
    def breaks(self) -> bool:
        """Whether the upgrade would break anything that was seen."""
        return any(each.weight is Weight.BREAKS for each in self.findings)

    @property
    def verdict(self) -> Verdict:
        """The conclusion from all findings."""
        if self.breaks:
            return Verdict.BREAKS
        is_unknown = any(each.weight is Weight.UNKNOWN for each in self.findings)
        return Verdict.UNKNOWN if is_unknown else Verdict.NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte migrate check --format json`."""
        return {
            "target": self.target,
            "breaks": self.breaks,
            "verdict": self.verdict.value,
            "lookedAt": {"sightings": self.sightings, "topics": self.topics, "brokers": self.brokers},
            "findings": [each.to_json() for each in self.findings],
            "notes": list(self.notes),
        }


def check(facts: Facts, target: Release, notes: Sequence[str] = ()) -> Check:
    """Return the findings about the upgrade of a cluster to `target`."""
    findings = [*_clients(facts, target), *_settings(facts, target), *_topics(facts, target), *_unknown(facts)]
    order = list(Weight)
    return Check(
        target.version,
        tuple(sorted(findings, key=lambda each: order.index(each.weight))),
        len(facts.sightings),
        len(facts.topics),
        len(facts.brokers),
        tuple(notes),
    )


def _unknown(facts: Facts) -> Iterator[UpgradeFinding]:
    for unknown in facts.unknown:
        yield UpgradeFinding("evidence", Weight.UNKNOWN, unknown.subject, unknown.what, unknown.do)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# ---- clients


def _clients(facts: Facts, target: Release) -> Iterator[UpgradeFinding]:
    """Yield the clients that send request versions older than the release accepts (KIP-896).

    Versions newer than it accepts are no finding, because such clients negotiate versions first.
    """
    by_caller: dict[SeenClient, list[tuple[int, Refused]]] = {}
    for asking, seen in facts.sightings:
        key, least = asking.api_key, target.oldest_version(asking.api_key)
        if asking.version < least and key not in _BETWEEN_BROKERS and asking.caller.client_id != CLIENT_ID:
            refused = Refused(target.version, APIS[key].name, asking.version, least, seen.count, seen.last_ms)
            by_caller.setdefault(asking.caller, []).append((key, refused))
    for caller, requests in by_caller.items():
        held_back = all((facts.answered.get(key) or range(each.least, each.least + 1))[-1] < each.least
                        for key, each in requests)  # fmt: skip
        yield UpgradeFinding(
            "client",
            Weight.UNKNOWN if held_back else Weight.BREAKS,
            caller_text(caller),
            "the present brokers support no newer versions, so it is unknown whether the client does"
            if held_back
            else f"Kafka {target.version} closes the connection of such requests",
            _client_advice(caller, [(key, each.least) for key, each in requests]),
            caller,
            tuple(each for _, each in requests),
        )


def _client_advice(caller: SeenClient, wanted: Iterable[tuple[int, int]]) -> str:
    if is_fetcher(caller.client_id):
        return "a broker's replication: upgrade the brokers, and raise inter.broker.protocol.version, before"
    least = sorted(set(wanted))
    releases = [line for key, version in least if (line := first_with(key, version)) is not None]
    speaks = ", ".join(f"{APIS[key].name} {version}" for key, version in least)
    java = max(releases, key=lambda line: tuple(map(int, line.split("."))), default=None)
    of_kafka = "" if java is None else f" (Kafka's Java clients: from {java} on)"
    return f"upgrade its library to one that speaks {speaks} or newer{of_kafka}"


# ---- settings


def _settings(facts: Facts, target: Release) -> Iterator[UpgradeFinding]:
    for broker, settings in facts.brokers.items():
        for name, value in settings.items():
            if (found := _setting(name, value, target)) is not None:
                weight, what, do = found
                yield UpgradeFinding("setting", weight, f"broker {broker}: {name}={value}", what, do)
    for topic, settings in facts.topics.items():
        for name, value in settings.items():
            if target.has_forgotten(name):
                what = f"Kafka {target.version} has no such setting, and refuses requests that set it"
                successor = _SUCCESSORS.get(name, "nothing replaces it")
                do = f"remove it from every tool that creates or changes topics; {successor}"
                yield UpgradeFinding("setting", Weight.CHANGES, f"topic {topic}: {name}={value}", what, do)
            elif name in _SEGMENT_SIZES and _is_below(value, target.least_segment_bytes):
                yield UpgradeFinding(
                    "setting", Weight.BREAKS, f"topic {topic}: {name}={value}", _too_small(target), _RAISE
                )


def _setting(name: str, value: str, target: Release) -> tuple[Weight, str, str] | None:
    """Return the severity of a broker's setting, the reason and the remedy, None for a harmless one."""
    if name in _SEGMENT_SIZES and _is_below(value, target.least_segment_bytes):
        return Weight.BREAKS, _too_small(target), _RAISE
    if not target.has_forgotten(name):
        return None
    if name == "zookeeper.connect":
        what = f"Kafka {target.version} has no ZooKeeper: a broker without process.roles does not start"
        return Weight.BREAKS, what, "migrate to KRaft on 3.9 first (KIP-866)"
    successor = _SUCCESSORS.get(name, "nothing replaces it")
    return Weight.CHANGES, f"Kafka {target.version} has no such setting and ignores it", f"remove it; {successor}"


_SUCCESSORS: Final = {
    "inter.broker.protocol.version": "the features of the cluster (kafka-features.sh) decide, at least 3.3 before 4.0",
    "log.message.format.version": "new records are stored in format v2",
    "message.format.version": "new records are stored in format v2",
    "log.message.downconversion.enable": "nothing is converted for old consumers, which are refused",
    "message.downconversion.enable": "nothing is converted for old consumers, which are refused",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and .after.max.ms replace it",
    "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and .after.max.ms replace it",
    "delegation.token.master.key": "delegation.token.secret.key replaces it",
    "advertised.host.name": "advertised.listeners replaces it",
    "advertised.port": "advertised.listeners replaces it",
    "host.name": "listeners replaces it",
    "port": "listeners replaces it",
    "quota.consumer.default": "quotas are set by kafka-configs.sh",
    "quota.producer.default": "quotas are set by kafka-configs.sh",
    "control.plane.listener.name": "controllers have listeners of their own (controller.listener.names)",
}
_RAISE: Final = "raise it to 1048576 or more before"


def _too_small(target: Release) -> str:
    return f"Kafka {target.version} refuses less than {target.least_segment_bytes} bytes"


def _is_below(value: str, least: int) -> bool:
    return value.isdecimal() and int(value) < least


# ---- topics


def _topics(facts: Facts, target: Release) -> Iterator[UpgradeFinding]:
    """Yield topics with formats that the release does not write. It serves formats v0 and v1 unconverted."""
    for topic, formats in facts.stored.items():
        if Format.ENRICHED in formats:
            do = f"convert it: magicbyte convert --to {Format.V2.title}"
            yield UpgradeFinding("topic", Weight.BREAKS, topic, "no Kafka reads the enriched format", do)
        old = sorted(form.title for form in formats if form in (Format.V0, Format.V1))
        if old and not target.converts_down:
            yield UpgradeFinding(
                "topic",
                Weight.CHANGES,
                topic,
                f"it holds format {' and '.join(old)}: Kafka {target.version} serves it unchanged, and writes "
                "format v2 in compaction",
                "keep consumers that read it, or wait for retention, or convert the logs of stopped brokers: "
                "magicbyte convert --to v2",
            )
