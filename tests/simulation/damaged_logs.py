"""Logs with damage that is known: what was done to them, which entries are still whole, which regions are not.

Everything comes from one seed. An entry is known by its bytes, of which the offset is a part.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.message import build_message, build_wrapper

PAGE = 4096


class Original(NamedTuple):
    """An entry as it was written."""

    content: bytes
    first: int
    last: int


@dataclass
class DamagedLog:
    """The damaged bytes, the entries that are whole in them, and the (start, end, what) of every damaged region.

    `whole`: by their offset field, where they lie. `untouched`: start and end of the entries that are whole, in their
    places, and in no block that was moved.
    """

    content: bytearray
    whole: dict[int, int]
    regions: list[tuple[int, int, str]]
    originals: dict[int, Original] = field(repr=False)
    untouched: list[tuple[int, int]] = field(repr=False)


# ---- entries


def records(rng: random.Random, count: int, sizes: tuple[int, int], value: Callable[[], bytes] | None) -> list[tuple]:
    made = []
    for at in range(count):
        content = value() if value else rng.randbytes(rng.randint(*sizes))
        made.append((at, 1_600_000_000_000 + at, b"key-%d" % rng.randrange(1000), content))
    return made


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def batch(rng: random.Random, count: int, codec: Codec, value: Callable[[], bytes] | None, base: int = 0) -> bytes:
    """Return a v2 batch of `count` records."""
    section = bytearray()
    for offset, timestamp, key, content in records(rng, count, (20, 600), value):
        body = b"\0" + varint(timestamp - 1_600_000_000_000) + varint(offset)
        body += varint(len(key)) + key + varint(len(content)) + content + varint(0)
        section += varint(len(body)) + body
    packed = compress_section(codec, bytes(section))
    return build_batch(
        packed, base_offset=base, last_offset_delta=count - 1, base_timestamp=1_600_000_000_000,
        max_timestamp=1_600_000_000_000 + count - 1, record_count=count, attributes=int(codec),
        partition_leader_epoch=3,
    )  # fmt: skip


def compress_section(codec: Codec, section: bytes) -> bytes:
    from magicbyte.engine.codecs import compress

    return section if codec is Codec.NONE else bytes(compress(codec, section))


def contents(rng: random.Random, nasty: bool) -> Callable[[], bytes]:
    """Return what makes values that are themselves whole batches, some with offsets that could be the log's own."""
    pool = []
    for _ in range(40):
        codec = rng.choice([Codec.NONE, Codec.LZ4, Codec.GZIP])
        inner = bytearray(batch(rng, rng.randint(1, 4), codec, None))
        pool.append(inner)
        pool.append(bytearray(build_message(1, 0, 1_600_000_000_000, b"k", rng.randbytes(60))))

    def value() -> bytes:
        made = bytearray()
        offset = rng.randrange(200_000) if nasty else 0
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            inner = bytearray(rng.choice(pool))
            struct.pack_into(">q", inner, 0, offset)
            offset += 4
            made += inner
        prefix = rng.choice([b"", b"", b"", b"\0\0\0\0\x07"])
        return prefix + bytes(made) + rng.choice([b"", b"", b"tail"])

    return value


def templates(rng: random.Random, kind: str) -> list[tuple[bytes, int]]:
    """Return some entries with the number of offsets each takes; offsets are written later, no CRC covers them."""
    nested = contents(rng, nasty="nasty" in kind)
    made: list[tuple[bytes, int]] = []
    for _ in range(60):
        match kind:
            case "v2":
                count = rng.randint(1, 40)
                codec = rng.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY])
                made.append((batch(rng, count, codec, None), count))
            case "nested" | "nested-nasty":
                count = rng.randint(1, 12)
                made.append((batch(rng, count, rng.choice([Codec.NONE] * 3 + [Codec.LZ4]), nested), count))
            case "messages" | "messages-nested":
                value = nested() if "nested" in kind else rng.randbytes(rng.randint(30, 3000))
                made.append((build_message(rng.choice([0, 1]), 0, 1_600_000_000_000, b"k", value), 1))
            case "wrappers":
                made.append((wrapper(rng, 1), 5))
            case "mixed":
                made += templates_of_one(rng, nested)
    return made


def wrapper(rng: random.Random, magic: int) -> bytes:
    inner = b"".join(
        build_message(magic, at, 1_600_000_000_000 + at, b"k", rng.randbytes(rng.randint(20, 500))) for at in range(5)
    )
    return build_wrapper(magic, rng.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4]), inner, 4, 1_600_000_000_004)


def templates_of_one(rng: random.Random, nested: Callable[[], bytes]) -> list[tuple[bytes, int]]:
    return [
        (batch(rng, 7, Codec.NONE, None), 7),
        (batch(rng, 5, Codec.LZ4, nested), 5),
        (build_message(0, 0, -1, b"k", rng.randbytes(200)), 1),
        (build_message(1, 0, 1_600_000_000_000, None, nested()), 1),
        (wrapper(rng, 1), 5),
    ]


def log_of(rng: random.Random, kind: str, size: int) -> list[Original]:
    """Return a log of about `size` bytes with consecutive offsets from 0 on."""
    pool = templates(rng, kind)
    made, written, offset = [], 0, 0
    while written < size:
        content, count = rng.choice(pool)
        entry = bytearray(content)
        is_wrapper = entry[16] < 2 and count > 1
        struct.pack_into(">q", entry, 0, offset + count - 1 if is_wrapper else offset)
        made.append(Original(bytes(entry), offset, offset + count - 1))
        offset += count
        written += len(entry)
    return made


# ---- damage

KINDS = ("flip", "flips", "offset", "length", "small-length", "magic", "zeros", "duplicate", "swap", "adjacent")
PAGE_KINDS = ("page-copy", "page-swap")  # pages of a disk that lie where another one should: they cut entries apart


def damaged(seed: int, kind: str, size: int, damages: int, *, pages: bool = True) -> DamagedLog:
    """Return a log of `kind` with `damages` at random places, and the last entry cut off. `pages`: PAGE_KINDS, too."""
    rng = random.Random(f"{seed}-{kind}")
    return damage(rng, log_of(rng, kind, size), damages, pages=pages)


def damage(rng: random.Random, originals: list[Original], damages: int, *, pages: bool = True) -> DamagedLog:
    """Return the log of `originals` with `damages` at random places, and the last entry cut off."""
    kinds = KINDS + PAGE_KINDS if pages else KINDS
    wanted = [kinds[at % len(kinds)] for at in range(damages)]
    rng.shuffle(wanted)
    room = len(originals) // (damages + 2)
    assert room > 8, "too many damages for so few entries"
    # Blocks of whole entries first: each damage has `room` entries to itself, in which the others are put in order.
    order: list[int] = list(range(room))
    targets: list[tuple[str, int]] = []
    copies: set[int] = set()  # places in `order`
    swaps: list[tuple[int, int]] = []  # first and end
    for what in wanted:
        block = list(range(len(order) - len(copies), len(order) - len(copies) + room))
        at, count = rng.randint(2, 3), rng.randint(1, 2)
        other = at + count + rng.randint(0, 1)
        if what == "swap":
            swaps.append((len(order) + at, len(order) + other + count))
            block[at : other + count] = (
                block[other : other + count] + block[at + count : other] + block[at : at + count]
            )
        elif what == "duplicate":
            block[at + count : at + count] = block[at : at + count]
            copies.update(range(len(order) + at + count, len(order) + at + 2 * count))
        else:
            targets.append((what, len(order) + 4))
        order += block
    order += range(len(order) - len(copies), len(originals))
    content = bytearray()
    starts: list[int] = []
    for entry in order:
        starts.append(len(content))
        content += originals[entry].content
    starts.append(len(content))
    regions: list[tuple[int, int, str]] = []
    regions += [(starts[place], starts[place + 1], "duplicate") for place in sorted(copies)]
    regions += [(starts[first], starts[end], "swap") for first, end in swaps]
    whole_size = len(content)
    page_moves: list[tuple[int, int]] = []
    for what, place in targets:
        places, kinds = [place], [what]
        if what == "adjacent":
            places = list(range(place, place + rng.randint(2, 4)))
            kinds = [rng.choice(("flip", "flips", "length", "magic", "zeros")) for _ in places]
        for each, each_kind in zip(places, kinds, strict=True):
            regions += _damage(rng, content, starts[each], starts[each + 1], each_kind, page_moves)
    cut = rng.randint(1, starts[-1] - starts[-2] - 1)
    regions.append((starts[-2], whole_size - cut, "tail"))
    del content[whole_size - cut :]
    whole: dict[int, int] = {}
    untouched = []
    displaced = copies.union(*(range(*swap) for swap in swaps))
    for place, (start, entry) in enumerate(zip(starts, order, strict=False)):
        original = originals[entry]
        size = len(original.content)
        moved = [
            start - source + target
            for source, target in page_moves
            if source <= start and start + size <= source + PAGE
        ]
        for position in (start, *moved):
            if content[position : position + size] == original.content:
                whole.setdefault(offset_field(original.content), position)
                if position == start and place not in displaced:
                    untouched.append((start, start + size))
    by_offset = {offset_field(original.content): original for original in originals}
    return DamagedLog(content, whole, regions, by_offset, untouched)


def offset_field(entry: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(entry[:8], "big")


def _damage(
    rng: random.Random, content: bytearray, start: int, end: int, kind: str, page_moves: list[tuple[int, int]]
) -> list[tuple[int, int, str]]:
    """Damage the entry from `start` to `end`; return the regions that are damaged now."""
    is_batch = content[start + 16] == 2
    match kind:
        case "flip" | "flips":
            places = [place for place in range(12, end - start) if not (is_batch and place in range(12, 16))]
            for _ in range(1 if kind == "flip" else rng.randint(2, 12)):
                content[start + rng.choice(places)] ^= 1 << rng.randrange(8)
        case "offset":
            # the lowest bits of a wrapper's offset lead to one that it could as well have, with a hole beside it
            content[start + 7 - rng.randrange(8)] ^= 1 << rng.randrange(3, 8)
        case "length":
            content[start + 8 : start + 12] = rng.randbytes(4)
        case "small-length":
            struct.pack_into(">i", content, start + 8, rng.randint(0, 100_000))
        case "magic":
            content[start + 16] = rng.choice([each for each in (0, 1, 2, 3, 77, 255) if each != content[start + 16]])
        case "zeros":
            page = rng.randrange(start, end) // PAGE * PAGE
            content[page : page + PAGE] = bytes(len(content[page : page + PAGE]))
            return [(page, page + PAGE, kind)]
        case "page-copy":
            source = rng.randrange(start, end) // PAGE * PAGE
            target = source + 2 * PAGE
            content[target : target + PAGE] = content[source : source + PAGE]
            return [(target, target + PAGE, kind)]
        case "page-swap":
            one = rng.randrange(start, end) // PAGE * PAGE
            two = one + 2 * PAGE
            content[one : one + PAGE], content[two : two + PAGE] = content[two : two + PAGE], content[one : one + PAGE]
            page_moves += [(one, two), (two, one)]
            return [(one, one + PAGE, kind), (two, two + PAGE, kind)]
    return [(start, end, kind)]


def write(folder: Path, content: bytes | bytearray) -> Path:
    """Write a partition folder of one segment; return it."""
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(content)
    return folder
