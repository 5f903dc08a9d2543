"""Histories: the operations of clients and their outcomes, and files with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

Value: TypeAlias = int | str
"""Identifies a record. No value is sent to a partition twice."""


class Kind(StrEnum):
    """The kind of an operation. Send, poll and transaction have steps; assign and subscribe have partitions."""

    SEND = "send"
    POLL = "poll"
    TRANSACTION = "transaction"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    CRASH = "crash"


class OperationOutcome(StrEnum):
    """The outcome of an operation: it took effect, it certainly never will, or unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Sent:
    """A sent record. `offset`: from the broker's response, None if unknown.

    `key` matters only in compacted partitions. `may_repeat`: the producer is not idempotent and has retried, or may
    have, so the record can occur several times, and out of order.
    """

    partition: str
    value: Value
    offset: int | None = None
    key: str | None = None
    may_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Polled:
    """The records returned by a poll: offsets and values by partition, in the order of the response."""

    records: Mapping[str, tuple[tuple[int, Value], ...]]


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """One operation of one process, which is a client with its position in each partition.

    Operations of a process are in the order of their starts. `partitions`: assigned or subscribed. `repositioned`:
    partitions whose position was reset before or during the operation, by a rebalance or a seek, so that earlier reads
    have no consequence. Times are of a monotonic clock.
    """

    process: str
    kind: Kind
    outcome: OperationOutcome
    steps: tuple[Sent | Polled, ...] = ()
    partitions: tuple[str, ...] = ()
    repositioned: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the operation as in a file, without empty fields."""
        fields: dict[str, Any] = {"process": self.process, "kind": self.kind, "outcome": self.outcome}
        if self.steps:
            fields["steps"] = [_step_to_json(each) for each in self.steps]
        if self.partitions or self.kind in (Kind.ASSIGN, Kind.SUBSCRIBE):
            fields["partitions"] = list(self.partitions)
        if self.repositioned:
            fields["repositioned"] = list(self.repositioned)
        times = {"startMs": self.start_ms, "endMs": self.end_ms}
        return fields | {name: value for name, value in times.items() if value is not None}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ClientOperation:
        """Return the operation of a line. Raises ValueError."""
        if unknown := set(fields) - FIELDS:
            raise ValueError(f"an operation has no {', '.join(sorted(unknown))}: expected some of {sorted(FIELDS)}")
        try:
            return cls(
                _text(fields["process"]),
                Kind(fields["kind"]),
                OperationOutcome(fields["outcome"]),
                tuple(_step(each) for each in fields.get("steps", ())),
                tuple(map(_text, fields.get("partitions", ()))),
                tuple(map(_text, fields.get("repositioned", ()))),
                fields.get("startMs"),
                fields.get("endMs"),
            )
        except KeyError as error:
            raise ValueError(f"an operation without {error.args[0]!r}") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not an operation: {error}") from error


FIELDS = {"process", "kind", "outcome", "steps", "partitions", "repositioned", "startMs", "endMs"}


def _step_to_json(step: Sent | Polled) -> dict[str, Any]:
    if isinstance(step, Polled):
        return {"poll": {key: [list(each) for each in records] for key, records in step.records.items()}}
    optional = {"offset": step.offset, "key": step.key, "mayRepeat": step.may_repeat or None}
    return {"send": step.partition, "value": step.value} | {
        name: value for name, value in optional.items() if value is not None
    }


def _step(fields: Mapping[str, Any]) -> Sent | Polled:
    if "poll" in fields:
        return Polled(
            {
                key: tuple((_offset(offset), _value(value)) for offset, value in records)
                for key, records in fields["poll"].items()
            }
        )
    offset = fields.get("offset")
    return Sent(
        _text(fields["send"]),
        _value(fields["value"]),
        None if offset is None else _offset(offset),
        fields.get("key"),
        bool(fields.get("mayRepeat", False)),
    )


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"expected a text, found {found!r}")
    return found


def _offset(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError(f"expected an offset from 0 on, found {found!r}")
    return found


def _value(found: object) -> Value:
    if not isinstance(found, int | str) or isinstance(found, bool):
        raise TypeError(f"expected a value, a number or a text, found {found!r}")
    return found


@dataclass(frozen=True, slots=True)
class HistoryRules:
    """The assumptions under which a history is judged.

    `read_to_end`: the last polls read every partition to its end, so an acknowledged record that was never read is
    lost. `all_sends_known`: only the processes of the history sent records to its partitions. `log_starts`: records
    below these offsets may have been deleted. `compacted`: partitions in which a later record of a key replaces earlier
    ones.
    """

    read_to_end: bool = True
    all_sends_known: bool = True
    log_starts: Mapping[str, int] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the rules as in the first line of a file."""
        return {
            "readToEnd": self.read_to_end,
            "allSendsKnown": self.all_sends_known,
            "logStarts": dict(self.log_starts),
            "compacted": sorted(self.compacted),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> HistoryRules:
        """Return the rules of a file, with defaults for missing ones. Raises ValueError."""
        default = cls()
        if unknown := set(fields) - set(default.to_json()):
            raise ValueError(
                f"no such rule: {', '.join(sorted(unknown))}: expected some of {sorted(default.to_json())}"
            )
        try:
            return cls(
                bool(fields.get("readToEnd", default.read_to_end)),
                bool(fields.get("allSendsKnown", default.all_sends_known)),
                {_text(key): _offset(each) for key, each in fields.get("logStarts", {}).items()},
                frozenset(map(_text, fields.get("compacted", ()))),
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not rules: {error}") from error


class HistoryFile:
    """The operations of a JSON-lines file, read again at each iteration: the file need not fit in memory.

    `rules`: from its first line, `{"rules": {...}}`, if present. Raises ValueError with the number of an invalid line,
    and OSError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open(encoding="utf-8") as lines:
            first = self._parsed(1, next(lines, "{}"))
        self._has_rules = "rules" in first
        try:
            self.rules = HistoryRules.from_json(first["rules"]) if self._has_rules else HistoryRules()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path}:1: {error}") from error

    def __iter__(self) -> Iterator[ClientOperation]:
        with self.path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if (number == 1 and self._has_rules) or not line.strip():
                    continue
                fields = self._parsed(number, line)
                try:
                    operation = ClientOperation.from_json(fields)
                except ValueError as error:
                    raise ValueError(f"{self.path}:{number}: {error}") from error
                yield operation

    def _parsed(self, number: int, line: str) -> dict[str, Any]:
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path}:{number}: expected a JSON object: {error}") from error


def write_history(path: str | Path, operations: Iterable[ClientOperation], rules: HistoryRules | None = None) -> None:
    """Write operations to a file, one per line, after a line with the rules if there are any."""
    with Path(path).open("w", encoding="utf-8") as file:
        if rules is not None:
            file.write(json.dumps({"rules": rules.to_json()}) + "\n")
        file.writelines(json.dumps(each.to_json()) + "\n" for each in operations)
