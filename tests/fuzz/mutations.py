"""Changes that keep a log's structure: entries are changed inside, and their sizes and checksums made right again.

Blind changes end at the first checksum; these reach the bytes after it. Everything random comes from the caller.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from magicbyte.engine.codecs import Codec, Lz4Header, compress, decompress
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.wire.checksum import crc32, crc32c

INNER_LIMIT = 1 << 16
HEADER_FIELDS = {  # magic -> (start, struct code) of every header field behind the checksum
    0: [(17, "b"), (18, "i")],
    1: [(17, "b"), (18, "q"), (18, "i"), (22, "i"), (26, "i"), (26, "b"), (26, "i")],
    2: [(21, "h"), (23, "i"), (27, "q"), (35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")],
}
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
VARINTS = [
    *(bytes([byte]) for byte in (0, 1, 2, 3, 0x0E, 0x7E, 0x7F)),
    b"\x80\x01",
    b"\xfe\x7f",
    b"\xff\x7f",
    b"\x80\x80\x01",
    b"\xfe\xff\xff\xff\x0f",  # the largest int32
    b"\xff\xff\xff\xff\x0f",  # the smallest
    b"\xff\xff\xff\xff\x7f",  # bits beyond 32
    b"\x80\x80\x80\x80\x80\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 10 + b"\x01",
    b"\x80\x00",
]


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole entries of `data`, as their size fields say, and the rest."""
    entries, at = [], 0
    while len(data) - at >= 17:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < 14 or at + 12 + size > len(data):
            break
        entries.append(data[at : at + 12 + size])
        at += 12 + size
    return entries, data[at:]


def sealed(entry: bytearray) -> bytes:
    """Return `entry` with the size and the checksum that its bytes have."""
    if len(entry) >= 26:
        struct.pack_into(">i", entry, 8, len(entry) - 12)
        if entry[16] == 2:
            struct.pack_into(">I", entry, 17, crc32c(bytes(entry[21:])))
        else:
            struct.pack_into(">I", entry, 12, crc32(bytes(entry[16:])))
    return bytes(entry)


def interesting(rnd: random.Random, bits: int) -> int:
    """Return a signed integer of `bits` bits, most often one at which something changes."""
    half = 1 << (bits - 1)
    near = rnd.choice([0, -1, 1, half - 1, -half, half // 2, 1 << 16, 255, 1 << 30, rnd.randrange(-half, half)])
    return (near + rnd.choice([0, 0, 0, -1, 1]) + half) % (2 * half) - half


def payload_start(entry: bytes) -> int:
    """Return where an entry's records or key and value begin, as far as one can say."""
    if entry[16] == 2:
        return min(61, len(entry))
    return min(18 if entry[16] == 0 else 26, len(entry))


def change_bytes(data: bytes, rnd: random.Random) -> bytes:
    """Return `data` with one thing changed that needs no structure."""
    changed = bytearray(data)
    at = rnd.randrange(len(changed) + 1)
    match rnd.randrange(6):
        case 0 if changed:
            changed[at % len(changed)] ^= 1 << rnd.randrange(8)
        case 1 if changed:
            changed[at % len(changed)] = rnd.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rnd.randrange(256)])
        case 2:
            changed[at:at] = rnd.choice(VARINTS)
        case 3:
            del changed[at : at + rnd.choice([1, 1, 2, 4, 16])]
        case 4:
            piece = rnd.choice(VARINTS)
            changed[at : at + len(piece)] = piece
        case _:
            code = rnd.choice("hiq")
            piece = interesting(rnd, BITS[code]).to_bytes(BITS[code] // 8, "big", signed=True)
            changed[at : at + len(piece)] = piece
    return bytes(changed)


def change_inside(entry: bytes, rnd: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    """Return a wrapper or batch whose decompressed content was changed and compressed again, maybe by another codec."""
    magic, attributes = entry[16], entry[18 - (entry[16] < 2) + 0] if len(entry) > 22 else 0
    if magic == 2:
        attributes, start = entry[22], 61
    else:
        start = value_of(entry)
    codec = attributes & 7
    if start < 0 or start > len(entry) or codec > 4:
        return entry
    try:
        content = bytes(decompress(Codec(codec), entry[start:], limit=INNER_LIMIT, lz4_header=Lz4Header.ANY))
    except MagicbyteError:
        return entry
    if magic == 2:
        content = change(content)
    else:
        content = (change_entries if rnd.random() < 0.8 else change_bytes)(content, rnd)
    if len(content) > INNER_LIMIT:
        return entry
    new = Codec(rnd.choice([codec, codec, codec, 0, 1, 2, 3, 4]))
    header = Lz4Header.BROKEN if magic == 0 and rnd.random() < 0.5 else Lz4Header.CORRECT
    stored = compress(new, content, lz4_header=header)
    whole = bytearray(entry[:start]) + stored
    whole[22 if magic == 2 else 17] = attributes & ~7 | new
    if magic < 2:
        struct.pack_into(">i", whole, start - 4, len(stored))
    return sealed(whole)


def value_of(entry: bytes) -> int:
    """Return where the value of a message of magic 0 or 1 begins, -1 if its lengths lie."""
    at = 18 if entry[16] == 0 else 26
    for _ in range(2):  # with a tag area where the bytes allow one, else without
        if at + 4 > len(entry):
            return -1
        key = int.from_bytes(entry[at : at + 4], "big", signed=True)
        value = at + 4 + max(key, 0)
        if value + 4 <= len(entry):
            size = int.from_bytes(entry[value : value + 4], "big", signed=True)
            if value + 4 + size == len(entry):
                return value + 4
        at = 26 + max(int.from_bytes(entry[22:26], "big", signed=True), 0)
    return -1


def change_entry(entry: bytes, rnd: random.Random) -> bytes:
    """Return one entry changed somewhere, most often with size and checksum made right."""
    if len(entry) < 26:
        return change_bytes(entry, rnd)
    changed = bytearray(entry)
    choice = rnd.randrange(10)
    if choice < 3 and entry[16] in HEADER_FIELDS:
        start, code = rnd.choice(HEADER_FIELDS[entry[16]])
        if start + BITS[code] // 8 <= len(changed):
            struct.pack_into(">" + code, changed, start, interesting(rnd, BITS[code]))
    elif choice < 5:
        return change_inside(entry, rnd, lambda content: change_bytes(content, rnd))
    elif choice == 5:
        struct.pack_into(">q", changed, 0, interesting(rnd, 64))
    elif choice == 6 and rnd.random() < 0.3:
        struct.pack_into(">i", changed, 8, interesting(rnd, 32))
        return bytes(changed)
    elif choice == 7 and rnd.random() < 0.3:
        changed[16] = rnd.choice([0, 1, 2, 3, 255])
    else:
        start = payload_start(entry)
        changed[start:] = change_bytes(entry[start:], rnd)
    return bytes(changed) if rnd.random() < 0.05 else sealed(changed)


def change_entries(data: bytes, rnd: random.Random) -> bytes:
    """Return a log with one to three changes: inside entries, of their order, or at the end."""
    entries, rest = split(data)
    if not entries:
        return change_bytes(data, rnd)
    for _ in range(rnd.choice([1, 1, 1, 2, 3])):
        at = rnd.randrange(len(entries)) if entries else 0
        match rnd.randrange(12):
            case 0 if entries:
                entries.insert(rnd.randrange(len(entries)), entries[at])
            case 1 if entries:
                del entries[at]
            case 2:
                rest = rnd.choice([b"", b"\0" * 20, rest[: len(rest) // 2], change_bytes(rest, rnd)])
            case 3 if entries:
                cut = entries.pop(at)
                rest = cut[: rnd.randrange(len(cut))]
            case _ if entries:
                entries[at] = change_entry(entries[at], rnd)
    return b"".join(entries) + rest
