"""The data files of a stopped ZooKeeper, or of a copy of one: the tree that it would restore at its next start.

A data directory has snapshots of the tree (`snapshot.ZXID`, of the last transaction in it) and logs of transactions
(`log.ZXID`, of the first one), in a folder `version-2`. The tree is the newest whole snapshot, with all later
transactions. Nothing is changed. Source: ZooKeeper's FileTxnSnapLog, FileTxnLog, DataTree; files of 3.4.10 to 3.8.4.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MetadataError
from magicbyte.engine.log.files.filesystem import file_system
from magicbyte.engine.wire.reader import Reader
from magicbyte.server.metadata.tree import ROOT, Session, StoredNode, Tree

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock, FileEntry, FileSystem, ReadableFile

FOLDER: Final = "version-2"
MOST_SNAPSHOT_BYTES: Final = 1 << 30
"""The size limit of a snapshot, which is read as a whole."""
MOST_KEPT_BYTES: Final = 1 << 30
"""The limit for the nodes of a tree: their paths and data, and 256 bytes for each."""
MOST_RECORD_BYTES: Final = 64 << 20
"""The size limit of a transaction; ZooKeeper's is 1 MiB by default (`jute.maxbuffer`)."""

_NAMED: Final = re.compile(r"(snapshot|log)\.([0-9a-f]{1,16})")
_COMPRESSED: Final = re.compile(r"snapshot\.[0-9a-f]{1,16}\.(gz|snappy)")
_LOG, _SNAPSHOT = b"ZKLG", b"ZKSN"
_VERSION: Final = 2
_HEADER_BYTES: Final = 16
_FRAME: Final = struct.Struct(">Qi")  # checksum and length before a transaction
_STAT: Final = struct.Struct(">qqqqii4xqq")
_HEADER: Final = struct.Struct(">qiqqi")
_DIGEST_BYTES: Final = 12  # after a transaction, from 3.6 on
_SESSION_BYTES: Final = 12
_END: Final = 0x42
_BLOCK_BYTES: Final = 1 << 20
_NODE_BYTES: Final = 256
_LOW: Final = 0xFFFFFFFF  # of a zxid: its number in the epoch
_ANY_VERSION: Final = -1
_CONTAINER: Final = -(1 << 63)
_TTL: Final = -(1 << 56)

_CREATE, _DELETE, _SET, _SET_ACL, _CHECK, _MULTI = 1, 2, 5, 7, 13, 14
_CREATE_2, _RECONFIG, _CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL = 15, 16, 19, 20, 21
_CREATE_SESSION, _CLOSE_SESSION, _ERROR = -10, -11, -1


class RestoredNode(Struct):
    """A node with the fields of its Stat in their order on the disk, but for the version of its ACL, which is not read.

    `cversion` counts the children ever created.
    """

    data: bytes | None
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    pzxid: int


class RestoredTree(NamedTuple):
    """The tree of a data directory, up to the transaction `zxid`.

    `passed_over`: damaged snapshots, newer than the one that was read. `torn`: where the last log ends, if that is not
    the end of a transaction. `compressed`: names of snapshots that were not read. `has_logs`: whether there is a log.
    """

    nodes: Mapping[str, RestoredNode]
    zxid: int
    passed_over: Sequence[CorruptRecordError]
    torn: CorruptRecordError | None
    compressed: Sequence[str]
    has_logs: bool

    def session(self, clock: Clock, top: str = ROOT) -> Session:
        """Return a view of the tree under the node `top`, a chroot path. Changes are refused."""
        above = "" if top == ROOT else top
        nodes = {ROOT: _stored(self.nodes[top])}
        for path, node in self.nodes.items():
            if path != ROOT and path.startswith(f"{above}/"):
                nodes[path.removeprefix(above)] = _stored(node)
        return Tree(clock, _refuse, nodes, self.zxid).session()


def data_folder(path: str) -> str | None:
    """Return the folder with ZooKeeper's files at a path: that folder, or its `version-2`. None if there are none."""
    files, inside = file_system(path)
    for each in (inside, f"{inside}/{FOLDER}"):
        if any(_NAMED.fullmatch(entry.name) or _COMPRESSED.fullmatch(entry.name) for entry in _entries(files, each)):
            return each
    return None


def restore(folder: str) -> RestoredTree:
    """Return the tree in a folder of snapshots and logs, as ZooKeeper restores it.

    A damaged snapshot is passed over for an older one. Raises LogDirectoryError for a tree above the limits, and if
    the logs do not reach back to a snapshot; CorruptRecordError, with file and position, for other damage.
    """
    files, inside = file_system(folder)
    entries = _entries(files, inside)
    snapshots, logs = _named(entries, "snapshot"), _named(entries, "log")
    passed_over = list[CorruptRecordError]()
    restoring = _begin(files, snapshots, passed_over)
    if restoring is None:
        compressed = [each.name for each in entries if _COMPRESSED.fullmatch(each.name)]
        first = logs[0][0] if logs else None
        if first is None or first & _LOW != 1:
            raise _nothing_to_begin_with(inside, first, passed_over, compressed)
        restoring = _Restoring({ROOT: RestoredNode(b"", *[0] * 8)}, 0)
    latest = snapshots[-1][0] if snapshots else 0
    compressed = [
        each.name
        for each in entries
        if _COMPRESSED.fullmatch(each.name) and int(each.name.split(".")[1], 16) > max(latest, restoring.zxid)
    ]
    torn = _replay(files, logs, restoring)
    return RestoredTree(restoring.whole(), restoring.zxid, passed_over, torn, compressed, bool(logs))


def _entries(files: FileSystem, path: str) -> list[FileEntry]:
    try:
        return [each for each in files.list(path) if not each.is_directory]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _named(found: Sequence[FileEntry], kind: str) -> list[tuple[int, FileEntry]]:
    """Return the files of a kind with their zxids, in their order."""
    matches = [(_NAMED.fullmatch(each.name), each) for each in found]
    own = [(int(match[2], 16), each) for match, each in matches if match is not None and match[1] == kind]
    return sorted(own, key=lambda each: each[0])


def _nothing_to_begin_with(
    folder: str, first: int | None, passed_over: Sequence[CorruptRecordError], compressed: Sequence[str]
) -> LogDirectoryError:
    begin = "there is no log" if first is None else f"the logs begin at transaction {first:x}"
    why = "".join(f"; {each}" for each in passed_over)
    if compressed:
        why += f"; compressed snapshots are not read: decompress {compressed[-1]}"
    return LogDirectoryError(f"{folder}: no whole snapshot, and {begin}{why}")


def _begin(
    files: FileSystem, snapshots: Sequence[tuple[int, FileEntry]], passed_over: list[CorruptRecordError]
) -> _Restoring | None:
    """Return the tree of the newest whole snapshot, None if there is none."""
    for zxid, entry in reversed(snapshots):
        try:
            with files.open(entry.path) as file:
                return _Restoring(_read_snapshot(file), zxid)
        except CorruptRecordError as error:
            passed_over.append(error.locate(path=entry.path))
    return None


# ---- a snapshot


def _read_snapshot(file: ReadableFile) -> dict[str, RestoredNode]:
    """Return the nodes of a snapshot by path, parents first. Raises CorruptRecordError without the path."""
    if file.size > MOST_SNAPSHOT_BYTES:
        raise LogDirectoryError(f"{file.path}: expected at most {MOST_SNAPSHOT_BYTES} bytes, found {file.size}")
    data = file.read_at(0, file.size)
    reader = Reader(data)
    _check_header(reader, _SNAPSHOT)
    reader.take(_SESSION_BYTES * _count(reader, _SESSION_BYTES))
    for _ in range(_count(reader, 8)):
        reader.int64()
        _skip_acl(reader)
    nodes = dict[str, RestoredNode]()
    kept = _Kept(file.path)
    while (path := _text(reader)) != ROOT:
        start = reader.position
        content = _buffer(reader)
        reader.int64()  # its ACL
        node = RestoredNode(content, *_STAT.unpack(reader.take(_STAT.size)))
        _check_path(path, nodes, start)
        kept.add(path, node)
        nodes[path or ROOT] = node
    if ROOT not in nodes:
        raise CorruptRecordError("nodes of a snapshot", expected="a root", found="none", position=reader.position)
    _check_sum(reader, data)
    if reader.position < len(data):  # from 3.6 on
        reader.take(8 + _DIGEST_BYTES)
        _check_sum(reader, data)
    if reader.position < len(data):
        left = len(data) - reader.position
        raise CorruptRecordError("bytes after the end", expected=0, found=left, position=reader.position)
    return nodes


def _check_header(reader: Reader, magic: bytes) -> None:
    found = bytes(reader.take(4))
    if found != magic:
        raise CorruptRecordError("magic", expected=magic.decode(), found=found.hex(), position=0)
    if (version := reader.int32()) != _VERSION:
        raise CorruptRecordError("version", expected=_VERSION, found=version, position=4)
    reader.int64()  # an id that is not used


def _check_sum(reader: Reader, data: bytes) -> None:
    """Read a checksum of everything before it, and the path that ends a list of nodes."""
    start = reader.position
    computed, stored = zlib.adler32(memoryview(data)[:start]), reader.int64()
    if stored != computed:
        raise CorruptRecordError("checksum", expected=f"{stored:#x}", found=f"{computed:#x}", position=start)
    if (end := _text(reader)) != ROOT:
        raise CorruptRecordError("end of a snapshot", expected=ROOT, found=end, position=start + 8)


def _check_path(path: str, nodes: Mapping[str, RestoredNode], position: int) -> None:
    parent, slash, name = path.rpartition("/")
    if path and not (slash and name and (parent or ROOT) in nodes and path not in nodes):
        raise CorruptRecordError("path", expected="a new one, of a known parent", found=path, position=position)


class _Kept:
    """Counts the bytes that a tree takes."""

    def __init__(self, path: str, kept: int = 0) -> None:
        self.path, self.kept = path, kept

    def add(self, path: str, node: RestoredNode) -> None:
        """Count a node. Raises LogDirectoryError above the limit."""
        self.change(_size(path, node))

    def change(self, size: int) -> None:
        """Count bytes."""
        self.kept += size
        if self.kept > MOST_KEPT_BYTES:
            raise LogDirectoryError(f"{self.path}: expected a tree of at most {MOST_KEPT_BYTES} bytes, found more")


def _size(path: str, node: RestoredNode) -> int:
    return _NODE_BYTES + len(path) + len(node.data or b"")


# ---- the parts of records


def _count(reader: Reader, least: int) -> int:
    """Return the length of a list whose items have `least` bytes or more; a list that is null is empty."""
    start, count = reader.position, reader.int32()
    most = (len(reader.data) - reader.position) // least
    if not -1 <= count <= most:
        raise CorruptRecordError("number of items", expected=f"-1 to {most}", found=count, position=start)
    return max(count, 0)


def _buffer(reader: Reader) -> bytes | None:
    length = reader.int32()
    return None if length == -1 else bytes(reader.take(length))


def _text(reader: Reader) -> str:
    return (_buffer(reader) or b"").decode(errors="replace")  # as Java does


def _skip_acl(reader: Reader) -> None:
    for _ in range(_count(reader, 12)):
        reader.int32()
        _buffer(reader)
        _buffer(reader)


# ---- logs


class _LogFile:
    """The transactions of a log, in order; `torn` says afterwards why they end before the file does."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._block, self._start = b"", 0
        self.torn: CorruptRecordError | None = None

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position and the bytes of each transaction."""
        try:
            _check_header(Reader(self._at(0, _HEADER_BYTES)), _LOG)
        except CorruptRecordError as error:
            self.torn = error.locate(path=self._file.path)
            return
        position = _HEADER_BYTES
        while frame := self._at(position, _FRAME.size):
            if len(frame) < _FRAME.size:
                self._tear("bytes of a transaction", f">= {_FRAME.size}", len(frame), position)
                return
            stored, length = _FRAME.unpack(frame)
            if not length:
                return
            start = position + _FRAME.size
            if not _HEADER.size <= length <= min(MOST_RECORD_BYTES, self._file.size - start):
                most = min(MOST_RECORD_BYTES, self._file.size - start)
                self._tear("length of a transaction", f"{_HEADER.size} to {most}", length, position)
                return
            body = self._at(start, length + 1)
            computed = zlib.adler32(memoryview(body)[:length])
            if stored != computed:
                self._tear("checksum", f"{stored:#x}", f"{computed:#x}", position)
                return
            if body[length:] != bytes([_END]):
                self._tear("last byte of a transaction", f"{_END:#x}", body[length:].hex() or "none", position)
                return
            yield start, body[:length]
            position = start + length + 1

    def _tear(self, what: str, expected: str, found: object, position: int) -> None:
        error = CorruptRecordError(what, expected=expected, found=found, position=position)
        self.torn = error.locate(path=self._file.path)

    def _at(self, position: int, length: int) -> bytes:
        begin = position - self._start
        if begin + length > len(self._block):
            self._block, self._start = self._file.read_at(position, max(length, _BLOCK_BYTES)), position
            begin = 0
        return self._block[begin : begin + length]


def _replay(
    files: FileSystem, logs: Sequence[tuple[int, FileEntry]], restoring: _Restoring
) -> CorruptRecordError | None:
    """Apply all transactions after those that the tree has; return where the last log is torn.

    Raises CorruptRecordError if transactions are missing before later ones.
    """
    first = max((at for at, (zxid, _) in enumerate(logs) if zxid <= restoring.zxid + 1), default=0)
    torn: CorruptRecordError | None = None
    for _, entry in logs[first:]:
        with files.open(entry.path) as file:
            log = _LogFile(file)
            restoring.kept.path = entry.path
            for position, body in log.records():
                try:
                    _add(restoring, body, torn)
                except CorruptRecordError as error:
                    raise error if error is torn else error.locate(path=entry.path, shift=position) from None
            torn = log.torn or torn
    return torn


def _add(restoring: _Restoring, body: bytes, torn: CorruptRecordError | None) -> None:
    """Apply a transaction, unless the tree has it. Raises `torn` if those before it are missing because of that."""
    session, _, zxid, time_ms, kind = _HEADER.unpack_from(body)
    if zxid <= restoring.zxid:
        return
    starts_epoch = zxid & _LOW == 1 and zxid >> 32 > restoring.zxid >> 32
    if zxid != restoring.zxid + 1 and not starts_epoch:
        if torn is not None:
            raise torn
        raise CorruptRecordError("transaction", expected=f"{restoring.zxid + 1:x}", found=f"{zxid:x}", position=12)
    restoring.zxid = zxid
    reader = Reader(body)
    reader.take(_HEADER.size)
    _Applying(restoring, zxid, session, time_ms).apply(kind, reader)
    left = len(body) - reader.position
    if left not in (0, _DIGEST_BYTES):
        what = "bytes after a transaction"
        raise CorruptRecordError(what, expected=f"0 or {_DIGEST_BYTES}", found=left, position=reader.position)


class _Restoring:
    """A tree that takes transactions."""

    def __init__(self, nodes: dict[str, RestoredNode], zxid: int) -> None:
        self.nodes, self.zxid = nodes, zxid
        self.owned = dict[int, set[str]]()
        for path, node in nodes.items():
            self.own(path, node)
        self.kept = _Kept("", sum(_size(path, node) for path, node in nodes.items()))

    def own(self, path: str, node: RestoredNode) -> None:
        """Add an ephemeral node to those of its session."""
        if node.ephemeral_owner:
            self.owned.setdefault(node.ephemeral_owner, set()).add(path)

    def whole(self) -> dict[str, RestoredNode]:
        """Return the nodes whose parents are there, parents first."""
        found = {ROOT: self.nodes[ROOT]}
        for path in sorted(self.nodes):
            if path != ROOT and _parent(path) in found:
                found[path] = self.nodes[path]
        return found


class _Applying(NamedTuple):
    """A transaction: its id, its session and its time. Raises CorruptRecordError with a position in its record.

    Snapshots are taken while the tree changes, so that they may have later transactions than their names say: a node
    that is already there is kept, and one that is already gone stays so.
    """

    tree: _Restoring
    zxid: int
    session: int
    time_ms: int

    def apply(self, kind: int, reader: Reader) -> None:
        """Read a transaction of a kind, and apply it."""
        match kind:
            case _ if kind in (_CREATE, _CREATE_2, _CREATE_CONTAINER, _CREATE_TTL):
                self._create(kind, reader)
            case _ if kind in (_DELETE, _DELETE_CONTAINER):
                self._remove(_text(reader))
            case _ if kind in (_SET, _RECONFIG):
                self._set(_text(reader), _buffer(reader), reader.int32())
            case _ if kind == _SET_ACL:
                _text(reader)
                _skip_acl(reader)
                reader.int32()
            case _ if kind == _CHECK:
                _text(reader)
                reader.int32()
            case _ if kind == _MULTI:
                self._multi(reader)
            case _ if kind in (_CREATE_SESSION, _ERROR):
                reader.int32()
            case _ if kind == _CLOSE_SESSION:
                reader.take(len(reader.data) - reader.position)  # from 3.6 on, the paths of the nodes
                for path in sorted(self.tree.owned.pop(self.session, ())):
                    self._remove(path)
            case _:
                raise CorruptRecordError("type of a transaction", expected="a known one", found=kind, position=28)

    def _multi(self, reader: Reader) -> None:
        parts = list[tuple[int, bytes, int]]()
        for _ in range(_count(reader, 8)):
            kind, start = reader.int32(), reader.position + 4
            parts.append((kind, _buffer(reader) or b"", start))
        if any(kind == _ERROR for kind, _, _ in parts):
            return
        for kind, body, start in parts:
            if kind in (_MULTI, _CREATE_SESSION, _CLOSE_SESSION):
                what = "type in a multi transaction"
                raise CorruptRecordError(what, expected="a change of a node", found=kind, position=start - 8)
            body_reader = Reader(body)
            try:
                self.apply(kind, body_reader)
            except CorruptRecordError as error:
                raise error.locate(shift=start) from None
            if left := len(body) - body_reader.position:
                end = start + body_reader.position
                raise CorruptRecordError("bytes after a part", expected=0, found=left, position=end)

    def _create(self, kind: int, reader: Reader) -> None:
        start = reader.position
        path, data = _text(reader), _buffer(reader)
        _skip_acl(reader)
        owner = 0
        if kind == _CREATE_CONTAINER:
            owner = _CONTAINER
        elif kind != _CREATE_TTL and reader.int8():
            owner = self.session
        cversion = reader.int32()
        if kind == _CREATE_TTL:
            owner = _TTL | reader.int64()
        if not path.startswith("/") or path.endswith("/"):
            raise CorruptRecordError("path", expected="one such as /brokers/ids", found=path, position=start)
        nodes, above = self.tree.nodes, self.tree.nodes.get(_parent(path))
        if above is None:
            return
        if cversion == _ANY_VERSION:
            cversion = above.cversion + 1
        if cversion > above.cversion:
            above.cversion, above.pzxid = cversion, self.zxid
        if path in nodes:
            return
        node = RestoredNode(data, self.zxid, self.zxid, self.time_ms, self.time_ms, 0, 0, owner, self.zxid)
        self.tree.kept.add(path, node)
        nodes[path] = node
        self.tree.own(path, node)

    def _remove(self, path: str) -> None:
        if path == ROOT or (node := self.tree.nodes.pop(path, None)) is None:
            return
        self.tree.kept.change(-_size(path, node))
        self.tree.owned.get(node.ephemeral_owner, set()).discard(path)
        if (above := self.tree.nodes.get(_parent(path))) is not None:
            above.pzxid = max(above.pzxid, self.zxid)

    def _set(self, path: str, data: bytes | None, version: int) -> None:
        if (node := self.tree.nodes.get(path)) is None:
            return
        self.tree.kept.change(len(data or b"") - len(node.data or b""))
        node.data, node.version, node.mzxid, node.mtime_ms = data, version, self.zxid, self.time_ms


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def _stored(node: RestoredNode) -> StoredNode:
    return StoredNode(
        data=node.data or b"",
        version=node.version,
        czxid=node.czxid,
        mzxid=node.mzxid,
        pzxid=node.pzxid,
        ctime_ms=node.ctime_ms,
        mtime_ms=node.mtime_ms,
        created=node.cversion,
        ephemeral_owner=node.ephemeral_owner,
    )


def _refuse(nodes: Mapping[str, StoredNode | None], _zxid: int) -> None:
    raise MetadataError(next(iter(nodes), ROOT), "the files of a ZooKeeper are not changed")
