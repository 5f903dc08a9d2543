"""The settings of a topic for the storage of its logs. Names and defaults are Kafka's, except our own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from magicbyte.errors import LogDirectoryError
from magicbyte.log.files.index_writer import LATEST_RULES, MAX_RELATIVE, IndexRules
from magicbyte.records.layout import Dialect

FOREVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log; sizes in bytes, times in ms, -1 for no bound where Kafka has it so.

    `rules` says which entries indexes get; its interval and size are `index_interval_bytes` and `segment_index_bytes`
    here. Ours are `head_truncation` (`log.head.truncation`) and `group_commit` (`log.flush.policy=group-commit`).
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3_600_000
    file_delete_delay_ms: int = 60_000
    max_compaction_lag_ms: int = FOREVER
    preallocate: bool = False
    delete: bool = True
    compact: bool = False
    head_truncation: bool = False
    group_commit: bool = False
    dialect: Dialect = Dialect.KAFKA
    rules: IndexRules = LATEST_RULES

    @classmethod
    def of(cls, settings: Mapping[str, str], rules: IndexRules = LATEST_RULES) -> LogConfig:
        """Return the configuration of topic settings such as {"segment.bytes": "1048576"}; others are ignored.

        Raises LogDirectoryError, with the expected values, for an invalid value.
        """
        given: dict[str, Any] = {}
        for field in fields(cls):
            name = _NAMES.get(field.name, field.name.replace("_", "."))
            if name in settings and field.name not in ("rules", "delete", "compact", "group_commit", "dialect"):
                given[field.name] = _value(name, settings[name], boolean=isinstance(field.default, bool))
        policies = {each.strip() for each in settings.get("cleanup.policy", "delete").split(",")} - {""}
        if not policies <= {"delete", "compact"}:
            raise LogDirectoryError(f"cleanup.policy {settings['cleanup.policy']}: expected delete, compact or both")
        given["delete"], given["compact"] = "delete" in policies, "compact" in policies
        policy = settings.get("log.flush.policy", "kafka")
        if policy not in ("kafka", "group-commit"):
            raise LogDirectoryError(f"log.flush.policy {policy}: expected kafka or group-commit")
        given["group_commit"] = policy == "group-commit"
        dialect = settings.get("message.dialect", Dialect.KAFKA.value)
        if dialect not in {each.value for each in Dialect}:
            raise LogDirectoryError(f"message.dialect {dialect}: expected kafka or enriched")
        given["dialect"] = Dialect(dialect)
        if given["dialect"] is Dialect.ENRICHED and given["delete"] and given["compact"]:
            raise LogDirectoryError("cleanup.policy compact,delete: a log of the enriched dialect has one of them")
        return replace(cls(rules=rules), **given)

    def __post_init__(self) -> None:
        rules = self.rules.of_dialect(self.dialect)
        rules = replace(rules, interval_bytes=self.index_interval_bytes, max_index_bytes=self.segment_index_bytes)
        object.__setattr__(self, "rules", rules)

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled. For a compacted topic also `max.compaction.lag.ms` limits it."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms


_NAMES = {"head_truncation": "log.head.truncation"}
_LARGEST = {"segment.bytes": MAX_RELATIVE, "segment.index.bytes": MAX_RELATIVE, "index.interval.bytes": MAX_RELATIVE}


def _value(name: str, text: str, *, boolean: bool) -> int | bool:
    if boolean:
        if text.lower() not in ("true", "false"):
            raise LogDirectoryError(f"{name} {text}: expected true or false")
        return text.lower() == "true"
    largest = _LARGEST.get(name, FOREVER)
    try:
        number = int(text)
    except ValueError:
        number = -2
    if not -1 <= number <= largest:
        raise LogDirectoryError(f"{name} {text}: expected -1 to {largest}")
    return number
