"""Roll back a canary: find the copies with the new format, and the steps that remove them. Decisions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.archive.migration import format_read_by
from magicbyte.migration.procedure import Instruction
from magicbyte.migration.status import BrokerFacts
from magicbyte.records.encode import Format
from magicbyte.releases import MAGIC_NAMES, inter_broker_versions

_FETCH: Final = 1


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that the canary leads. `newest`: the newest format found in it, None if it is empty."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    newest: Format | None

    @property
    def name(self) -> str:
        """Its folder in a log directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RollBack:
    """The verdict. `refused`: reasons, such as a loss of records. `removed`: the folders to remove.

    `spread`: by folder, the other brokers whose copies also hold the new format.
    """

    broker: int
    refused: tuple[str, ...]
    removed: tuple[str, ...]
    spread: dict[str, tuple[int, ...]]
    steps: tuple[Instruction, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte migrate rollback --format json`."""
        return {
            "broker": self.broker,
            "refused": list(self.refused),
            "remove": list(self.removed),
            "spread": {name: list(brokers) for name, brokers in self.spread.items()},
            "steps": [each.to_json() for each in self.steps],
        }


def roll_back(
    canary: BrokerFacts, brokers: Sequence[BrokerFacts], led: Sequence[LedPartition], to: Format, bootstrap: str
) -> RollBack:
    """Return the steps for a broker's return to format `to`, and the reasons against it."""
    changed = [each for each in led if each.newest is not None and each.newest.magic > to.magic]
    spread = {each.name: others for each in changed if (others := _holders(canary, brokers, each))}
    setting = f"log.message.format.version={MAGIC_NAMES[to.magic]}"
    status = Instruction("see that it stores the old format", f"magicbyte migrate status -b {bootstrap}")
    if canary.is_ours:
        command = f"magicbyte configs set -b {bootstrap} --broker {canary.id} {setting}"
        keep = Instruction("nothing has to be removed: it converts by the stored format, not by the setting")
        return RollBack(canary.id, (), (), spread, (Instruction("set its format back", command), keep, status))
    refused = tuple(reason for each in changed for reason in _reasons(canary, each, spread.get(each.name, ())))
    removed = tuple(each.name for each in changed)
    steps = [Instruction(f"stop broker {canary.id}, and wait until other brokers lead its partitions")]
    if removed:
        steps.append(Instruction(f"remove these folders from its log.dirs: {' '.join(removed)}"))
    steps += [
        Instruction(f"in its server.properties: {setting}"),
        Instruction("start it; it replicates the removed data"),
        Instruction("wait until every replica is in sync", f"magicbyte cluster status -b {bootstrap}"),
        status,
    ]
    return RollBack(canary.id, refused, removed, spread, tuple(steps))


def _holders(canary: BrokerFacts, brokers: Sequence[BrokerFacts], led: LedPartition) -> tuple[int, ...]:
    """Return the followers that fetch in a version which carries the new format: their copies equal the canary's.

    Followers with an unknown protocol version are included.
    """
    assert led.newest is not None, "it holds something"
    by_id = {each.id: each for each in brokers}
    holders = []
    for number in led.replicas:
        if number == canary.id:
            continue
        protocol = by_id[number].protocol if number in by_id else None
        reads = Format.V2 if protocol is None else format_read_by(inter_broker_versions(protocol)[_FETCH])
        if reads.magic >= led.newest.magic:
            holders.append(number)
    return tuple(holders)


def _reasons(canary: BrokerFacts, led: LedPartition, spread: tuple[int, ...]) -> Iterator[str]:
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
