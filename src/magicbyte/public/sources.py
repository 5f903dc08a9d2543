"""Partitions to read, in folders and files, at URLs, or in topics of running clusters."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode, NetworkError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Generator

    from magicbyte.access.client.fetched import FetchedPartition
    from magicbyte.engine.log.files.directory import DirectoryFiles, PartitionDirectory
    from magicbyte.engine.log.files.reader import DamageHandler, Selection
    from magicbyte.engine.ports import Many, TopicPartition
    from magicbyte.engine.records.columns import RecordColumns
    from magicbyte.engine.records.decode import DecodeOptions
    from magicbyte.engine.records.layout import Dialect

    Source = PartitionDirectory | FetchedPartition
    """A partition in a folder, or in a running cluster."""

T = TypeVar("T")
AnyPath = str | os.PathLike[str]

MOST_DEFAULT_THREADS: Final = 4


def default_threads() -> int:
    """Return the default number of decoding threads: one per core, at most 4."""
    return min(os.cpu_count() or 1, MOST_DEFAULT_THREADS)


def is_topic(path: str) -> bool:
    """Return whether a path names a topic of a running cluster."""
    return path.startswith("kafka://")


def check_client_settings(paths: Iterable[str], settings: Mapping[str, str] | None) -> None:
    """Raise ValueError for client settings if no path is a topic of a cluster."""
    if settings and not any(map(is_topic, paths)):
        raise ValueError("client_settings: expected a topic, kafka://HOST:PORT/TOPIC: a log on disk has no client")


@contextlib.contextmanager
def explained(task: str, unsupported: str) -> Iterator[None]:
    """Inside the block, add advice to the errors of an unreachable cluster, and of brokers without a version for
    `task`.

    `unsupported`: the advice for the latter.
    """
    try:
        yield
    except NetworkError as error:
        secured = "one with TLS or a login needs client settings, such as security.protocol"
        hint = f"is a broker running there? `magicbyte serve` starts one; {secured}"
        raise NetworkError(f"{error} ({hint})" if str(error).startswith("no broker answers") else str(error)) from error
    except UnsupportedVersionError as error:
        code = ErrorCode.UNSUPPORTED_VERSION
        raise BrokerError(task, code, broker="the cluster", detail=f"{unsupported} ({error})") from error


@contextlib.contextmanager
def open_sources(
    paths: Iterable[str],
    *,
    as_: TopicPartition | None = None,
    dialect: Dialect | None = None,
    settings: Mapping[str, str] | None = None,
    directories: list[DirectoryFiles] | None = None,
) -> Iterator[list[Source]]:
    """Yield the partitions at `paths`: those of folders first, then those of clusters, connected during the block.

    A path is one of `discover`, or kafka://HOST:PORT/TOPIC[/PARTITION]. `as_` names the only folder. `settings`: of the
    clients, by Kafka's names. `directories` receives the log directories, for `missing_partitions`: without it, one
    that has no partition folder raises nothing if there are others.

    Raises LogDirectoryError, UnknownTopicError, BrokerError, NetworkError; ValueError for another kafka:// address.
    """
    paths = list(paths)
    folders = [path for path in paths if not is_topic(path)]
    sources: list[Source] = []
    with contextlib.ExitStack() as stack:
        if folders:
            from magicbyte.engine.log.files.directory import discover, survey

            many: Many = map
            if any("://" in each for each in folders):
                from magicbyte.access.workers import requests_at_once

                many = stack.enter_context(requests_at_once())
            if directories is None:
                sources += discover(folders, as_, many=many)
            else:
                found = survey(folders, as_, many=many)
                sources += found.partitions
                directories += found.directories
        for address in filter(is_topic, paths):
            from magicbyte.access.client.fetched import open_topic

            stack.enter_context(explained(f"read {address}", "brokers from 0.11 on can do it"))
            sources += stack.enter_context(open_topic(address, dialect, settings))
        yield sources


def served(sources: Iterable[Source], topics: Collection[str] = ()) -> list[Source]:
    """Return `sources` without the folders that are not users' logs, as `in_use` does."""
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.left_out import why_left_out

    return [each for each in sources if not isinstance(each, PartitionDirectory) or why_left_out(each, topics) is None]


def read_source(
    source: Source,
    selection: Selection,
    options: DecodeOptions,
    *,
    dialect: Dialect | None,
    threads: int,
    on_damage: DamageHandler,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[RecordColumns]:
    """Yield the selected records of a partition in offset order, none below its log start offset.

    `dialect`: of a folder, None for the stored one.
    """
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.partitions import log_start_offset
    from magicbyte.engine.log.files.reader import SegmentReader
    from magicbyte.tools.offline.blocks import read_records

    if isinstance(source, PartitionDirectory):
        try:
            start = log_start_offset(source)
        except CorruptRecordError as error:
            on_damage(error)
            start = 0
        selection = replace(selection, first=max(selection.first, start))
        reader = SegmentReader(source, dialect)
        return read_records(reader, selection, options, threads=threads, on_damage=on_damage, progress=progress)
    return source.records(selection, options, threads=threads, on_damage=on_damage, progress=progress)


def doubts(sources: Sequence[Source], dialect: Dialect | None) -> Iterator[str]:
    """Yield the reason for each folder among `sources` that seems to be in the other dialect."""
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.partitions import dialect_doubts

    for each in sources:
        if isinstance(each, PartitionDirectory):
            yield from dialect_doubts(each, dialect or each.dialect)


def outside_of_loops(function: Callable[[], T]) -> T:
    """Return the result of `function`, which may run an event loop: in another thread if this one runs a loop already.

    This is the case in a notebook, for instance.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def iterated_outside_of_loops(items: Generator[T]) -> Iterator[T]:
    """Yield `items`, none of them None, computed as by `outside_of_loops`, all in the same thread."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        yield from items
        return
    with ThreadPoolExecutor(1) as thread:
        try:
            while (item := thread.submit(next, items, None).result()) is not None:
                yield item
        finally:
            thread.submit(items.close).result()


def with_key(columns: RecordColumns, key: bytes) -> RecordColumns:
    """Return the records with this key, from columns with decoded keys."""
    import numpy as np

    assert columns.key is not None, "keys were decoded"
    candidates = np.flatnonzero(np.asarray(columns.key.length) == len(key))
    if not len(candidates):
        return columns.slice(0, 0)
    same = [cell == key for cell in columns.key.take(candidates).cells()]
    return columns.take(candidates[np.array(same)])
