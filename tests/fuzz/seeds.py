"""Where fuzzing begins: small logs and files that real brokers wrote, one of each kind, and enriched ones made here."""

from __future__ import annotations

from collections.abc import Iterator

import golden_data
from engine.protocol.generated import codecs
from engine.protocol.golden_messages import golden_messages
from engine.protocol.schemas import versions
from engine.records.enriched_control import build_enriched_control
from fuzz import targets
from fuzz.logins import login_inputs
from fuzz.mutations import split
from magicbyte.engine.codecs import Codec, compress
from magicbyte.engine.protocol import APIS, write_request
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    LeaderEpochPayload,
    TransactionPayload,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.layout import Dialect

LARGEST = 3000


def kind_of(entry: bytes) -> tuple[int, int]:
    """Return magic and attributes."""
    return entry[16], int.from_bytes(entry[21:23], "big") if entry[16] == 2 else entry[17]


def golden_logs() -> dict[str, bytes]:
    """Return small logs by name: the two smallest entries of each magic and attributes, and some in a row."""
    kinds: dict[tuple[int, int], list[bytes]] = {}
    logs: dict[str, bytes] = {}
    for case in golden_data.log_cases():
        for segment in case.segments().values():
            found, _ = split(segment)
            for entry in found:
                if len(entry) <= LARGEST:
                    kinds.setdefault(kind_of(entry), []).append(entry)
    for (magic, attributes), found in sorted(kinds.items()):
        different = sorted(set(found), key=len)
        name = f"magic{magic}-{attributes:02x}"
        logs[f"{name}-small"] = b"".join(different[:2])
        middle = different[len(different) // 2]
        logs[f"{name}-middle"] = middle
        logs[f"{name}-row"] = b"".join(different[len(different) // 3 :][:3])[:LARGEST]
    return logs


def enriched_logs() -> dict[str, bytes]:
    """Return small logs in the enriched dialect: tags, wrappers of each codec with and without honor-ship, controls."""
    plain = build_enriched_message(3, b"key", b"value", seconds=1000)
    tagged = build_enriched_message(4, None, b"value", tags=encode_tags({0: 1_700_000_000_123}))
    control = build_enriched_control(5, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(1, 2), seconds=7)
    control += build_enriched_control(6, EnrichedControl.COMMIT_TRANSACTION, TransactionPayload(1, 2))
    logs = {"enriched-plain": plain + tagged, "enriched-control": control}
    logs["enriched-null"] = build_enriched_message(0, b"k", None, tags=b"\x50unknown")
    inner = b"".join(build_enriched_message(2 * i, b"k%d" % i, b"v" * i) for i in range(5))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        for honor in (False, True):
            time = 1_700_000_000_000 if honor else None
            wrapper = build_enriched_wrapper(
                codec, inner, num_messages=5, non_keyed=False, start_offset=10, timestamp_ms=time, honor_ship=honor
            )
            logs[f"enriched-{codec.name.lower()}-{honor:d}"] = plain + wrapper
    return logs


def inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and inputs to begin with."""
    if target == "codecs":
        content = b"".join(b"%d,some text that repeats;" % i for i in range(20))
        for flags in range(15):
            yield f"{target}-{flags}", bytes([45 + flags]) + compress(Codec((45 + flags) % 5), content)
    elif target == "files":
        yield from file_inputs()
    elif target == "internal":
        yield from internal_inputs()
    elif target == "login":
        yield from login_inputs()
    elif target == "protocol":
        yield from protocol_inputs()
    elif target == "partition":
        for at, (name, log) in enumerate(golden_logs().items()):
            yield f"{name}-all", bytes([64 * (at % 4), 0]) + log
            yield f"{name}-committed", bytes([0, 128 | 32 * (at % 4)]) + log
        for name, log in enriched_logs().items():
            yield f"{name}-all", bytes([1 | 64, 16 + 8]) + bytes([0, 0, 0, 4, 0, 0, 0, len(log) % 200]) + log
        yield "transactions", bytes([0, 128]) + transactions()
    elif target == "convert":
        for at, (name, log) in enumerate(golden_logs().items()):
            for choice in (at * 37 % 256, at * 91 % 256):
                yield f"{name}-{choice}", bytes([2, choice]) + log
        for name, log in enriched_logs().items():
            for choice in (1, 2, 3, 11):
                yield f"{name}-{choice}", bytes([3, choice]) + log
    else:
        for name, log in golden_logs().items():
            for flags in (0, 2, 4):
                yield f"{name}-{flags}", bytes([flags]) + log
        for name, log in enriched_logs().items():
            for flags in (1, 3, 5, 129):
                yield f"{name}-{flags}", bytes([flags]) + log


def transactions() -> bytes:
    """Return some batches of transactions of a real log, with their markers."""
    case = golden_data.log_case("3.9.1/txn-none")
    return b"".join(split(next(iter(case.segments().values())))[0][:12])[:LARGEST]


SUFFIXES = (".index", ".timeindex", ".emindex", ".txnindex", ".snapshot")


def file_inputs() -> Iterator[tuple[str, bytes]]:
    names = {"leader-epoch-checkpoint": 6, "partition.metadata": 7, "meta.properties": 9, ".kafka_cleanshutdown": 10}
    seen: set[bytes] = set()
    for case in golden_data.log_cases():
        for name, content in case.partition_files().items():
            suffix = "." + name.rpartition(".")[2]
            which = SUFFIXES.index(suffix) if suffix in SUFFIXES else names.get(name)
            if which is not None and content not in seen and len(content) <= LARGEST and len(seen) < 200:
                seen.add(content)
                yield f"{which}-{len(seen)}", bytes([which]) + content
    for stage in golden_data.checkpoints():
        for name, content in stage.files.items():
            which = names.get(name, 5)
            if content not in seen and len(content) <= LARGEST and len(seen) < 300:
                seen.add(content)
                yield f"{which}-{len(seen)}", bytes([which]) + content
                if which == 9:
                    yield f"11-{len(seen)}", b"\x0b" + content
    yield "8-dialect", b"\x08version: 0\nmessage.dialect: enriched\n"


def internal_inputs() -> Iterator[tuple[str, bytes]]:
    seen: set[tuple[int, bytes, int]] = set()
    for case in golden_data.log_cases():
        if not case.topic.startswith("__"):
            continue
        which = 1 if case.topic == "__transaction_state" else 0
        for segment in case.segments().values():
            for columns in decode(memoryview(segment), dialect=Dialect.KAFKA):
                for record in columns:
                    key, value = record.key or b"", record.value or b""
                    shape = (which, key[:2] + value[:2], min(len(value) // 40, 10))
                    if shape not in seen and len(key) < 256 and len(value) < LARGEST:
                        seen.add(shape)
                        flags = which | (128 if record.value is None else 0)
                        yield f"{which}-{len(seen)}", bytes([flags, len(key)]) + key + value
    for kind in range(6):
        for value in (b"", b"\0\0\0\0\0\7"):
            yield f"control-{kind}-{len(value)}", bytes([2, 4]) + bytes([0, 0, 0, kind]) + value
    protocol = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2ab" + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\2"
    yield "subscription", bytes([7, 0]) + protocol
    yield "assignment", bytes([3, 0]) + protocol[:2] + protocol[6:]


def protocol_inputs() -> Iterator[tuple[str, bytes]]:
    """Yield the largest golden message of each version, and for each API its requests in frames, in a row."""
    largest: dict[tuple[str, int], bytes] = {}
    for name, version, _, data in golden_messages():
        if len(largest.get((name, version), b"")) <= len(data) <= LARGEST:
            largest[name, version] = data
    for at, (name, version) in enumerate(versions()):
        if (name, version) in largest:
            yield f"{name}-{version}", at.to_bytes(2, "big") + largest[name, version]
    for api in APIS.values():
        frames = b""
        for version in api.versions:
            message = codecs()[f"{api.name}Request"].kind.read(largest[f"{api.name}Request", version], version)
            frames += bytes(write_request(message, version, correlation_id=version, client_id="fuzz"))
        yield f"frames-{api.name}", b"\x80\x11" + frames[:LARGEST]


if __name__ == "__main__":
    for each in targets.TARGETS:
        found = dict(inputs(each))
        print(each, len(found), sum(map(len, found.values())))
