"""Load the transactional ids of a partition of `__transaction_state`: the last record of each counts.

Invariants, besides those of every `Replay`: an id is in the result with its last state, or the load fails. Values of
unknown versions or states raise CorruptRecordError.
"""

from __future__ import annotations

from magicbyte.engine.coordination.replay import keyed_records
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.scan import scan
from magicbyte.engine.transactions.records import TransactionKey, TransactionValue, decode_key, decode_value
from magicbyte.engine.transactions.rules import STORED


class Loading:
    """Read the log of a partition, piece by piece.

    Keys of later versions are skipped, as in Kafka. Values of later versions are not: an id mistaken for a new one
    would leave its transaction open for ever.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, bytes | None] = {}

    def read(self, data: memoryview) -> int:
        """Read the whole entries of `data`, which follow those read before.

        Return the last offset, -1 if there are none. Raises CorruptRecordError.
        """
        table, last = scan(data), -1
        for key, record in keyed_records(table, range(len(table))):
            self._last[key], last = record.value, record.offset
        if table.damage is not None:
            raise table.damage
        return last

    def finish(self) -> dict[str, TransactionValue]:
        """Return the state after all that was read, by transactional id. Raises CorruptRecordError."""
        values: dict[str, TransactionValue] = {}
        for raw, data in self._last.items():
            key = decode_key(raw)
            value = decode_value(key, data)
            if value is None or not isinstance(key, TransactionKey):
                continue
            if not isinstance(value, TransactionValue):
                raise CorruptRecordError("version of a value", expected="0 or 1", found=value.version)
            if value.state not in STORED:
                raise CorruptRecordError("state of a transactional id", expected="one of 0 to 5", found=value.status)
            values[key.transactional_id] = value
        return values
