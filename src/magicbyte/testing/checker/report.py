"""The report of a checker about a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from magicbyte.testing.checker.history import Value

MOST_EXAMPLES: Final = 100


class AnomalyKind(StrEnum):
    """The kinds of anomalies, by Jepsen's names. Internal ones (`int`) are within one operation."""

    LOST_WRITE = "lost-write"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    UNSEEN = "unseen"
    UNWRITTEN = "unwritten"
    POLL_SKIP = "poll-skip"
    INT_POLL_SKIP = "int-poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    INT_SEND_SKIP = "int-send-skip"
    ABORTED_READ = "G1a"
    PRECOMMITTED_READ = "precommitted-read"
    TORN_TRANSACTION = "torn-transaction"
    CIRCULAR_READ = "G1c"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly. `operations`: positions in the history, from 0. `is_allowed`: sound clusters have it, too."""

    kind: AnomalyKind
    partition: str
    offsets: tuple[int, ...]
    values: tuple[Value, ...]
    operations: tuple[int, ...]
    message: str
    is_allowed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the anomaly as JSON."""
        return {
            "kind": self.kind,
            "partition": self.partition,
            "offsets": list(self.offsets),
            "values": list(self.values),
            "operations": list(self.operations),
            "message": self.message,
            "isAllowed": self.is_allowed,
        }


@dataclass(slots=True)
class Report:
    """The judgement of a history: the number of anomalies of each kind, and the first hundred of each."""

    operations: int = 0
    partitions: int = 0
    acknowledged: int = 0
    read: int = 0
    unknown: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    counts: Counter[AnomalyKind] = field(default_factory=Counter)
    allowed: Counter[AnomalyKind] = field(default_factory=Counter)

    @property
    def is_sound(self) -> bool:
        """Whether there are only allowed anomalies."""
        return not self.counts

    def add(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and store it up to MOST_EXAMPLES of its kind."""
        counts = self.allowed if anomaly.is_allowed else self.counts
        counts[anomaly.kind] += 1
        if counts[anomaly.kind] <= MOST_EXAMPLES:
            self.anomalies.append(anomaly)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "isSound": self.is_sound,
            "operations": self.operations,
            "partitions": self.partitions,
            "acknowledged": self.acknowledged,
            "read": self.read,
            "unknown": self.unknown,
            "counts": {str(kind): count for kind, count in sorted(self.counts.items())},
            "allowed": {str(kind): count for kind, count in sorted(self.allowed.items())},
            "anomalies": [each.to_json() for each in self.anomalies],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        yield (
            f"{self.operations} operations, {self.partitions} partitions: {self.acknowledged} values acknowledged, "
            f"{self.read} read, {self.unknown} of unknown outcome"
        )
        for title, counts in (("anomalies", self.counts), ("allowed", self.allowed)):
            if counts:
                yield f"{title}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
        for each in self.anomalies:
            if not each.is_allowed:
                yield f"{each.kind}: {each.partition}: {each.message}"
        if self.is_sound:
            yield "sound"

    def __str__(self) -> str:
        return "\n".join(self.lines())
