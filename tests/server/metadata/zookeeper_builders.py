"""Files of ZooKeepers: those of real ones (tests/golden/zookeeper), and logs of a few transactions."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import tarfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from magicbyte.server.metadata.zookeeper_files import RestoredNode

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "zookeeper"
RECORDED: Final = ("1.1.1", "2.8.2", "3.9.1")
"""Releases of Kafka: with ZooKeeper 3.4.10, 3.5.9, 3.8.4."""
SESSION: Final = 0x1000082BE9D0000
NOW: Final = 1_790_000_000_000
CREATE, DELETE, SET, MULTI, OPEN, CLOSE, ERROR = 1, 2, 5, 14, -10, -11, -1


@cache
def files(version: str) -> dict[str, bytes]:
    """Return the files of a recorded data directory by name."""
    with tarfile.open(GOLDEN / version / "data.tar.gz") as archive:
        found = {Path(each.name).name: archive.extractfile(each) for each in archive if each.isfile()}
        return {name: file.read() for name, file in found.items() if file is not None}


def put(folder: Path, contents: dict[str, bytes]) -> Path:
    """Write files into the folder of snapshots and logs of a data directory; return the directory."""
    (folder / "version-2").mkdir(parents=True)
    for name, data in contents.items():
        (folder / "version-2" / name).write_bytes(data)
    return folder


@cache
def _lines(version: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in gzip.decompress((GOLDEN / version / "tree.jsonl.gz").read_bytes()).splitlines()
    ]


def recorded_nodes(version: str) -> dict[str, dict[str, Any]]:
    """Return the nodes that ZooKeeper's own classes restored, by path."""
    nodes = [{name: value for name, value in each.items() if name != "aversion"} for each in _lines(version)]
    return {each["path"]: each for each in nodes if "path" in each}


def recorded_zxids(version: str) -> list[int]:
    """Return the ids of all transactions, and the last one that ZooKeeper's own classes restored."""
    return [each.get("txn", each.get("last")) for each in _lines(version) if "path" not in each]


def told(path: str, node: RestoredNode) -> dict[str, Any]:
    """Return a node in the form of `recorded_nodes`."""
    return {
        "path": path,
        "data": None if node.data is None else base64.b64encode(node.data).decode(),
        "czxid": node.czxid,
        "mzxid": node.mzxid,
        "pzxid": node.pzxid,
        "ctime": node.ctime_ms,
        "mtime": node.mtime_ms,
        "version": node.version,
        "cversion": node.cversion,
        "ephemeralOwner": node.ephemeral_owner,
    }


# ---- logs


def text(value: str) -> bytes:
    return buffer(value.encode())


def buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def created(path: str, data: bytes = b"", cversion: int = -1, *, is_ephemeral: bool = False) -> bytes:
    return text(path) + buffer(data) + struct.pack(">i?i", 0, is_ephemeral, cversion)


def changed(path: str, data: bytes, version: int) -> bytes:
    return text(path) + buffer(data) + struct.pack(">i", version)


def multi(*parts: tuple[int, bytes]) -> bytes:
    return struct.pack(">i", len(parts)) + b"".join(struct.pack(">i", kind) + buffer(body) for kind, body in parts)


def transaction(zxid: int, kind: int, body: bytes, session: int = SESSION, end: bytes = b"") -> bytes:
    """Return a transaction as in a log. `end`: bytes after it in its record, such as a digest."""
    record = struct.pack(">qiqqi", session, 0, zxid, NOW + zxid, kind) + body + end
    return struct.pack(">Qi", zlib.adler32(record), len(record)) + record + b"B"


def log_of(*transactions: bytes) -> bytes:
    return b"ZKLG" + struct.pack(">iq", 2, 0) + b"".join(transactions)
