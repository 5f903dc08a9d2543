"""The settings of a topic for the storage of its logs. Names and defaults are Kafka's, except our own settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.records.layout import Dialect

FOREVER = (1 << 63) - 1


class LogConfig(Struct, frozen=True):
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
    roll_ms: int = 0  # computed
    """The age at which a segment is rolled. For a compacted topic also `max.compaction.lag.ms` limits it."""

    @classmethod
    def of(cls, values: Mapping[str, Any], rules: IndexRules = LATEST_RULES) -> LogConfig:
        """Return the configuration of a topic's typed values, by the names of its settings: see `broker.topic_config`.

        Missing ones have their default.
        """
        given = {name: values[setting] for name, setting in _SETTINGS.items() if setting in values}
        if "cleanup.policy" in values:
            given["delete"] = "delete" in values["cleanup.policy"]
            given["compact"] = "compact" in values["cleanup.policy"]
        if "log.flush.policy" in values:
            given["group_commit"] = values["log.flush.policy"] == "group-commit"
        if "message.format.version" in values:
            given["dialect"] = values["message.format.version"].dialect
        return cls(rules=rules, **given)

    def __post_init__(self) -> None:
        rules = self.rules.of_dialect(self.dialect)
        rules = replace(rules, interval_bytes=self.index_interval_bytes, max_index_bytes=self.segment_index_bytes)
        force_setattr(self, "rules", rules)
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
        force_setattr(self, "roll_ms", roll_ms)


_OTHERS = ("delete", "compact", "head_truncation", "group_commit", "dialect", "rules", "roll_ms")
_SETTINGS = {
    "head_truncation": "log.head.truncation",
    **{name: name.replace("_", ".") for name in LogConfig.__struct_fields__ if name not in _OTHERS},
}
