"""Changed bytes in the data files of ZooKeepers, with checksums that are right: a tree, or damage with its position."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MagicbyteError
from magicbyte.server.metadata.zookeeper_files import data_folder, restore
from magicbyte.server.stores.znodes.reading import cluster_paths, image_of
from server.broker.serving import Clock
from server.metadata.zookeeper_builders import RECORDED, files, put

SEED = 42
MIB = 1 << 20
END = struct.pack(">i", 1) + b"/"
SUM_BYTES = 8 + len(END)  # a checksum, and the path after it
DIGEST_BYTES = 20  # after the first checksum, from 3.6 on
LARGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\x10\0\0")


def changed(data: bytes, rng: random.Random) -> bytes:
    """Return bytes of which a few are others, more or fewer, or in which a length is large."""
    made = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made))
        match rng.randrange(4):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                made[at : at + 4] = rng.choice(LARGE)
            case 2:
                made[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                del made[at : at + rng.randrange(1, 9)]
    return bytes(made)


def changed_log(data: bytes, rng: random.Random) -> bytes:
    """Return a log in which one transaction is changed, and has the right length and checksum."""
    places, at = list[tuple[int, int]](), 16
    while at + 12 < len(data) and (length := struct.unpack_from(">i", data, at + 8)[0]):
        places.append((at, length))
        at += 12 + length + 1
    start, length = rng.choice(places)
    body = changed(data[start + 12 : start + 12 + length], rng)
    entry = struct.pack(">Qi", zlib.adler32(body), len(body)) + body + b"B"
    return data[:start] + entry + data[start + 12 + length + 1 :]


def changed_snapshot(data: bytes, rng: random.Random) -> bytes:
    """Return a snapshot whose sessions, ACLs and nodes are changed, and have the right checksum."""
    first = len(data) - SUM_BYTES
    if (shorter := first - DIGEST_BYTES - SUM_BYTES) > 0 and data[shorter + 8 : shorter + SUM_BYTES] == END:
        first = shorter
    body = data[:16] + changed(data[16 : first - len(END)], rng) + END
    made = body + struct.pack(">Q", zlib.adler32(body)) + END
    if first + SUM_BYTES < len(data):
        made += data[first + SUM_BYTES :][:DIGEST_BYTES]
        made += struct.pack(">Q", zlib.adler32(made)) + END
    return made


def judged(folder: str) -> tuple[str, int]:
    """Read a tree, and make its image; return the outcome, and the most bytes that it took."""
    tracemalloc.start()
    try:
        tree = restore(folder)
        for top in cluster_paths(tree.nodes):
            image_of(tree.session(Clock(), top))
        found = "an older snapshot" if tree.passed_over else "a tree"
    except CorruptRecordError as error:
        is_inside = error.position is not None and error.position <= Path(error.path or "").stat().st_size
        found = "damage" if is_inside else str(error)
    except LogDirectoryError as error:
        found = "no beginning" if "no whole snapshot" in str(error) else str(error)
    except MagicbyteError:  # of a node that the whole cluster depends on
        found = "no cluster"
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, most


@pytest.mark.parametrize("version", RECORDED)
def test_any_tree_is_read_or_refused_with_its_position_and_memory_is_bounded(version: str, tmp_path: Path) -> None:
    rng, contents, outcomes = random.Random(SEED), files(version), set[str]()
    for number in range(250):
        name = rng.choice(sorted(contents))
        change = changed_log if name.startswith("log") else changed_snapshot
        folder = data_folder(str(put(tmp_path / str(number), contents | {name: change(contents[name], rng)})))
        assert folder is not None
        outcome, most = judged(folder)
        outcomes.add(outcome)
        assert most < 8 * MIB
    assert {"a tree", "damage"} <= outcomes <= {"a tree", "an older snapshot", "damage", "no beginning", "no cluster"}
