"""Make the archive of real logs that `magicbyte tour` unpacks: PYTHONPATH=tests .venv/bin/python tools/bundle_logs.py

Takes partitions of tests/golden, and one of the enriched dialect made here. The same bytes come out each time.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import golden_data
from engine.records.enriched_control import build_enriched_control
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    LeaderEpochPayload,
    Tag,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)

ARCHIVE = Path(__file__).resolve().parent.parent / "src/magicbyte/cli/tour_logs.zip"
CASES = (
    "0.8.2.2/basic-none",
    "0.8.2.2/basic-lz4",
    "0.9.0.1/compact-gzip.after2",
    "0.10.0.1/logappend-lz4",
    "0.10.2.2/crash-flip.crashed",
    "0.11.0.3/mixed-gzip-090-0102-0110",
    "1.1.1/consumer-offsets",
    "2.8.2/txn-zstd",
    "3.9.1/txn-snappy",
    "4.3.1/basic-zstd",
    "4.3.1/trimmed-none",
    "4.3.1/txn-open-none",
)
README = """\
# The logs of the tour

logs/kafka-VERSION/ are log directories as real Apache Kafka brokers of that version left them, with ordinary test data
in them. All are sound but crash-flip: its broker was killed, and one byte of its last message was changed afterwards.
mixed-gzip-090-0102-0110 had its format changed while it grew. trimmed-none had its head deleted. compact-gzip was
compacted twice.

logs/enriched/readings-0 was made with magicbyte itself: the enriched dialect is a proposal that no broker writes.
"""
START_MS = 1_466_000_000_000
READINGS = [(f"sensor-{i % 3}".encode(), f'{{"celsius": {18 + 7 * i % 13}}}'.encode()) for i in range(12)]


def files() -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file."""
    yield "README.md", README.encode()
    for case in map(golden_data.log_case, CASES):
        for name, content in case.partition_files().items():
            yield f"logs/kafka-{case.version}/{case.topic}-{case.partition}/{name}", content
    stage = next(stage for stage in golden_data.checkpoints() if stage.id == "4.3.1/clean-shutdown")
    for name in ("log-start-offset-checkpoint", "meta.properties"):
        yield f"logs/kafka-4.3.1/{name}", stage.files[name]
    yield "logs/enriched/readings-0/message.dialect", b"version: 0\ndialect: enriched\n"
    yield "logs/enriched/readings-0/00000000000000000000.log", enriched_log()


def enriched_log() -> bytes:
    """A leader epoch message, two plain readings with tags, and ten in one compressed message."""
    seconds = START_MS // 1000
    log = [build_enriched_control(0, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(1, 0), seconds=seconds)]
    for i, (key, value) in enumerate(READINGS[:2]):
        tags = encode_tags({Tag.TIMESTAMP: START_MS + 250 * i})
        log.append(build_enriched_message(1 + i, key, value, seconds=seconds, tags=tags))
    inner = [build_enriched_message(i, key, value) for i, (key, value) in enumerate(READINGS[2:])]
    log.append(
        build_enriched_wrapper(
            Codec.LZ4,
            b"".join(inner),
            num_messages=len(inner),
            non_keyed=False,
            start_offset=3,
            seconds=seconds,
            timestamp_ms=START_MS + 500,
        )
    )
    return b"".join(log)


def main() -> None:
    """Write the archive."""
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
