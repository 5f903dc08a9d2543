"""Roll back a canary: find the copies with the new format, and the steps that remove them. Decisions only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import MAGIC_NAMES, inter_broker_versions
from magicbyte.tools.migration.procedure import Instruction, lifted
from magicbyte.tools.migration.status import FORMAT, PROTOCOL, BrokerFacts
from magicbyte.tools.offline.migration import format_read_by


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that the canary leads. `newest`: the newest format found in it, None if it is empty.

    `copies`: by follower, the format of its copy where the canary has the newest; None if the follower did not tell.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    newest: Format | None
    copies: Mapping[int, Format | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its folder in a log directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RollBack:
    """The verdict. `refused`: reasons, such as a loss of records. `removed`: the folders to remove.

    `spread`: by folder, the other brokers whose copies also hold the new format. `unknown`: those of which it is not
    known.
    """

    broker: int
    refused: tuple[str, ...]
    removed: tuple[str, ...]
    spread: dict[str, tuple[int, ...]]
    unknown: dict[str, tuple[int, ...]]
    steps: tuple[Instruction, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte migrate rollback --format json`."""
        return {
            "broker": self.broker,
            "refused": list(self.refused),
            "remove": list(self.removed),
            "spread": {name: list(brokers) for name, brokers in self.spread.items()},
            "unknown": {name: list(brokers) for name, brokers in self.unknown.items()},
            "steps": [each.to_json() for each in self.steps],
        }


def roll_back(
    canary: BrokerFacts, brokers: Sequence[BrokerFacts], led: Sequence[LedPartition], to: Format, bootstrap: str
) -> RollBack:
    """Return the steps for a broker's return to format `to`, and the reasons against it."""
    changed = [each for each in led if each.newest is not None and each.newest.magic > to.magic]
    spread, unknown = dict[str, tuple[int, ...]](), dict[str, tuple[int, ...]]()
    for partition in changed:
        holders, hidden = _copies(canary, brokers, partition)
        spread |= {partition.name: holders} if holders else {}
        unknown |= {partition.name: hidden} if hidden else {}
    setting = Instruction(f"in its server.properties: {FORMAT}={MAGIC_NAMES[to.magic]}")
    status = Instruction("see that it stores the old format", f"magicbyte migrate status -b {bootstrap}")
    if canary.is_ours:
        keep = Instruction("nothing has to be removed: it converts by the stored format, not by the setting")
        steps = [setting, *lifted([canary], [canary.id], bootstrap), Instruction(f"restart broker {canary.id}")]
        return RollBack(canary.id, (), (), spread, unknown, (*steps, keep, status))
    refused = [
        reason
        for each in changed
        for reason in _reasons(canary, each, spread.get(each.name, ()), unknown.get(each.name, ()))
    ]
    if canary.stores_newest:
        refused.append(f"broker {canary.id} ({canary.software}) stores format v2 whatever is set")
    removed = tuple(each.name for each in changed)
    steps = [Instruction(f"stop broker {canary.id}, and wait until other brokers lead its partitions")]
    if removed:
        steps.append(Instruction(f"remove these folders from its log.dirs: {' '.join(removed)}"))
    steps += [
        setting,
        *lifted([canary], [canary.id], bootstrap),
        Instruction("start it; it replicates the removed data"),
        Instruction("wait until every replica is in sync", f"magicbyte cluster status -b {bootstrap}"),
        status,
    ]
    return RollBack(canary.id, tuple(refused), removed, spread, unknown, tuple(steps))


def _copies(
    canary: BrokerFacts, brokers: Sequence[BrokerFacts], led: LedPartition
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the followers whose copies hold the new format, and those of which it is unknown.

    Of followers that did not tell, the version in which they fetch decides, which follows from their protocol: a copy
    fetched in one that carries the new format equals the canary's.
    """
    assert led.newest is not None, "it holds something"
    by_id = {broker.id: broker for broker in brokers}
    holders, hidden = [], []
    for number in led.replicas:
        if number == canary.id:
            continue
        form = led.copies.get(number)
        protocol = by_id[number].protocol if number in by_id else None
        if form is None and protocol is not None:
            form = format_read_by(inter_broker_versions(protocol)[ApiKey.FETCH])
        if form is None:
            hidden.append(number)
        elif form.magic >= led.newest.magic:
            holders.append(number)
    return tuple(holders), tuple(hidden)


def _reasons(
    canary: BrokerFacts, led: LedPartition, spread: tuple[int, ...], unknown: tuple[int, ...]
) -> Iterator[str]:
    others = [each for each in led.in_sync if each != canary.id]
    if not others:
        yield (
            f"{led.name}: broker {canary.id} alone is in sync, and removing its data would lose records: wait until "
            "another replica is in sync"
        )
    elif set(others) <= set(spread):
        yield (
            f"{led.name}: the copies on brokers {', '.join(map(str, others))} hold the new format, too, and would come "
            "back: leave the format of this topic until retention takes them; old consumers are converted for meanwhile"
        )
    elif set(others) <= {*spread, *unknown}:
        yield (
            f"{led.name}: whether the copies on brokers {', '.join(map(str, unknown))} hold the new format is not "
            "known: see their formats with magicbyte inventory there, or give --broker-setting "
            f"{unknown[0]}:{PROTOCOL}=VERSION"
        )
