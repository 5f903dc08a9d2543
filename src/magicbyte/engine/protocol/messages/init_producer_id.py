"""Generated from InitProducerIdRequest.json and InitProducerIdResponse.json. Do not edit: the schema compiler makes it.

InitProducerIdRequest: versions 0-6, flexible 2+; the latest one may still change.
InitProducerIdResponse: versions 0-6, flexible 2+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_string,
    read_unknown_tags,
    write_nullable_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_IHQH = struct.Struct(">ihqh")
_IHQHQH = struct.Struct(">ihqhqh")
_IQH = struct.Struct(">iqh")
_IQHTT = struct.Struct(">iqh??")


class InitProducerIdRequest(Message, gc=False, kw_only=True):
    """Gets a producer id, with which duplicates of a producer's batches are recognized. With a transactional id it also
    ends an open transaction of an earlier producer with this id.

    transactional_id: Name that a transactional producer keeps over restarts (transactional.id); null for a producer
        that is only idempotent.
    transaction_timeout_ms: The coordinator aborts a transaction that is open for more than this many milliseconds;
        without a transactional id it has no meaning.
    producer_id: Id that the producer has already and wants a higher epoch for; -1 if it has none.
    producer_epoch: Epoch that goes with that id; -1 if it has none.
    enable2_pc: True if an outside coordinator decides on the transactions (two-phase commit), so that the broker
        never times them out.
    keep_prepared_txn: True keeps an open prepared transaction instead of aborting it.
    """

    API_KEY = 22
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(2, 7)

    transactional_id: str | None = ""  # string, versions 0+, nullable
    transaction_timeout_ms: int = 0  # int32, versions 0+
    producer_id: int = -1  # int64, versions 3+
    producer_epoch: int = -1  # int16, versions 3+
    enable2_pc: bool = False  # bool, versions 6+
    keep_prepared_txn: bool = False  # bool, versions 6+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 3 and self.producer_id != -1:
            raise absent("producer_id")
        if version < 3 and self.producer_epoch != -1:
            raise absent("producer_epoch")
        if version < 6 and self.enable2_pc:
            raise absent("enable2_pc")
        if version < 6 and self.keep_prepared_txn:
            raise absent("keep_prepared_txn")
        write_nullable_string(buffer, self.transactional_id, flexible, "transactional_id")
        if version >= 6:
            buffer += _IQHTT.pack(
                self.transaction_timeout_ms,
                self.producer_id,
                self.producer_epoch,
                self.enable2_pc,
                self.keep_prepared_txn,
            )
        elif version >= 3:
            buffer += _IQH.pack(self.transaction_timeout_ms, self.producer_id, self.producer_epoch)
        else:
            buffer += _I.pack(self.transaction_timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[InitProducerIdRequest, int]:
        self = InitProducerIdRequest()
        flexible = version >= 2
        self.transactional_id, at = read_nullable_string(data, at, flexible, "transactional_id")
        if version >= 6:
            (
                self.transaction_timeout_ms,
                self.producer_id,
                self.producer_epoch,
                self.enable2_pc,
                self.keep_prepared_txn,
            ) = _IQHTT.unpack_from(data, at)
            at += 16
        elif version >= 3:
            self.transaction_timeout_ms, self.producer_id, self.producer_epoch = _IQH.unpack_from(data, at)
            at += 14
            self.enable2_pc = False
            self.keep_prepared_txn = False
        else:
            (self.transaction_timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            self.producer_id = -1
            self.producer_epoch = -1
            self.enable2_pc = False
            self.keep_prepared_txn = False
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class InitProducerIdResponse(Message, gc=False, kw_only=True):
    """The producer id and its epoch.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error; 0 means none. 51 says that an earlier transaction is still being ended; the producer tries
        again.
    producer_id: Id to put into batches; -1 with an error.
    producer_epoch: Epoch to put into batches; all producers of this id with a lower one are shut out.
    ongoing_txn_producer_id: Producer id of the transaction that was kept; -1 if there is none.
    ongoing_txn_producer_epoch: Epoch of the transaction that was kept; -1 if there is none.
    """

    API_KEY = 22
    VALID_VERSIONS = range(7)
    FLEXIBLE_VERSIONS = range(2, 7)

    throttle_time_ms: int = 0  # int32, versions 0+, ignorable
    error_code: int = 0  # int16, versions 0+
    producer_id: int = -1  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    ongoing_txn_producer_id: int = -1  # int64, versions 6+
    ongoing_txn_producer_epoch: int = -1  # int16, versions 6+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 6 and self.ongoing_txn_producer_id != -1:
            raise absent("ongoing_txn_producer_id")
        if version < 6 and self.ongoing_txn_producer_epoch != -1:
            raise absent("ongoing_txn_producer_epoch")
        if version >= 6:
            buffer += _IHQHQH.pack(
                self.throttle_time_ms,
                self.error_code,
                self.producer_id,
                self.producer_epoch,
                self.ongoing_txn_producer_id,
                self.ongoing_txn_producer_epoch,
            )
        else:
            buffer += _IHQH.pack(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[InitProducerIdResponse, int]:
        self = InitProducerIdResponse()
        if version >= 6:
            (
                self.throttle_time_ms,
                self.error_code,
                self.producer_id,
                self.producer_epoch,
                self.ongoing_txn_producer_id,
                self.ongoing_txn_producer_epoch,
            ) = _IHQHQH.unpack_from(data, at)
            at += 26
        else:
            self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch = _IHQH.unpack_from(data, at)
            at += 16
            self.ongoing_txn_producer_id = -1
            self.ongoing_txn_producer_epoch = -1
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
