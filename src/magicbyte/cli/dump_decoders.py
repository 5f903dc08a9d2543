"""Decode key and payload of the records of Kafka's internal topics, as its dump tool prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from magicbyte.engine.cluster.metadata_records import read_metadata_record
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups import records as groups
from magicbyte.engine.protocol.kafka_json import json_text
from magicbyte.engine.transactions import records as transactions

Decoder: TypeAlias = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]
"""Takes key and value; returns their text, None for values that are not printed. Raises CorruptRecordError."""

DELETED = "<DELETE>"


def decode_group_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__consumer_offsets`: a Decoder."""
    what = groups.decode_key(_present(key))
    said = groups.decode_value(what, value)
    return json_text(what.to_json()), DELETED if said is None else json_text(said.to_json())


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
    return json_text(what.to_json()), DELETED if said is None else json_text(said.to_json())


def decode_metadata_record(_key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decode a record of `__cluster_metadata`: a Decoder."""
    return None, json_text(read_metadata_record(value).to_json())


def _present(key: bytes | None) -> bytes:
    if key is None:
        raise CorruptRecordError("key of a record of an internal topic", expected="bytes", found="null")
    return key
