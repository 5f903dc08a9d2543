"""Operations on whole logs: `magicbyte.inventory`, `verify`, `convert`, `salvage` and `diff`.

Each is the library call of the command of the same name, with its defaults.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.directory import PartitionDirectory, survey
from magicbyte.engine.log.files.left_out import in_use
from magicbyte.engine.log.files.outputs import inputs_of, local_output, refuse_overlap
from magicbyte.engine.log.files.partitions import choose
from magicbyte.engine.log.files.reader import stop_at_damage
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.public.logs import warn, warn_of_dialect
from magicbyte.public.selected import checked_threads
from magicbyte.public.sources import check_client_settings, is_topic, open_sources, outside_of_loops, served

if TYPE_CHECKING:
    from magicbyte.engine.codecs import Codec
    from magicbyte.engine.log.files.reader import DamageHandler
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.encode import Format
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.sources import AnyPath
    from magicbyte.tools.offline.convert import PartitionConversion
    from magicbyte.tools.offline.diff import DiffReport
    from magicbyte.tools.offline.findings import Finding
    from magicbyte.tools.offline.inventory import FetchedInventory, PartitionInventory
    from magicbyte.tools.offline.salvage import SalvagedPartition

Depth = Literal["quick", "usual", "deep"]
Ignorable = Literal["timestamps", "headers", "control"]


def inventory(
    path: AnyPath,
    *,
    topic: str | None = None,
    deep: bool = False,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int | None = None,
    client_settings: Mapping[str, str] | None = None,
) -> list[PartitionInventory | FetchedInventory]:
    """Return the inventory of each partition at `path`: formats, codecs, offsets, times, transactions, damage.

    Arguments shared with `open_log` have the same meaning; folders that a broker is deleting are included. `deep`: also
    decode every record and verify every checksum; not for a topic of a cluster. Damage is in the report and raises
    nothing.

    Raises the errors of `open_log`, and ValueError for an invalid argument.
    """
    from magicbyte.tools.offline.inventory import take_fetched_inventory, take_inventory

    path, threads = os.fspath(path), checked_threads(threads)
    if deep and is_topic(path):
        raise ValueError(f"deep=True with {path}: expected a log on disk: of a cluster only headers are read")
    check_client_settings([path], client_settings)

    def taken() -> list[PartitionInventory | FetchedInventory]:
        with open_sources([path], dialect=dialect, settings=client_settings) as sources:
            partitions = choose(sources, _topics(topic))
            warn_of_dialect(partitions, dialect)
            total = sum(each.size for each in partitions if isinstance(each, PartitionDirectory))
            return [
                take_inventory(
                    each, dialect=dialect, deep=deep, limit=max_batch_bytes, threads=threads, expected_bytes=total
                )
                if isinstance(each, PartitionDirectory)
                else take_fetched_inventory(each, each.dialect)
                for each in partitions
            ]

    return outside_of_loops(taken) if is_topic(path) else taken()


def verify(
    path: AnyPath,
    *,
    depth: Depth = "usual",
    topic: str | None = None,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int | None = None,
) -> list[Finding]:
    """Return the findings in the logs at `path`: place, description and advice.

    `depth`: "quick" checks sizes, checksums and offsets of batches, "usual" also headers and the files beside the log,
    "deep" also every record and every inner checksum. Nothing is written. Other arguments as in `open_log`.

    Raises LogDirectoryError, UnknownTopicError, OSError, and ValueError for an invalid argument.
    """
    from magicbyte.tools.offline.findings import Depth as DepthOfCheck
    from magicbyte.tools.offline.verify import verify_all

    depths = {each.value: each for each in DepthOfCheck}
    if depth not in depths:
        raise ValueError(f"depth={depth!r}: expected {', '.join(map(repr, depths))}")
    threads = checked_threads(threads)
    found, topics = survey([_on_disk(path, "verify")]), _topics(topic)
    warn_of_dialect(choose(in_use(found.partitions, quorum=True), topics), dialect)
    findings = verify_all(found, topics, depth=depths[depth], dialect=dialect, limit=max_batch_bytes, threads=threads)
    return list(findings)


def convert(
    path: AnyPath,
    out: AnyPath,
    to: Format,
    *,
    codec: Codec | None = None,
    fix_lz4: bool = False,
    kafka: str | None = None,
    verify: bool = False,
    topic: str | None = None,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int | None = None,
    new_cluster: bool = True,
) -> list[PartitionConversion]:
    """Write the logs at `path` in the format `to` into the new log directory `out`, which a Kafka broker can open.

    `codec`: of all batches; default: each keeps its own. `fix_lz4`: give LZ4 wrappers the header checksum of the
    format, without touching their blocks. `kafka`: the version for the index files; default: 0.9.0.1 for V0, 0.10.2.2
    for V1, or 4.3. `verify`: compare every written record with its source. `new_cluster`: write V2 for a cluster that
    does not know the old one. Other arguments as in `open_log`. If `out` has an interrupted run of the same conversion,
    it is continued.

    A partition that is damaged, or that the format cannot hold, is left out: its `error` is the reason, and nothing is
    raised. Warns of each folder that is left out, and of everything that the files at `path` prove to be missing, as
    the command does. Raises LogDirectoryError, UnknownTopicError, UnsupportedCompressionError, OSError, ValueError.
    """
    from magicbyte.tools.offline.convert import ConvertOptions, convert_partitions

    partitions, folder = _input_and_output(path, out, topic, "convert")
    chosen = ConvertOptions(
        to, codec, fix_lz4, kafka, verify, dialect, max_batch_bytes, checked_threads(threads), new_cluster
    )
    return list(convert_partitions(partitions, folder, chosen))


def salvage(
    path: AnyPath,
    out: AnyPath,
    *,
    kafka: str | None = None,
    topic: str | None = None,
    dialect: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    new_cluster: bool = True,
) -> list[SalvagedPartition]:
    """Write every whole batch of the damaged logs at `path` into the new log directory `out`, with indexes.

    `kafka`: the version for the index files; default: the newest. Other arguments as in `convert`. Losses are in the
    reports, and it warns as `convert` does. Nothing at `path` is changed. Raises LogDirectoryError, UnknownTopicError,
    OSError, ValueError.
    """
    from magicbyte.tools.offline.salvage import SalvageOptions, salvage_logs

    partitions, folder = _input_and_output(path, out, topic, "salvage")
    chosen = SalvageOptions(kafka, dialect, max_batch_bytes, new_cluster)
    return list(salvage_logs(partitions, folder, chosen))


def diff(
    a: AnyPath,
    b: AnyPath,
    *,
    topic: str | None = None,
    ignore: Collection[Ignorable] = (),
    described: int = 100,
    dialect_a: Dialect | None = None,
    dialect_b: Dialect | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int | None = None,
    on_damage: DamageHandler | None = None,
    client_settings: Mapping[str, str] | None = None,
) -> DiffReport:
    """Return whether the logs at `a` and at `b` have the same records, and where they differ.

    Partitions are paired by topic and number, or if `a` and `b` have one each, regardless of their names. Keys, values,
    timestamps with their types, and headers are compared as far as both formats can hold them. `ignore`: fields not to
    compare. `described`: the number of described differences per partition; all are counted. `on_damage`: as in
    `Log.records`. Other arguments as in `open_log`; `client_settings` are used for both, if both are topics.

    Raises the errors of `open_log`, UnknownTopicError, CorruptRecordError, and ValueError for an invalid argument.
    """
    from magicbyte.tools.offline.diff import DiffOptions, Ignored, compare

    names = {each.value: each for each in Ignored}
    if unknown := [each for each in ignore if each not in names]:
        raise ValueError(f"ignore={unknown[0]!r}: expected some of {', '.join(map(repr, names))}")
    chosen = DiffOptions(
        frozenset(names[each] for each in ignore),
        max_batch_bytes,
        checked_threads(threads),
        on_damage or stop_at_damage,
    )
    paths, dialects = (os.fspath(a), os.fspath(b)), (dialect_a, dialect_b)
    check_client_settings(paths, client_settings)

    def compared() -> DiffReport:
        with contextlib.ExitStack() as stack:
            left, right = (
                choose(
                    served(stack.enter_context(open_sources([path], dialect=dialect, settings=client_settings))),
                    _topics(topic),
                )
                for path, dialect in zip(paths, dialects, strict=True)
            )
            return compare(left, right, chosen, dialects=dialects, described=described)

    return outside_of_loops(compared) if any(map(is_topic, paths)) else compared()


def _topics(topic: str | None) -> tuple[str, ...]:
    return () if topic is None else (topic,)


def _on_disk(path: AnyPath, what: str) -> str:
    """Return the path. Raises LogDirectoryError for a topic of a cluster."""
    path = os.fspath(path)
    if is_topic(path):
        raise LogDirectoryError(
            f"cannot {what} {path}: expected a log on disk; `magicbyte mirror` copies a topic there"
        )
    return path


def _input_and_output(
    path: AnyPath, out: AnyPath, topic: str | None, what: str
) -> tuple[dict[TopicPartition, PartitionDirectory], Path]:
    """Return the partitions to read, and the output folder, which must not overlap; warn of gaps."""
    from magicbyte.engine.log.files.gaps import gaps_of
    from magicbyte.tools.offline.convert import chosen_by_name

    path, folder, topics = _on_disk(path, what), local_output(os.fspath(out), folder=True), _topics(topic)
    logs = survey([path], needs_partition=True)
    partitions = chosen_by_name(logs.partitions, topics)
    refuse_overlap(folder, inputs_of([path], partitions.values()))
    for line in gaps_of(logs, topics).lines():
        warn(line)
    return partitions, folder
