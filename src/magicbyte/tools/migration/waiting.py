"""Determine the progress of a migration step for which brokers are restarted. Decisions only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.tools.migration.status import BrokerFacts, ClusterStage, ClusterStep

RESTARTS: Final = frozenset(
    {
        ClusterStep.BRING_BACK,
        ClusterStep.UPGRADE_BROKERS,
        ClusterStep.RAISE_PROTOCOL,
        ClusterStep.JUDGE_CANARY,
        ClusterStep.SET_DEFAULT,
    }
)
"""The steps that restart brokers. Others change settings or clients."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step. `left`: brokers that have not taken it. `away`: brokers that do not answer.

    `behind`: under-replicated partitions, None if no broker answers. `unknown`: brokers that do not return the setting
    that the step changes, so that it is unknown whether they have taken it.
    """

    left: tuple[int, ...]
    away: tuple[int, ...]
    behind: int | None
    unknown: tuple[int, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether every broker has taken the step and answers, and every replica is in sync."""
        return not self.unknown and self.is_over

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of what can be seen."""
        return not self.left and not self.away and self.behind == 0

    @property
    def text(self) -> str:
        """The progress in one line."""
        clauses = [f"to do: {_named(self.left)}"] if self.left else []
        if self.unknown:
            does = "does" if len(self.unknown) == 1 else "do"
            clauses.append(f"not known of {_named(self.unknown)}, which {does} not return settings: see them yourself")
        if not clauses and self.behind is not None:
            clauses.append(f"every broker {'that answers ' if self.away else ''}has taken the step")
        if self.away:
            clauses.append(f"{_named(self.away)} {'does' if len(self.away) == 1 else 'do'} not answer")
        if self.behind:
            many = "partition has" if self.behind == 1 else "partitions have"
            clauses.append(f"{self.behind} {many} replicas out of sync")
        return "; ".join(clauses)

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate next --wait S --format json`."""
        return {
            "done": self.is_done,
            "left": list(self.left),
            "away": list(self.away),
            "outOfSync": self.behind,
            "unknown": list(self.unknown),
        }


def _named(brokers: Sequence[int]) -> str:
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"


def progress_of(
    begun: ClusterStage, expected: Collection[int], brokers: Sequence[BrokerFacts], behind: int | None
) -> StepProgress:
    """Return the progress of the step of `begun`. `expected`: all brokers at its start. `brokers`: the present ones."""
    answering = {broker.id: broker for broker in brokers if broker.answered is not None}
    away = tuple(number for number in sorted(expected) if number not in answering)
    left, unknown = _left(begun, list(answering.values()))
    return StepProgress(tuple(left), away, behind, tuple(unknown))


def _left(begun: ClusterStage, brokers: Sequence[BrokerFacts]) -> tuple[list[int], list[int]]:
    """Return the brokers that have not taken a step, and those of which it is unknown."""
    target = begun.target.magic
    if begun.step is ClusterStep.UPGRADE_BROKERS:
        return [broker.id for broker in brokers if broker.knows is None or broker.knows.magic < target], []
    if begun.step is ClusterStep.RAISE_PROTOCOL:
        lacking = [broker for broker in brokers if broker.lacks_protocol(begun.target)]
        return [each.id for each in lacking if each.protocol is not None], [
            each.id for each in lacking if each.protocol is None
        ]
    if begun.step in (ClusterStep.JUDGE_CANARY, ClusterStep.SET_DEFAULT):
        formats = {broker.id: broker.default_format for broker in brokers}
        behind = [number for number, form in formats.items() if form is not None and form.magic < target]
        is_over = begun.step is ClusterStep.JUDGE_CANARY and len(behind) == len(formats)  # rolled back on all brokers
        return [] if is_over else behind, [number for number, form in formats.items() if form is None]
    return [], []
