"""Measure the records of logs: bytes by key, by prefix of keys and by header name, before compression."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from magicbyte.ask.heavy import HeavyItem, HeavyItems
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.log.cleaning.offset_map import OffsetMap
from magicbyte.engine.records.columns import BytesColumn
from magicbyte.engine.records.digest import hash_cells

if TYPE_CHECKING:
    from magicbyte.engine.records.columns import HeaderColumns, RecordColumns

    Array = np.ndarray[Any, Any]

Json = dict[str, Any]

_KEY, _PREFIX, _HEADER = 11, 12, 13  # seeds of hashes
_LONGEST_LABEL = 256  # bytes of a key that are kept to show it
_TOPIC_MIXER = 0x9E3779B97F4A7C15
_MOST_OFFSETS = 64 << 20
_MAP_BYTES, _LOAD_FACTOR = 128 << 20, 0.9  # Kafka's defaults for its cleaner
_UINT32_MAX = (1 << 32) - 1


class Label(Struct, frozen=True):
    """What an item is: the start of its bytes, at most 256 of `size`; None: a null key."""

    topic: str
    content: bytes | None
    size: int


class TopicContents(Struct):
    """Records of a topic. Bytes are those of keys, values and headers, before compression.

    Overwritten: a later record in the log has the same key. `is_overwritten_partial`: there are more, because a
    partition has too many keys or offsets to compare all.
    """

    records: int = 0
    bytes: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    tombstones: int = 0
    keyless: int = 0
    overwritten_records: int = 0
    overwritten_bytes: int = 0
    is_overwritten_partial: bool = False

    def to_json(self) -> Json:
        """Return the topic as in `Contents.to_json`."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "keyBytes": self.key_bytes,
            "valueBytes": self.value_bytes,
            "headerBytes": self.header_bytes,
            "tombstones": self.tombstones,
            "withoutKey": self.keyless,
            "overwrittenRecords": self.overwritten_records,
            "overwrittenBytes": self.overwritten_bytes,
            "overwrittenPartial": self.is_overwritten_partial,
        }


class Contents:
    """The records of some logs. `kept` and `delimiters`: as in SpaceOptions."""

    def __init__(self, kept: int | None, delimiters: bytes) -> None:
        self.topics: dict[str, TopicContents] = {}
        self.keys, self.prefixes, self.headers = HeavyItems(kept), HeavyItems(kept), HeavyItems(kept)
        self._delimiters = np.frombuffer(delimiters, np.uint8)
        self._topic_seeds: dict[str, int] = {}

    def of_partition(self, topic: str, begin: int, end: int | None, log_bytes: int) -> PartitionContents:
        """Return what takes the records of a partition of `topic`: offsets from `begin` to below `end` (None: any)."""
        seed = self._topic_seeds.setdefault(topic, (len(self._topic_seeds) + 1) * _TOPIC_MIXER & 0xFFFFFFFFFFFFFFFF)
        sums = self.topics.setdefault(topic, TopicContents())
        return PartitionContents(self, topic, np.uint64(seed), sums, Overwritten(begin, end, log_bytes))

    def prefixes_of(self, keys: BytesColumn) -> tuple[BytesColumn, Array]:
        """Return the prefixes of keys that have one, up to the first delimiter, and their rows."""
        start, length = np.asarray(keys.start, np.int64)[: len(keys)], np.asarray(keys.length, np.int64)
        data = np.frombuffer(keys.data, np.uint8)
        low, high = (int(start.min()), int((start + length).max())) if len(start) else (0, 0)
        ends = np.flatnonzero(np.isin(data[low:high], self._delimiters)) + low
        ends = np.append(ends, len(data) + 1)
        end = ends[np.searchsorted(ends, start)]
        rows = np.flatnonzero(end < start + length)
        cut = BytesColumn(keys.data, start[rows].astype(np.int32), (end - start)[rows].astype(np.int32))
        return cut, rows

    def to_json(self, top: int) -> Json:
        """Return the contents as in `magicbyte space --deep --format json`, with the `top` heaviest of each kind."""
        return {
            "topics": [{"topic": name, **found.to_json()} for name, found in sorted(self.topics.items())],
            "keys": _heavy_json(self.keys, top),
            "keyPrefixes": _heavy_json(self.prefixes, top),
            "headers": _heavy_json(self.headers, top),
        }


class Overwritten:
    """Finds the records of a partition whose key comes again, as compaction does.

    Memory: 4 bytes and 2 bits for each offset, up to 64 million of them, and the offset map of compaction.
    """

    def __init__(self, begin: int, end: int | None, log_bytes: int) -> None:
        expected = _MOST_OFFSETS + 1 if end is None else max(end - begin, 0)
        count = min(expected, _MOST_OFFSETS)
        self.is_partial = count < expected
        self._begin, self._end = begin, begin + count
        self._sizes = np.zeros(count, np.uint32)
        self._offsets = OffsetMap(
            begin,
            self._end,
            dedupe_bytes=_MAP_BYTES,
            load_factor=_LOAD_FACTOR,
            secret=secrets.token_bytes(16),
            compiled=worth_compiling(log_bytes),
        )

    def add(self, columns: RecordColumns, sizes: Array) -> None:
        """Add records that follow the previous ones. `sizes`: (n,) int64, of the records in bytes."""
        offset = np.asarray(columns.offset, np.int64)
        inside = np.flatnonzero((offset >= self._begin) & (offset < self._end))
        if not len(inside):
            return
        self._sizes[offset[inside] - self._begin] = np.minimum(sizes[inside], _UINT32_MAX)
        if not self._offsets.put(columns.slice(int(inside[0]), int(inside[-1]) + 1)):
            self.is_partial, self._end = True, self._offsets.latest + 1

    def result(self) -> tuple[int, int]:
        """Return the number of overwritten records and their bytes."""
        marks = np.flatnonzero(self._offsets.superseded(self._begin, self._begin + len(self._sizes)))
        return len(marks), int(self._sizes[marks].sum(dtype=np.int64))


class PartitionContents(Struct, frozen=True):
    """Adds the records of one partition, in order; then `finish`."""

    whole: Contents
    topic: str
    seed: Any
    sums: TopicContents
    overwritten: Overwritten

    def finish(self) -> None:
        """Add what is known only at the end of the partition."""
        records, size = self.overwritten.result()
        self.sums.overwritten_records += records
        self.sums.overwritten_bytes += size
        self.sums.is_overwritten_partial |= self.overwritten.is_partial

    def add(self, columns: RecordColumns) -> None:
        """Add records that were decoded with keys, values and headers. Raises CorruptRecordError."""
        keys, values, headers = columns.key, columns.value, columns.headers
        assert keys is not None
        assert values is not None
        assert headers is not None
        key_length, value_length = np.asarray(keys.length, np.int64), np.asarray(values.length, np.int64)
        key_sizes, value_sizes = np.maximum(key_length, 0), np.maximum(value_length, 0)
        each_header = _sizes(headers.key) + _sizes(headers.value)
        header_sizes = _sums_by_record(headers, each_header)
        sizes = key_sizes + value_sizes + header_sizes
        sums = self.sums
        sums.records += len(columns)
        sums.bytes += int(sizes.sum())
        sums.key_bytes += int(key_sizes.sum())
        sums.value_bytes += int(value_sizes.sum())
        sums.header_bytes += int(header_sizes.sum())
        sums.tombstones += int(np.count_nonzero((value_length < 0) & (key_length >= 0)))
        sums.keyless += int(np.count_nonzero(key_length < 0))
        self.overwritten.add(columns, sizes)
        self.whole.keys.add(hash_cells(keys, _KEY) ^ self.seed, sizes, self._labels(keys))
        prefixes, rows = self.whole.prefixes_of(keys)
        self.whole.prefixes.add(hash_cells(prefixes, _PREFIX) ^ self.seed, sizes[rows], self._labels(prefixes))
        if len(headers.key):
            self.whole.headers.add(hash_cells(headers.key, _HEADER) ^ self.seed, each_header, self._labels(headers.key))

    def _labels(self, cells: BytesColumn) -> Callable[[int], Label]:
        def label(row: int) -> Label:
            start, size = int(cells.start[row]), int(cells.length[row])
            if size < 0:
                return Label(self.topic, None, 0)
            shown = bytes(memoryview(cells.data)[start : start + min(size, _LONGEST_LABEL)])
            return Label(self.topic, shown, size)

        return label


def _sizes(cells: BytesColumn) -> Array:
    return np.maximum(np.asarray(cells.length, np.int64), 0)


def _sums_by_record(headers: HeaderColumns, sizes: Array) -> Array:
    """Return the sum of the sizes of each record's headers."""
    count = np.asarray(headers.count, np.int64)
    if not len(sizes):
        return np.zeros(len(count), np.int64)
    sums = np.concatenate(([0], np.cumsum(sizes)))
    end = np.cumsum(count)
    found: Array = sums[end] - sums[end - count]
    return found


def _heavy_json(items: HeavyItems, top: int) -> Json:
    return {
        "bytes": items.total_bytes,
        "missedBytes": items.missed_bytes,
        "heaviest": [_item_json(each) for each in items.heaviest(top)],
    }


def _item_json(item: HeavyItem) -> Json:
    label: Label = item.label
    text = None if label.content is None else label.content.decode(errors="backslashreplace")
    return {
        "topic": label.topic,
        "text": text,
        "size": label.size,
        "bytes": item.bytes,
        "records": item.count,
        "missedBytes": item.missed_bytes,
    }
