"""Records of __transaction_state: what Kafka's decoders say of them, both versions, damage, junk."""

import base64
import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import unbase64
from golden_data import Case, log_cases
from magicbyte.engine.coordination.stored import UnknownKey, UnknownValue
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.transactions.records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
    WrittenPartitions,
    decode_key,
    decode_value,
)

KEY = TransactionKey("t")


@pytest.mark.parametrize("case", log_cases(topic="__transaction_state"), ids=str)
def test_every_record_of_real_brokers_is_written_again_byte_for_byte(case: Case) -> None:
    for record in case.records():
        raw, data = base64.b64decode(record["key"]), unbase64(record["value"])
        key = decode_key(raw)
        value = decode_value(key, data)
        assert isinstance(key, TransactionKey)
        assert isinstance(value, TransactionValue)
        assert (key.to_bytes(), value.to_bytes()) == (raw, data)


@pytest.mark.parametrize("case", log_cases(topic="__transaction_state"), ids=str)
def test_every_record_of_real_producers_reads_as_kafkas_decoder_prints_it(case: Case) -> None:
    expected = [line.partition(" key: ")[2] for line in case.decoded() if " key: " in line]
    records = case.records()
    assert len(records) == len(expected) > 0
    for record, line in zip(records, expected, strict=True):
        key = decode_key(base64.b64decode(record["key"]))
        value = decode_value(key, unbase64(record["value"]))
        assert isinstance(key, TransactionKey)
        assert isinstance(value, TransactionValue)
        if line.startswith("{"):
            shown = [json.dumps(each.to_json(), separators=(",", ":")) for each in (key, value)]
        else:
            shown = [key.to_text(), value.to_text()]
        assert " payload: ".join(shown) == line


def test_version_0_holds_no_tagged_fields() -> None:
    head = struct.pack(">hqhib", 0, 9, 1, 60_000, 1)
    partitions = struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 4)
    value = decode_value(KEY, head + partitions + struct.pack(">qq", 1000, 900))
    assert value == TransactionValue(0, 9, -1, -1, 1, 60_000, 1, [WrittenPartitions("t", [0, 4])], 1000, 900, 0)
    assert value.state is TransactionState.ONGOING


def test_version_1_holds_tagged_fields_and_skips_those_it_does_not_know() -> None:
    head = struct.pack(">hqhib", 1, 9, 1, 60_000, 4)
    tags = b"\x04" + b"\x00\x08" + struct.pack(">q", 8) + b"\x01\x08" + struct.pack(">q", 10)
    tags += b"\x02\x02\x00\x02" + b"\x09\x01x"
    partitions = b"\x02" + b"\x02t" + b"\x02" + struct.pack(">i", 3) + b"\x00"
    value = decode_value(KEY, head + partitions + struct.pack(">qq", 1000, 900) + tags)
    assert value == TransactionValue(1, 9, 8, 10, 1, 60_000, 4, [WrittenPartitions("t", [3])], 1000, 900, 2)
    assert value.to_json()["data"]["nextProducerId"] == 10


def test_unknown_states_versions_and_keys_say_so() -> None:
    value = decode_value(KEY, struct.pack(">hqhibiqq", 0, 9, 1, 60_000, 42, -1, 1000, 900))
    assert isinstance(value, TransactionValue)
    assert value.state is None
    assert "state=42" in value.to_text()
    assert decode_value(KEY, b"\0\x02rest") == UnknownValue(2, b"\0\x02rest")
    assert decode_key(b"\0\x01rest") == UnknownKey(1, b"\0\x01rest")
    assert decode_value(KEY, None) is None


def test_states_are_printed_as_kafka_prints_them() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_cut_key_or_value_is_corrupt() -> None:
    for case in log_cases(topic="__transaction_state"):
        record = case.records()[1]
        key, value = base64.b64decode(record["key"]), base64.b64decode(record["value"])
        for cut in range(len(key)):
            with pytest.raises(CorruptRecordError):
                decode_key(key[:cut])
        for cut in range(len(value)):
            with pytest.raises(CorruptRecordError):
                decode_value(KEY, value[:cut])


@given(junk=st.binary(max_size=100), version=st.integers(0, 2))
def test_junk_is_a_record_or_corrupt_and_nothing_else(junk: bytes, version: int) -> None:
    for content in (junk, struct.pack(">h", version) + junk):
        with contextlib.suppress(CorruptRecordError):
            decode_key(content)
        with contextlib.suppress(CorruptRecordError):
            value = decode_value(KEY, content)
            assert value is not None
            json.dumps(value.to_json())
