"""`magicbyte rebuild-index`: rebuild index files and producer snapshots from the log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import DamagePolicy, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import size_text
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.index_writer import IndexRules
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.rebuild import RebuiltSegment

Json = dict[str, Any]


@click.command(
    "rebuild-index", cls=Command, examples=("magicbyte rebuild-index tour/logs/kafka-4.3.1/basic-zstd-0 --out indexes",)
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option(
    "--kafka",
    "version",
    metavar="VERSION",
    help="Write them as this version does. [default: the newest that matches the existing files, else the newest]",
)
@click.option(
    "--index-interval",
    callback=options.size,
    default="4096",
    show_default=True,
    metavar="SIZE",
    help="The value of index.interval.bytes.",
)
@click.option("--write", is_flag=True, help="Replace the files that differ. The broker must be stopped.")
@click.option("--out", type=options.OutputPath(folder=True), metavar="DIR", help="Write all files below DIR instead.")
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
def rebuild_index(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    version: str | None,
    index_interval: int,
    write: bool,
    out: Path | None,
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
) -> None:
    """Rebuild indexes and producer snapshots from the log, and compare.

    The rebuilt files are those that Kafka writes when it recovers a log; those that a leader writes while it appends
    count as equal. An index with other entries is sound if all of them are valid: producers of plain messages and,
    before 3.9.1, the log cleaner leave such indexes. Nothing is written without --write or --out: exit status 1 then
    means that a file is missing, wrong, or was not closed.
    """
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlaps
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.rebuild import recognise

    if write and out is not None:
        raise click.UsageError("--write and --out: expected one of them")
    given = None if version is None else replace(IndexRules.of(version), interval_bytes=index_interval)
    logs = survey(paths, as_, needs_partition=True)
    partitions = choose(in_use(logs.partitions, quorum=True), topics)
    complain_of_gaps(logs, topics, quorum=True)
    for partition in partitions:
        _check(partition, paths, write=write)
    folders = [Path(partition.path).name for partition in partitions]
    if out is not None and len(set(folders)) < len(folders):
        twice = next(name for name in folders if folders.count(name) > 1)
        raise LogDirectoryError(f"{twice} is there {folders.count(twice)} times: expected each once for --out")
    if out is not None:
        refuse_overlaps(out, folders, inputs_of(paths, partitions))
    damage = DamagePolicy("skip")
    report = _Report(form, write=write, out=out)
    with progress(sum(each.size for each in partitions)) as advance:
        known_of: dict[str | None, IndexRules | None] = {}
        for partition in partitions:
            known = given
            if given is None:
                if partition.log_directory not in known_of or partition.log_directory is None:
                    beside = [each for each in partitions if each.log_directory == partition.log_directory]
                    with contextlib.suppress(CorruptRecordError):  # reported below, after the segments before it
                        known_of[partition.log_directory] = recognise(
                            beside if partition.log_directory is not None else partition,
                            interval_bytes=index_interval, dialect=dialect, limit=max_batch_bytes,
                        )  # fmt: skip
                known = known_of.get(partition.log_directory)
            rules = known or replace(LATEST_RULES, interval_bytes=index_interval)
            report.begin(partition, rules, recognised=given is None and known is not None)
            try:
                _rebuild(partition, rules, dialect, max_batch_bytes, report, advance)
            except CorruptRecordError as error:
                report.damaged(error)
                damage(error)
    report.end()
    damage.exit()
    if report.wrong and not write and out is None:
        click.get_current_context().exit(1)


def _rebuild(
    partition: PartitionDirectory,
    rules: IndexRules,
    dialect: Dialect | None,
    limit: int,
    report: _Report,
    advance: Callable[[int], None],
) -> None:
    from magicbyte.tools.offline.rebuild import put, rebuild

    for segment in rebuild(partition, rules, dialect=dialect, limit=limit, progress=advance):
        written: list[str] = []
        if report.write:
            written = put(Path(partition.path), segment)
        elif report.out is not None:
            folder = report.out / Path(partition.path).name
            folder.mkdir(parents=True, exist_ok=True)
            written = put(folder, segment, all_files=True)
        report.add(segment, written)


def _check(partition: PartitionDirectory, paths: tuple[str, ...], *, write: bool) -> None:
    """Raise LogDirectoryError for a path that cannot be read, or must not be written."""
    from magicbyte.engine.log.files.filesystem import LocalFiles, is_locked

    if any(
        path.endswith(".log") and segment.log.path.endswith(path) for path in paths for segment in partition.segments
    ):
        raise LogDirectoryError(
            f"{paths[0]}: expected a partition folder: the files of a segment depend on the segments before it"
        )
    folder = Path(partition.path)
    if write and not isinstance(partition.files, LocalFiles):
        raise LogDirectoryError(f"{partition.path}: expected a local folder to write to; --out writes elsewhere")
    if write and is_locked(folder.parent / ".lock"):
        raise LogDirectoryError(f"{folder.parent}: a broker is using this log directory; it must be stopped first")


class _Report:
    """Prints a line per segment, or JSON at the end."""

    def __init__(self, form: str, *, write: bool, out: Path | None) -> None:
        self.write, self.out = write, out
        self.wrong = self.written = self.segments = 0
        self._form = form
        self._partitions: list[Json] = []

    def begin(self, partition: PartitionDirectory, rules: IndexRules, *, recognised: bool) -> None:
        """Begin a partition."""
        self._partitions.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "path": partition.path,
                "kafka": rules.version,
                "recognised": recognised,
                "segments": [],
                "damage": None,
            }
        )
        if self._form == "text":
            how = ", which the files there show" if recognised else ""
            say(f"{partition.name}: as Kafka {rules.version} writes it{how}")

    def add(self, rebuilt: RebuiltSegment, written: list[str]) -> None:
        """Add a segment, and the names of the files written for it."""
        self.segments += 1
        self.written += len(written)
        self.wrong += rebuilt.wrong
        entry = {
            "baseOffset": rebuilt.segment.base_offset,
            "bytes": rebuilt.segment.log.size,
            "files": [{**each.to_json(), "written": each.name in written} for each in rebuilt.files],
        }
        self._partitions[-1]["segments"].append(entry)
        if self._form == "text":
            say(_line(rebuilt, written))

    def damaged(self, error: CorruptRecordError) -> None:
        """Add the damage that ended the walk over the partition."""
        self._partitions[-1]["damage"] = error.to_json()

    def end(self) -> None:
        """Print the summary."""
        if self._form == "json":
            total = {"segments": self.segments, "wrong": self.wrong, "written": self.written}
            say_json({"partitions": self._partitions, "total": total})
            return
        what = f"{_count(self.segments, 'segment')}, {_count(self.wrong, 'file')} wrong or missing"
        if self.written:
            say(f"{what}; {_count(self.written, 'file')} written{f' below {self.out}' if self.out else ''}")
        elif self.wrong:
            say(f"{what}; nothing was written: --write puts them in their place, --out DIR elsewhere")
        else:
            say(what)


def _line(rebuilt: RebuiltSegment, written: list[str]) -> str:
    """Return a segment's line: its files by state."""
    base = f"{rebuilt.segment.base_offset:020}"
    states: dict[str, list[str]] = {}
    for file in rebuilt.files:
        states.setdefault(file.state.value, []).append(file.name.removeprefix(base))
    said = [f"{state}: {', '.join(names)}" for state, names in states.items()]
    if written:
        said.append(f"written: {', '.join(name.removeprefix(base) for name in written)}")
    return f"  {base}  {size_text(rebuilt.segment.log.size):>8}  {'; '.join(said)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
