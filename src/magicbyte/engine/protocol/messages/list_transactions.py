"""Generated from ListTransactionsRequest.json and ListTransactionsResponse.json. Do not edit: the schema compiler makes

it.
ListTransactionsRequest: versions 0-2, flexible 0+.
ListTransactionsResponse: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
    read_nullable_string,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_IH = struct.Struct(">ih")
_Q = struct.Struct(">q")
_SHAPES__QQ_COMPACT = Shapes("[qq", flexible=True)


class ListTransactionsRequest(Message, gc=False, kw_only=True):
    """Lists the transactions that one broker coordinates; to list all, ask every broker.

    state_filters: Names of the states to list, such as Ongoing; empty lists transactions in any state.
    producer_id_filters: Producer ids to list; empty lists those of all producers.
    duration_filter: Lists only transactions that have been open for more than this many milliseconds; -1 lists all.
    transactional_id_pattern: Pattern (RE2) that the names of transactions have to fit; null or empty lists all.
    """

    API_KEY = 66
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    state_filters: list[str] = field(default_factory=list)  # []string, versions 0+
    producer_id_filters: tuple[int, ...] = ()  # []int64, versions 0+
    duration_filter: int = -1  # int64, versions 1+
    transactional_id_pattern: str | None = None  # string, versions 2+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        if version < 1 and self.duration_filter != -1:
            raise absent("duration_filter")
        if version < 2 and self.transactional_id_pattern is not None:
            raise absent("transactional_id_pattern")
        write_array(buffer, self.state_filters, True, write_string, True, "state_filters")
        if version >= 1:
            lengths = (len(self.producer_id_filters),)
            buffer += _SHAPES__QQ_COMPACT[lengths](lengths[0] + 1, *self.producer_id_filters, self.duration_filter)
        else:
            write_numbers(buffer, self.producer_id_filters, True, "q")
        if version >= 2:
            write_nullable_string(buffer, self.transactional_id_pattern, True, "transactional_id_pattern")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListTransactionsRequest, int]:
        self = ListTransactionsRequest()
        self.state_filters, at = read_array(data, at, True, 1, "state_filters", read_string, True, "state_filters")
        if version >= 1:
            self.producer_id_filters, at = read_numbers(data, at, True, "q", "producer_id_filters")
            (self.duration_filter,) = _Q.unpack_from(data, at)
            at += 8
        else:
            self.producer_id_filters, at = read_numbers(data, at, True, "q", "producer_id_filters")
            self.duration_filter = -1
        if version >= 2:
            self.transactional_id_pattern, at = read_nullable_string(data, at, True, "transactional_id_pattern")
        else:
            self.transactional_id_pattern = None
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class TransactionState(Struct, gc=False, kw_only=True):
    """One entry per transaction.

    transactional_id: Name of the transaction.
    producer_id: Producer id that goes with the name.
    transaction_state: State by name, such as Ongoing or CompleteCommit.
    """

    transactional_id: str = ""  # string, versions 0+
    producer_id: int = 0  # int64, versions 0+
    transaction_state: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TransactionState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.transactional_id, True, "transactional_id")
            buffer += _Q.pack(self.producer_id)
            write_string(buffer, self.transaction_state, True, "transaction_state")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TransactionState], int]:
        found: list[TransactionState] = []
        for _ in range(count):
            self = TransactionState()
            self.transactional_id, at = read_string(data, at, True, "transactional_id")
            (self.producer_id,) = _Q.unpack_from(data, at)
            at += 8
            self.transaction_state, at = read_string(data, at, True, "transaction_state")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ListTransactionsResponse(Message, gc=False, kw_only=True):
    """The transactions that the broker coordinates.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    unknown_state_filters: States of the request that the broker does not know.
    transaction_states: One entry per transaction.
    """

    API_KEY = 66
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_state_filters: list[str] = field(default_factory=list)  # []string, versions 0+
    transaction_states: list[TransactionState] = field(default_factory=list)  # []TransactionState, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_array(buffer, self.unknown_state_filters, True, write_string, True, "unknown_state_filters")
        write_structs(out, self.transaction_states, True, TransactionState._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ListTransactionsResponse, int]:
        self = ListTransactionsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.unknown_state_filters, at = read_array(
            data,
            at,
            True,
            1,
            "unknown_state_filters",
            read_string,
            True,
            "unknown_state_filters",
        )
        self.transaction_states, at = read_structs(
            data,
            at,
            True,
            11,
            "transaction_states",
            TransactionState._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
