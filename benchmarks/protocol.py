"""Encoding and decoding of messages: magicbyte beside kio, kafka-python and aiokafka on the same values.

Messages: a MetadataResponse of 3 brokers and 1 topic of 100 partitions with 2 replicas each; a FetchRequest for 100
partitions of 1 topic; a ProduceRequest for 10 partitions of 1 topic with 1 kB or 16 kB (a full batch) for each; an
ApiVersionsResponse of 60 APIs. Encoding ends with bytes, decoding with the objects of each library; a decoded
message must give its bytes again before anything is timed. Records are copied by the rivals and are views here. kio's
reader is native (Rust), its writer Python; kafka-python generates Python for each version at its first use; aiokafka,
which has no flexible versions of these messages, gets the newest that it has, against magicbyte in that version.
A figure is the time of one message in nanoseconds. One core, see harness.py. Targets: ratio = rival's time / ours.

Run: python benchmarks/protocol.py [CASE...]   (written to benchmarks/results/protocol.json)
"""

import importlib
import io
import sys
from collections.abc import Callable
from importlib.metadata import version as version_of
from typing import Any
from uuid import UUID

import harness
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magicbyte.engine.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TARGETS = {
    "encode": {"kio": 8.0, "kafka-python": 3.0, "aiokafka": 1.5},
    "decode": {"kio": 1.0, "kafka-python": 2.0, "aiokafka": 1.5},
}
AIOKAFKA = {
    "Metadata": ("metadata", "MetadataResponse_v5", 5),
    "Fetch": ("fetch", "FetchRequest_v11", 11),
    "Produce": ("produce", "ProduceRequest_v8", 8),
    "ApiVersions": ("admin", "ApiVersionResponse_v2", 2),
}


def metadata() -> Message:
    """Return the response about 100 partitions."""
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=index % 3,
            leader_epoch=5,
            replica_nodes=(index % 3, (index + 1) % 3),
            isr_nodes=(index % 3, (index + 1) % 3),
        )
        for index in range(100)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker-{node}.example.com", port=9092) for node in range(3)
        ],
        cluster_id="cluster",
        controller_id=0,
        topics=[MetadataResponseTopic(name="topic", topic_id=UUID(int=5), partitions=partitions)],
    )


def fetch() -> Message:
    """Return the request for 100 partitions."""
    partitions = [
        FetchPartition(partition=index, current_leader_epoch=5, fetch_offset=10**6 + index, partition_max_bytes=1 << 20)
        for index in range(100)
    ]
    topics = [FetchTopic(topic="topic", partitions=partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=7, session_epoch=3, topics=topics)


def produce(size: int) -> Message:
    """Return the request with records of `size` bytes for each of 10 partitions."""
    records = bytes(range(256)) * (size // 256)
    partitions = [PartitionProduceData(index=index, records=records) for index in range(10)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="topic", partition_data=partitions)]
    )


def api_versions() -> Message:
    """Return the response about 60 APIs."""
    return ApiVersionsResponse(api_keys=[ApiVersion(api_key=key, max_version=key % 13) for key in range(60)])


MESSAGES: dict[str, tuple[Callable[[], Message], int]] = {
    "Metadata": (metadata, 12),
    "Fetch": (fetch, 12),
    "Produce": (lambda: produce(1 << 10), 9),
    "Produce 16 kB": (lambda: produce(16 << 10), 9),
    "ApiVersions": (api_versions, 3),
}

Codec = tuple[Callable[[], bytes], Callable[[], Any]]  # encode, decode


def ours(message: Message, version: int) -> Codec:
    """Return what magicbyte does."""
    data, kind = message.encode(version), type(message)
    return lambda: message.encode(version), lambda: kind.read(data, version)


def kio(message: Message, version: int) -> Codec:
    """Return what kio does."""
    from kio.serial import entity_reader, entity_writer

    data, name = message.encode(version), type(message).__name__
    kind = "request" if name.endswith("Request") else "response"
    api = "".join("_" * letter.isupper() + letter.lower() for letter in name.removesuffix(kind.title())).strip("_")
    entity = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), name)
    read, write = entity_reader(entity), entity_writer(entity)
    value, _ = read(data, 0)

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, value)
        return buffer.getvalue()

    return encode, lambda: read(data, 0)


def kafka_python(message: Message, version: int) -> Codec:
    """Return what kafka-python does."""
    data, name = message.encode(version), type(message).__name__
    home = {"Metadata": "metadata", "ApiVer": "metadata", "FetchR": "consumer", "Produc": "producer"}
    module = next(module for start, module in home.items() if name.startswith(start))
    kind = getattr(importlib.import_module(f"kafka.protocol.{module}"), name)
    value = kind.decode(data, version=version)
    value._header = None  # which its decoder does not set and its encoder asks for
    return lambda: value.encode(version=version), lambda: kind.decode(data, version=version)


def aiokafka(message: Message, version: int) -> Codec:
    """Return what aiokafka does."""
    data = message.encode(version)
    module, name, _ = next(each for each in AIOKAFKA.values() if each[1].startswith(type(message).__name__[:9]))
    kind = getattr(importlib.import_module(f"aiokafka.protocol.{module}"), name)
    value = kind.decode(data)
    return value.encode, lambda: kind.decode(data)


RIVALS = {"magicbyte": ours, "kio": kio, "kafka-python": kafka_python, "aiokafka": aiokafka}


def worker(rival: str, name: str, version: int, operation: str) -> None:
    """Be a rival for one message and one operation."""
    message = MESSAGES[name][0]()
    encode, decode = RIVALS[rival](message, version)
    assert encode() == message.encode(version), "the rivals agree on the bytes"

    def work() -> int:
        run = encode if operation == "encode" else decode
        for _ in range(100):
            run()
        return 100

    harness.serve(work, rival if rival == "magicbyte" else f"{rival} {version_of(rival)}")


def case(name: str, version: int, operation: str, rivals: tuple[str, ...]) -> dict[str, object]:
    """Compare the rivals on one message and one operation."""
    commands = {rival: harness.python(__file__, rival, name, str(version), operation) for rival in rivals}
    results = harness.compare(commands)
    targets = {rival: target for rival, target in TARGETS[operation].items() if rival in rivals}
    size = len(MESSAGES[name][0]().encode(version))
    return {"version": version, "bytes": size, "results": results, "ratios": harness.ratios(results, targets)}


CASES: dict[str, Callable[[], dict[str, object]]] = {}
for _name, (_, _version) in MESSAGES.items():
    _older = AIOKAFKA[_name.split()[0]][2]
    for _operation in ("encode", "decode"):
        CASES[f"{_operation} {_name} v{_version}"] = lambda name=_name, version=_version, operation=_operation: case(
            name, version, operation, ("magicbyte", "kio", "kafka-python")
        )
        CASES[f"{_operation} {_name} v{_older}"] = lambda name=_name, version=_older, operation=_operation: case(
            name, version, operation, ("magicbyte", "aiokafka")
        )

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        for chosen in sys.argv[1:] or CASES:
            harness.save("protocol", __doc__, {chosen: CASES[chosen]()})
