"""Random batches of every shape, described as java/Encode.java takes them: for tests against other implementations."""

import random
from typing import Any

from builders import base64_text

Json = dict[str, Any]

CODECS = {
    0: ("none", "gzip", "snappy", "lz4"),
    1: ("none", "gzip", "snappy", "lz4"),
    2: ("none", "gzip", "snappy", "lz4", "zstd"),
}
FORMATS = [(magic, codec) for magic, codecs in CODECS.items() for codec in codecs]
# Around the lengths at which a varint, a snappy block (32 KiB) and an lz4 block (64 KiB) grow by one.
EDGES = (0, 1, 2, 63, 64, 65, 127, 128, 8191, 8192, 8193, 16383, 16384, 32767, 32768, 32769, 65535, 65536, 65537)
HUGE = 1_100_000  # three bytes of varint length, many blocks of every codec


def blob(rng: random.Random, length: int) -> bytes:
    """Return bytes that compress well, a little, or not at all."""
    match rng.randrange(3):
        case 0:
            return rng.randbytes(1) * length
        case 1:
            return b" ".join(rng.choices([b"offset", b"magic", b"codec", b"\xc3\xa9"], k=length // 2 + 1))[:length]
        case _:
            return rng.randbytes(length)


def field(rng: random.Random) -> bytes | None:
    """Return a key or a value: null, empty, at a boundary, or of some ordinary length."""
    kind = rng.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return b""
    return blob(rng, rng.choice(EDGES) if kind < 0.3 else rng.randrange(1, 200))


def timestamp(rng: random.Random) -> int:
    """Return milliseconds: none, the epoch, ordinary, or far ahead."""
    return rng.choice((-1, 0, 1, rng.randrange(1_400_000_000_000, 1_800_000_000_000), 2**53, 1_600_000_000_000))


def batch(rng: random.Random, magic: int, codec: str, base_offset: int, size: int) -> Json:
    """Return one batch of `size` records with ascending offsets; from magic 2 on with holes and headers as well."""
    offset, records = base_offset, []
    for _ in range(size):
        headers = []
        if magic == 2 and rng.random() < 0.3:
            names = ("", "h", "naïve ☃", "n" * 130)
            headers = [[rng.choice(names), base64_text(field(rng))] for _ in range(rng.randrange(1, 4))]
        records.append(
            {
                "offset": offset,
                "timestamp": timestamp(rng) if magic else -1,
                "key": base64_text(field(rng)),
                "value": base64_text(field(rng)),
                "headers": headers,
            }
        )
        offset += rng.choice((1, 1, 1, 1, 2, 70, 9000)) if magic == 2 or codec != "none" else 1
    append_time = rng.randrange(3) == 0 and magic > 0
    producing = magic == 2 and rng.random() < 0.5
    return {
        "magic": magic,
        "codec": codec,
        "timestampType": "NoTimestampType" if magic == 0 else "LogAppendTime" if append_time else "CreateTime",
        "logAppendTime": 1_700_000_000_123 if append_time else -1,
        "baseOffset": base_offset,
        "producerId": rng.choice((0, 7, 2**40)) if producing else -1,
        "producerEpoch": rng.choice((0, 32767)) if producing else -1,
        "baseSequence": rng.choice((0, 2**31 - 2)) if producing else -1,
        "transactional": producing and rng.random() < 0.5,
        "leaderEpoch": rng.choice((-1, 0, 5, 2**31 - 1)),
        "records": records,
    }


def batches(seed: int, magic: int, codec: str) -> list[Json]:
    """Return batches of 1 to 300 records with growing offsets, one of them with a huge value."""
    rng = random.Random(f"{seed} {magic} {codec}")
    found, offset = [], rng.choice((0, 5, 2**31 - 3, 2**40))
    for size in (1, 2, 7, 300, 1, 40):
        found.append(batch(rng, magic, codec, offset, size))
        offset = found[-1]["records"][-1]["offset"] + rng.choice((1, 1, 100))
    found[1]["records"][0]["value"] = base64_text(blob(rng, HUGE))
    found[2]["records"][0]["key"] = base64_text(blob(rng, HUGE // 10))
    return found


def expected(specs: list[Json]) -> list[Json]:
    """Return what a reader must find: the lines of records.jsonl."""
    lines = []
    for spec in specs:
        for record in spec["records"]:
            time = spec["logAppendTime"] if spec["timestampType"] == "LogAppendTime" else record["timestamp"]
            lines.append(record | {"timestamp": time, "timestampType": spec["timestampType"]})
    return lines
