"""What is fuzzed: one function for each way in which foreign bytes come in. Each takes any bytes and returns.

A function fails by any exception but those of magicbyte's tree, and by the promises it asserts: positions lie inside
the buffer, entries are found alike by every reader, nothing is larger than the limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from engine.protocol.any_bytes import check_any_bytes
from engine.protocol.generated import codecs
from engine.protocol.schemas import versions
from fuzz.logins import fuzz_login
from magicbyte.engine.codecs import Codec, Lz4Header, OutputFull, decompress, decompress_into
from magicbyte.engine.errors import (
    CorruptRecordError,
    MagicbyteError,
    ProtocolError,
    TruncatedLogError,
    UnsupportedVersionError,
)
from magicbyte.engine.groups import consumer_protocol
from magicbyte.engine.groups import records as group_records
from magicbyte.engine.log.files import checkpoints, indexes, producer_snapshot, properties, reader
from magicbyte.engine.log.files.directory import OFFSET_INDEX, PartitionDirectory, SegmentFiles
from magicbyte.engine.log.files.names import FolderState
from magicbyte.engine.ports import FileEntry
from magicbyte.engine.protocol import Frames, read_request, write_request
from magicbyte.engine.records.anatomy import anatomy, inside
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import control_records, parse_control_record
from magicbyte.engine.records.convert import convert
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import dialect_doubt, entries
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.transactions import batch_facts
from magicbyte.engine.transactions import records as transaction_records
from magicbyte.tools.offline.batch_list import list_batches
from magicbyte.tools.offline.inventory import take_inventory

LIMIT = 1 << 16


def options_of(flags: int) -> tuple[DecodeOptions, Dialect]:
    """Return what the bits of a fuzzed input's first byte choose."""
    options = DecodeOptions(
        verify=bool(flags & 2), control=bool(flags & 4), headers=not flags & 8, keys=not flags & 16, limit=LIMIT
    )
    return options, Dialect.ENRICHED if flags & 1 else Dialect.KAFKA


def decoded(data: bytes, options: DecodeOptions, dialect: Dialect) -> tuple[list[Record], MagicbyteError | None]:
    """Return all records of `data` and what ended the decoding."""
    found: list[Record] = []
    try:
        for columns in decode(memoryview(data), options, dialect=dialect):
            found += columns
    except MagicbyteError as error:
        return found, error
    return found, None


def fuzz_decode(data: bytes) -> None:
    options, dialect = options_of(data[0] if data else 0)
    log = data[1:]
    records, error = decoded(log, options, dialect)
    table = scan(memoryview(log), dialect=dialect)
    if isinstance(error, CorruptRecordError):
        assert error.position is not None
        assert error.position in table.position or error.position == table.end, error
        str(error)
    else:
        assert error is None, error
    for record in records:
        assert -(1 << 63) <= record.offset < 1 << 63
        assert -(1 << 63) <= record.timestamp < 1 << 63
        assert record.timestamp_type in (-1, 0, 1)


def fuzz_scan(data: bytes) -> None:
    dialect = Dialect.ENRICHED if data[:1] > b"\x7f" else Dialect.KAFKA
    log = memoryview(data)[1:]
    table = scan(log, dialect=dialect)
    walk = entries(log, dialect)
    found, damage = [], None
    try:
        found.extend(walk)
    except CorruptRecordError as error:
        damage = error
    if damage is not None and damage.what == "length of the tags":  # the view looks at it, the scan does not
        table = scan(log[: damage.position], dialect=dialect)
    assert [position for position, _ in found] == list(table.position)
    assert [entry.size for _, entry in found] == list(table.size)
    assert walk.position == table.end
    if damage is None:
        assert table.damage is None or len(log) - table.end < 61  # one looks at the magic of a cut entry, one does not
        assert (walk.tail is None) == (table.end == len(log))
    else:
        assert damage.position == table.end
    table = scan(log, dialect=dialect)
    merged = scan(log, dialect=dialect, merge=True)
    assert (merged.end, merged.need, str(merged.damage)) == (table.end, table.need, str(table.damage))
    assert sum(merged.size) == sum(table.size)


def check_place(error: MagicbyteError, size: int, *, needed: bool = False) -> None:
    """Fail if an error names a position outside the `size` bytes that were given, or none though one is needed."""
    if isinstance(error, CorruptRecordError):
        assert error.position is not None or not needed, error
        assert 0 <= (error.position or 0) <= size, error


def see(view: Any, names: tuple[str, ...]) -> None:
    """Read properties of a view: each gives a value or one of our errors."""
    for name in names:
        try:
            value = getattr(view, name)
        except MagicbyteError as error:
            check_place(error, len(view.buffer))
            continue
        if isinstance(value, memoryview):
            assert len(value) <= len(view.buffer)


PROPERTIES = {
    kind: tuple(name for name in dir(kind) if not name.startswith("_") and isinstance(getattr(kind, name), property))
    for kind in (RecordBatch, EnrichedMessage)
}


def fuzz_views(data: bytes) -> None:
    dialect = Dialect.ENRICHED if data[:1] > b"\x7f" else Dialect.KAFKA
    log = memoryview(bytearray(data[1:]))
    try:
        found = list(entries(log, dialect))
    except CorruptRecordError:
        return
    for _, entry in found:
        kind = type(entry)
        if kind not in PROPERTIES:
            names = (name for name in dir(kind) if not name.startswith("_"))
            PROPERTIES[kind] = tuple(name for name in names if isinstance(getattr(kind, name), property))
        see(entry, PROPERTIES[kind])
        dialect_doubt(entry.buffer, dialect)
        for act in (entry.verify, lambda entry=entry: batch_facts(entry)):
            with contextlib.suppress(MagicbyteError):
                act()
        if isinstance(entry, RecordBatch) and entry.is_control:
            with contextlib.suppress(MagicbyteError):
                control_records(entry)


def fuzz_anatomy(data: bytes) -> None:
    dialect = Dialect.ENRICHED if data[:1] > b"\x7f" else Dialect.KAFKA
    log = memoryview(data)[1:]
    at = 0
    try:
        for part in anatomy(log, dialect):
            assert part.start == at
            at += part.size
        assert at == len(log)
        inside(log, dialect, limit=LIMIT)
    except MagicbyteError:
        pass


def fuzz_codecs(data: bytes) -> None:
    flags = data[0] if data else 0
    codec, header = Codec(flags % 5), list(Lz4Header)[(flags // 5) % 3]
    limit = (0, 10, 1000, LIMIT)[(flags // 15) % 4]
    whole: bytes | None
    try:
        whole = bytes(decompress(codec, data[1:], limit=limit, lz4_header=header))
        assert len(whole) <= limit
    except MagicbyteError:
        whole = None
    out = bytearray(limit + 40)
    try:
        written = decompress_into(codec, memoryview(data)[1:], memoryview(out)[:limit], lz4_header=header)
    except (MagicbyteError, OutputFull):
        assert whole is None, "decompress succeeded where decompress_into failed"
    else:
        assert bytes(out[:written]) == whole
    assert not any(out[limit:]), "written beyond the end"


def parse_properties(data: bytes) -> object:
    return properties.parse_properties(data)


def with_order(parsed: Any) -> Any:
    parsed.verify()
    return parsed


FILE_PARSERS: tuple[Callable[[bytes], Any], ...] = (
    lambda data: with_order(indexes.OffsetIndex.parse(data, 7)).floor(20),
    lambda data: with_order(indexes.TimeIndex.parse(data, 7)).floor(20),
    lambda data: with_order(indexes.EnrichedIndex.parse(data, 7)).floor(20),
    lambda data: with_order(indexes.TransactionIndex.parse(data)).aborted(3, 10),
    producer_snapshot.ProducerSnapshot.parse,
    checkpoints.parse_offset_checkpoint,
    checkpoints.parse_leader_epochs,
    checkpoints.parse_partition_metadata,
    checkpoints.parse_message_dialect,
    checkpoints.parse_meta_properties,
    checkpoints.parse_clean_shutdown,
    parse_properties,
)


def fuzz_files(data: bytes) -> None:
    which = (data[0] if data else 0) % len(FILE_PARSERS)
    content = data[1:]
    try:
        FILE_PARSERS[which](content)
    except MagicbyteError as error:
        check_place(error, len(content))


def fuzz_internal(data: bytes) -> None:
    """Records of __consumer_offsets and __transaction_state, and control records: key and value of any bytes."""
    flags, size = (data[0], data[1]) if len(data) > 1 else (0, 0)
    key, value = data[2 : 2 + size], data[2 + size :]
    content: bytes | None = None if flags & 128 else value
    try:
        match flags % 4:
            case 0:
                read_key = group_records.decode_key(key)
                read_key.to_json()
                read_value = group_records.decode_value(read_key, content)
                if read_value is not None:
                    read_value.to_json()
            case 1:
                transaction_key = transaction_records.decode_key(key)
                transaction_key.to_json()
                transaction_value = transaction_records.decode_value(transaction_key, content)
                if transaction_value is not None:
                    transaction_value.to_json()
            case 2:
                parse_control_record(5, key, content)
            case _:
                kind = consumer_protocol.Subscription if flags & 4 else consumer_protocol.Assignment
                kind.parse(value).to_json()
    except MagicbyteError:
        pass


class MemoryFile:
    """A ReadableFile of bytes."""

    path = "memory.log"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def fileno(self) -> None: ...

    def read_at(self, position: int, length: int) -> bytes:
        assert position >= 0
        return self.data[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        content = self.read_at(position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def read_log(
    data: bytes, options: DecodeOptions, dialect: Dialect = Dialect.KAFKA
) -> tuple[list[Record], list[CorruptRecordError]]:
    """Return what a reader that skips damage finds in a file of `data`: the records, and each damage."""
    found: list[Record] = []
    damage: list[CorruptRecordError] = []
    chunks = reader.read_chunks(
        MemoryFile(data), dialect=dialect, merge=True, limit=options.limit, on_damage=damage.append
    )
    for chunk in chunks:
        for columns in reader.decode_chunk(chunk, list(range(len(chunk.table))), options, damage.append):
            found += columns
    return found, damage


def fuzz_reader(data: bytes) -> None:
    options, dialect = options_of(data[0] if data else 0)
    log = data[1:]
    _, damage = read_log(log, options, dialect)
    table = scan(memoryview(log), dialect=dialect)
    positions = set(table.position) | {table.end}
    last = -1
    for error in damage:
        assert error.path == MemoryFile.path
        assert error.position is not None
        assert error.position in positions, error
        assert error.position > last, "one entry's damage told twice"
        last = error.position
        assert isinstance(error, TruncatedLogError) <= (error.position == table.end), error


class MemoryFiles:
    """A FileSystem of a segment and its index."""

    def __init__(self, log: bytes, index: bytes) -> None:
        self.files = {".log": MemoryFile(log), ".index": MemoryFile(index)}

    def list(self, path: str) -> list[FileEntry]:
        return [FileEntry(name, file.size, is_directory=False) for name, file in self.files.items()]

    def entry(self, path: str) -> FileEntry:
        return FileEntry(path, self.open(path).size, is_directory=False)

    def open(self, path: str) -> MemoryFile:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]


def partition_of(log: bytes, index: bytes, dialect: Dialect) -> PartitionDirectory:
    """Return a partition folder that holds a segment of base offset 0 and, unless it is empty, an index."""
    files = MemoryFiles(log, index)
    companions = {OFFSET_INDEX: files.entry(".index")} if index else {}
    segment = SegmentFiles(0, files.entry(".log"), companions)
    nothing: tuple[FileEntry, ...] = ()
    return PartitionDirectory(
        "folder", files, "t", 0, FolderState.CURRENT, dialect, None, (segment,), {}, {}, nothing, nothing, nothing
    )


def fuzz_partition(data: bytes) -> None:
    """A whole partition: isolation, selections, an offset index of any bytes, lists of batches, inventory."""
    flags, choice = (data[0], data[1]) if len(data) > 1 else (0, 0)
    options, dialect = options_of(flags)
    size = choice & 15 if choice & 16 else 0
    index, log = data[2 : 2 + size], data[2 + size :]
    partition = partition_of(log, index, dialect)
    segments = reader.SegmentReader(partition)
    first, end = ((0, 1 << 62), (0, 1 << 62), (5, 60), (1, 1 << 40))[choice >> 5 & 3]
    isolation = reader.Isolation.READ_COMMITTED if choice & 128 else reader.Isolation.READ_UNCOMMITTED
    selection = reader.Selection(first, end, since=1 if flags & 32 else None, isolation=isolation)
    damage: list[CorruptRecordError] = []
    found: list[Record] = []
    for columns in segments.records(selection, options, on_damage=damage.append):
        found += columns
    assert all(first <= record.offset < end for record in found) or not first
    for _ in list_batches(segments, limit=LIMIT, on_damage=damage.append):
        pass
    if flags & 64:
        take_inventory(partition, deep=bool(flags & 128), on_damage=damage.append, limit=LIMIT)
    for error in damage:
        assert error.path is not None, error
        check_place(error, max(len(log), len(index)), needed=error.path == MemoryFile.path)


def converted(data: bytes) -> tuple[bytes, MagicbyteError | None]:
    """Convert a log as its two bytes of flags say; return the output before an error, and the error."""
    flags, choice = (data[0], data[1]) if len(data) > 1 else (0, 0)
    options, dialect = options_of(flags & 3)
    pieces: list[bytes] = []
    try:
        for piece in convert(
            data[2:],
            list(Format)[choice & 3],
            dialect=dialect,
            codec=(None, *Codec)[(choice >> 2 & 7) % 6],
            fetch_offset=5 if choice & 32 else None,
            fix_lz4=bool(choice & 64),
            verify=options.verify,
            limit=LIMIT,
        ):
            pieces += [bytes(piece)]
    except MagicbyteError as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


def fuzz_convert(data: bytes) -> None:
    """Converted records are the same records; what cannot be converted says why."""
    flags, choice = (data[0], data[1]) if len(data) > 1 else (0, 0)
    options, dialect = options_of(flags & 3)
    target, log = list(Format)[choice & 3], data[2:]
    output, error = converted(data)
    if error is not None:
        check_place(error, len(log), needed=True)
        return
    if choice & 32:
        return
    before, damage = decoded(log, options, dialect)
    if damage is None:
        after, damage = decoded(output, DecodeOptions(limit=1 << 24, verify=options.verify), target.dialect)
        assert damage is None, damage
        assert [(r.offset, r.key, r.value) for r in before] == [(r.offset, r.key, r.value) for r in after]
        if target is Format.V2:
            assert [r.headers for r in before] == [r.headers for r in after]


def fuzz_protocol(data: bytes) -> None:
    """A message of any version, beside the interpreter of schemas; or frames that arrive in two pieces."""
    which, body = int.from_bytes(data[:2], "big"), data[2:]
    if which < 0x8000:
        name, version = versions()[which % len(versions())]
        check_any_bytes(codecs()[name], version, body)
        return
    frames, found = Frames(LIMIT), []
    with contextlib.suppress(ProtocolError):
        for piece in (body[: which & 0xFF], body[which & 0xFF :]):
            found += [bytes(frame) for frame in frames.feed(piece)]
    assert sum(4 + len(frame) for frame in found) <= len(body)
    for frame in found:
        try:
            request = read_request(frame)
        except (ProtocolError, UnsupportedVersionError):
            continue
        version, header = request.header.request_api_version, request.header
        again = write_request(
            request.message, version, correlation_id=header.correlation_id, client_id=header.client_id
        )
        if not header.unknown_tags:
            repeated, codec = read_request(bytes(again)[4:]), codecs()[f"{request.api.name}Request"]
            assert repeated.header == header
            assert repr(codec.values(repeated.message, version)) == repr(codec.values(request.message, version))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decode": fuzz_decode,
    "scan": fuzz_scan,
    "views": fuzz_views,
    "anatomy": fuzz_anatomy,
    "codecs": fuzz_codecs,
    "files": fuzz_files,
    "internal": fuzz_internal,
    "reader": fuzz_reader,
    "convert": fuzz_convert,
    "partition": fuzz_partition,
    "protocol": fuzz_protocol,
    "login": fuzz_login,
}
