"""Random batches written by kafka-python and aiokafka, read by them and by us; what they call equal must be equal."""

import random
from collections.abc import Callable

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import kafka.record.memory_records
import pytest

from builders import base64_text, unbase64
from interop import ours
from interop.batches import CODECS, FORMATS, Json, batch, expected

SEED = 20260102
SIZES = (1, 2, 30, 300)


def write_kafka_python(spec: Json) -> bytes:
    """Return what kafka-python's producer would send for a batch of `interop.batches`."""
    codec = CODECS[2].index(spec["codec"])
    builder = kafka.record.memory_records.MemoryRecordsBuilder(spec["magic"], codec, 2**30)
    if spec["producerId"] >= 0:
        builder.set_producer_state(
            spec["producerId"], spec["producerEpoch"], spec["baseSequence"], spec["transactional"]
        )
    for record in spec["records"]:
        headers = [(name, unbase64(value)) for name, value in record["headers"]]
        timestamp = None if spec["magic"] == 0 else record["timestamp"]
        builder.append(
            timestamp=timestamp, key=unbase64(record["key"]), value=unbase64(record["value"]), headers=headers
        )
    builder.close()
    return bytes(builder.buffer())


def write_aiokafka(spec: Json) -> bytes:
    """Return what aiokafka's producer would send for the same."""
    codec = CODECS[2].index(spec["codec"])
    if spec["magic"] < 2:
        legacy = aiokafka.record.legacy_records.LegacyRecordBatchBuilder(spec["magic"], codec, 2**30)
        for number, record in enumerate(spec["records"]):
            timestamp = None if spec["magic"] == 0 else record["timestamp"]
            legacy.append(number, timestamp, unbase64(record["key"]), unbase64(record["value"]))
        return bytes(legacy.build())
    state = spec["transactional"], spec["producerId"], spec["producerEpoch"], spec["baseSequence"]
    builder = aiokafka.record.default_records.DefaultRecordBatchBuilder(2, codec, *state, 2**30)
    for number, record in enumerate(spec["records"]):
        headers = [(name, unbase64(value)) for name, value in record["headers"]]
        builder.append(number, record["timestamp"], unbase64(record["key"]), unbase64(record["value"]), headers)
    return bytes(builder.build())


WRITE: dict[str, Callable[[Json], bytes]] = {"kafka-python": write_kafka_python, "aiokafka": write_aiokafka}


def read(peer: str, data: bytes) -> list[Json]:
    """Return the records that a peer's consumer finds, as lines of records.jsonl."""
    module = kafka if peer == "kafka-python" else aiokafka
    records, lines = module.record.memory_records.MemoryRecords(data), []
    while (found := records.next_batch()) is not None:
        assert found.validate_crc()
        for record in found:
            kind = {0: "CreateTime", 1: "LogAppendTime", None: "NoTimestampType"}[record.timestamp_type]
            lines.append(
                {
                    "offset": record.offset,
                    "timestamp": -1 if record.timestamp is None else record.timestamp,
                    "timestampType": kind,
                    "key": base64_text(record.key),
                    "value": base64_text(record.value),
                    "headers": [[name, base64_text(value)] for name, value in record.headers],
                }
            )
    return lines


# aiokafka refuses lz4 for brokers of the time of magic 0.
CASES = [(*format_, peer) for format_ in FORMATS for peer in WRITE if (*format_, peer) != (0, "lz4", "aiokafka")]


def specs(magic: int, codec: str) -> list[Json]:
    """Return batches as a client can send them: offsets from 0 without holes, the timestamps its own."""
    rng = random.Random(f"{SEED} {magic} {codec}")
    found = [batch(rng, magic, codec, 0, size) for size in SIZES]
    for spec in found:
        spec["timestampType"] = "NoTimestampType" if magic == 0 else "CreateTime"
        for offset, record in enumerate(spec["records"]):
            record["offset"] = offset
            if magic and record["timestamp"] == -1:
                record["timestamp"] = 0  # aiokafka takes -1 for "not given", in both directions
    return found


@pytest.mark.parametrize(("magic", "codec", "peer"), CASES)
def test_we_read_what_a_peer_wrote_as_it_was_given_and_as_the_peer_reads_it(magic: int, codec: str, peer: str) -> None:
    for spec in specs(magic, codec):
        data = WRITE[peer](spec)
        found = ours.decode(data)
        assert found == expected([spec])
        assert found == read(peer, data)


@pytest.mark.parametrize(("magic", "codec", "peer"), CASES)
def test_a_peer_reads_what_we_wrote_as_it_was_given(magic: int, codec: str, peer: str) -> None:
    for spec in specs(magic, codec):
        assert read(peer, ours.encode([spec])) == expected([spec])
