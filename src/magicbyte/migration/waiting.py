"""Determine the progress of a migration step for which brokers are restarted. Decisions only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.migration.status import BrokerFacts, ClusterStage, ClusterStep
from magicbyte.releases import PROTOCOL_OF_MAGIC

RESTARTS: Final = frozenset(
    {ClusterStep.BRING_BACK, ClusterStep.UPGRADE_BROKERS, ClusterStep.RAISE_PROTOCOL, ClusterStep.JUDGE_CANARY}
)
"""The steps that restart brokers. Others change settings or clients."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step. `left`: brokers that have not taken it. `away`: brokers that do not answer.

    `behind`: under-replicated partitions, None if no broker answers.
    """

    left: tuple[int, ...]
    away: tuple[int, ...]
    behind: int | None

    @property
    def is_done(self) -> bool:
        """Whether every broker has taken the step and answers, and every replica is in sync."""
        return not self.left and not self.away and self.behind == 0

    @property
    def text(self) -> str:
        """The progress in one line."""
        left = f"to do: {_named(self.left)}" if self.left else "every broker has taken the step"
        clauses = [left]
        if self.away:
            clauses.append(f"{_named(self.away)} {'does' if len(self.away) == 1 else 'do'} not answer")
        if self.behind:
            many = "partition has" if self.behind == 1 else "partitions have"
            clauses.append(f"{self.behind} {many} replicas out of sync")
        return "; ".join(clauses)

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate next --wait S --format json`."""
        return {"done": self.is_done, "left": list(self.left), "away": list(self.away), "outOfSync": self.behind}


def _named(brokers: Sequence[int]) -> str:
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"


def progress_of(
    begun: ClusterStage, expected: Collection[int], brokers: Sequence[BrokerFacts], behind: int | None
) -> StepProgress:
    """Return the progress of the step of `begun`. `expected`: all brokers at its start. `brokers`: the present ones."""
    answering = {each.id: each for each in brokers if each.answered is not None}
    away = tuple(number for number in sorted(expected) if number not in answering)
    return StepProgress(tuple(_left(begun, list(answering.values()))), away, behind)


def _left(begun: ClusterStage, brokers: Sequence[BrokerFacts]) -> Iterator[int]:
    target = begun.target.magic
    if begun.step is ClusterStep.UPGRADE_BROKERS:
        yield from (each.id for each in brokers if each.knows is None or each.knows.magic < target)
    elif begun.step is ClusterStep.RAISE_PROTOCOL:
        needed = PROTOCOL_OF_MAGIC[target]
        yield from (each.id for each in brokers if each.protocol is not None and each.protocol < needed)
    elif begun.step is ClusterStep.JUDGE_CANARY:  # kept on all brokers, or rolled back
        behind = [each.id for each in brokers if each.format is not None and each.format.magic < target]
        if any(each.format is not None and each.format.magic >= target for each in brokers):
            yield from behind
