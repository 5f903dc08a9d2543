"""The settings of the transaction coordinator."""

from __future__ import annotations

from msgspec import Struct

from magicbyte.engine.coordination.deadlines import DAY_MS


class TransactionConfig(Struct, frozen=True, kw_only=True):
    """The settings, with Kafka's names and defaults (`transaction.max.timeout.ms` ...). Times in ms.

    `check_interval_ms`: the delay before an action that failed is retried. `transaction_version`: the level of the
    feature of that name: from 1 on values have version 1, from 2 on the coordinator's own aborts raise the epoch as
    EndTxn does in protocol 2. A client's request is interpreted by its own version.
    """

    transaction_version: int = 0

    state_partitions: int = 50
    max_timeout_ms: int = 15 * 60_000
    id_expiration_ms: int = 7 * DAY_MS
    check_interval_ms: int = 10_000

    @property
    def has_protocol_2(self) -> bool:
        """Whether the coordinator itself aborts as EndTxn does in protocol 2."""
        return self.transaction_version >= 2
