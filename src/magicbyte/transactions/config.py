"""The settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from magicbyte.groups.config import DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Names and defaults are Kafka's (`transaction.max.timeout.ms`, `transactional.id.expiration.ms` ...). Times in ms.

    `check_interval_ms`: after what time something that could not be done is tried again.
    """

    state_partitions: int = 50
    offsets_partitions: int = 50
    max_timeout_ms: int = 15 * 60_000
    id_expiration_ms: int = 7 * DAY_MS
    check_interval_ms: int = 10_000
