"""Decode key and payload of the records of Kafka's internal topics, as its dump tool prints them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups import records as groups
from magicbyte.engine.transactions import records as transactions
from magicbyte.engine.wire.reader import Reader

Decoder: TypeAlias = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]
"""Takes key and value; returns their text, None for values that are not printed. Raises CorruptRecordError."""

DELETED = "<DELETE>"

METADATA_RECORDS = {
    0: "REGISTER_BROKER_RECORD",
    1: "UNREGISTER_BROKER_RECORD",
    2: "TOPIC_RECORD",
    3: "PARTITION_RECORD",
    4: "CONFIG_RECORD",
    5: "PARTITION_CHANGE_RECORD",
    7: "FENCE_BROKER_RECORD",
    8: "UNFENCE_BROKER_RECORD",
    9: "REMOVE_TOPIC_RECORD",
    10: "DELEGATION_TOKEN_RECORD",
    11: "USER_SCRAM_CREDENTIAL_RECORD",
    12: "FEATURE_LEVEL_RECORD",
    14: "CLIENT_QUOTA_RECORD",
    15: "PRODUCER_IDS_RECORD",
    17: "BROKER_REGISTRATION_CHANGE_RECORD",
    18: "ACCESS_CONTROL_ENTRY_RECORD",
    19: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    20: "NO_OP_RECORD",
    21: "ZK_MIGRATION_STATE_RECORD",
    22: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    23: "BEGIN_TRANSACTION_RECORD",
    24: "END_TRANSACTION_RECORD",
    25: "ABORT_TRANSACTION_RECORD",
    26: "REMOVE_DELEGATION_TOKEN_RECORD",
    27: "REGISTER_CONTROLLER_RECORD",
    28: "CLEAR_ELR_RECORD",
}
"""Names of metadata records by API key. Source: Kafka 4.3's MetadataRecordType."""

_FRAME_VERSION = 1


def decode_group_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__consumer_offsets`: a Decoder."""
    what = groups.decode_key(_present(key))
    said = groups.decode_value(what, value)
    return _json(what.to_json()), DELETED if said is None else _json(said.to_json())


def decode_transaction_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__transaction_state`: a Decoder.

    Records of version 0, of brokers up to 3.9, are printed as by the tools of these releases; others as JSON, as by
    those from 4.0 on.
    """
    what = transactions.decode_key(_present(key))
    said = transactions.decode_value(what, value)
    match what, said:
        case transactions.TransactionKey(), transactions.TransactionValue(version=0):
            return what.to_text(), said.to_text()
    return _json(what.to_json()), DELETED if said is None else _json(said.to_json())


def decode_metadata_record(_key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__cluster_metadata`: type and version by name, the rest in base64. A Decoder."""
    if value is None:
        raise CorruptRecordError("value of a metadata record", expected="bytes", found="null")
    reader = Reader(value)
    frame = reader.unsigned_varint()
    if frame != _FRAME_VERSION:
        raise CorruptRecordError("frame version of a metadata record", expected=_FRAME_VERSION, found=frame)
    number, version = reader.unsigned_varint(), reader.unsigned_varint()
    data = base64.b64encode(value[reader.position :]).decode()
    return None, _json({"type": METADATA_RECORDS.get(number, str(number)), "version": version, "data": data})


def _present(key: bytes | None) -> bytes:
    if key is None:
        raise CorruptRecordError("key of a record of an internal topic", expected="bytes", found="null")
    return key


def _json(said: Any) -> str:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False)
