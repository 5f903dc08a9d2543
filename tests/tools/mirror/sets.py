"""Closed sets for tests, and a guard that notices when one is opened."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from magicbyte.access.client.fetch import ClosedSets
from magicbyte.engine import codecs
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records import decode as decoding
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.transactions import AbortedRange

START = 1_700_000_000_000


def some(start: int, count: int, *, holes: bool = False) -> list[Record]:
    """Records with offsets from `start` on, every other one missing with `holes`."""
    step = 2 if holes else 1
    return [
        Record(start + step * at, START + at, 0, b"key-%d" % at if at % 3 else None, b"value %d " % at * 20)
        for at in range(count)
    ]


def stored(target: Format, codec: Codec, start: int = 0, count: int = 10, **header: Any) -> bytes:
    """A set as a leader stores it."""
    made = BatchHeader(partition_leader_epoch=7, **header)
    return encode_records(some(start, count), target, codec, header=made)


def fetched(
    *sets: bytes,
    stable: int = -1,
    aborted: tuple[AbortedRange, ...] = (),
    dialect: Dialect = Dialect.KAFKA,
    end: int = 1 << 40,
) -> ClosedSets:
    """What a fetch brings."""
    data = memoryview(b"".join(sets))
    return ClosedSets(data, 0, end, stable, 0, scan(data, dialect=dialect), list(aborted))


def seen(data: bytes | memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offset, time, key and value of all records."""
    return [(each.offset, each.timestamp, each.key, each.value) for part in decode(memoryview(data)) for each in part]


@contextmanager
def counted() -> Iterator[list[str]]:
    """Count what this thread opens inside the block: a name for each call that decompresses or decodes."""
    calls: list[str] = []
    here = threading.current_thread()
    originals: dict[str, Callable[..., Any]] = {
        each.__name__: each for each in (codecs.decompress, codecs.decompress_into, decoding.decode)
    }
    changed = []

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is here:
                calls.append(name)
            return originals[name](*arguments, **named)

        return call

    for module in [each for name, each in sys.modules.items() if name.startswith("magicbyte")]:
        for name, original in originals.items():
            if vars(module).get(name) is original:
                changed.append((module, name))
                setattr(module, name, counting(name))
    try:
        yield calls
    finally:
        for module, name in changed:
            setattr(module, name, originals[name])


def transaction(offset: int, producer: int, codec: Codec = Codec.GZIP) -> bytes:
    """Return a set of an open transaction."""
    header: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
    return stored(Format.V2, codec, offset, **header, is_transactional=True)


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    """Return the end of a transaction."""
    header = BatchHeader(producer_id=producer, producer_epoch=0, is_control=True, is_transactional=True)
    record = some(offset, 1)[0]._replace(key=bytes([0, 0, 0, kind]), value=bytes(6))
    return encode_records([record], Format.V2, header=header._replace(partition_leader_epoch=7))
