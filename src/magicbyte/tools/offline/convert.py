"""Convert whole logs: to another message format, to another codec, or only to correct LZ4 header checksums.

`records/convert.py` converts the records, chunk by chunk, and `offline/writer.py` writes them. Partitions are finished
one after the other. A file in the new log directory, STATE, has the conversion and its progress, so that another run of
the same conversion continues after an interruption. Memory: some chunks of a few MiB.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from magicbyte.access.workers import in_order
from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MagicbyteError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import make_directory, replace_file
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.left_out import in_use
from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlaps
from magicbyte.engine.log.files.partitions import choose, log_start_offset, meta_properties
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.lz4_repair import repair_lz4_headers
from magicbyte.engine.releases import FIRST_WITH_MAGIC
from magicbyte.tools.offline.diff import (
    DiffOptions,
    DiffReport,
    Ignored,
    PartitionComparison,
    Side,
    diff_partition,
)
from magicbyte.tools.offline.parts import WrittenSegment, written_in
from magicbyte.tools.offline.writer import LogDirectoryWriter, PartitionWriter, give_name, temporary_name

STATE = "conversion.jsonl"
"""Name of the file with the conversion and its results. Brokers ignore it.

A JSON object per line: the first one is the conversion, each of the others a partition.
"""

DEFAULT_VERSIONS = {Format.V0: "0.9.0.1", Format.V1: "0.10.2.2", Format.V2: "4.3", Format.ENRICHED: "4.3"}
"""The default Kafka version of the index files."""
DIFFERENCES = 10
"""The number of differences between a partition and its source that are kept."""
_STATE_VERSION = 1
_NO_ENTRIES = memoryview(b"")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Options of a conversion.

    `codec`: None keeps that of each batch. `fix_lz4`: wrappers with the LZ4 header checksum of the other format get
    that of their own, and their blocks are copied. `version`: the Kafka release for which index files are written.
    `verify`: compare each partition with its source. `dialect`: of the source, None for that of its folders.
    `limit`: bytes of a batch, also decompressed. `new_cluster`, `is_part`: as in PartitionWriter. `following`: for
    `join_parts`, the base of the segment after a part. `segment_bytes`: the maximum size of a segment, unless one
    of the source is larger. `old_topics`: of these, entries of older formats than the target are copied. `progress`
    receives the bytes of each chunk read, for the conversion or for `verify`.
    """

    target: Format
    codec: Codec | None = None
    fix_lz4: bool = False
    version: str | None = None
    verify: bool = False
    dialect: Dialect | None = None
    limit: int = DEFAULT_MAX_BATCH_BYTES
    threads: int = 1
    new_cluster: bool = False
    is_part: bool = False
    following: int | None = None
    segment_bytes: int = 1 << 30
    old_topics: frozenset[str] = frozenset()
    progress: Callable[[int], None] = lambda _: None

    @property
    def rules(self) -> IndexRules:
        """The index rules of the target release.

        Raises LogDirectoryError for an unknown version, or one that cannot read the target format, and
        UnsupportedCompressionError for a codec that the format does not support.
        """
        rules = IndexRules.of(self.version or DEFAULT_VERSIONS[self.target])
        if self.target is not Format.ENRICHED and rules.release.newest_magic < self.target.magic:
            first = ".".join(map(str, FIRST_WITH_MAGIC[self.target.magic]))
            raise LogDirectoryError(f"Kafka {rules.version}: expected {first} or later, which know format {self.name}")
        if self.codec is not None:
            self.target.check_codec(self.codec)
            if self.codec is Codec.ZSTD and not rules.release.knows_zstd:
                raise LogDirectoryError(f"Kafka {rules.version}: expected 2.1 or later, which know zstd")
        return rules

    @property
    def name(self) -> str:
        """The target's name: v0, v1, v2 or enriched."""
        return self.target.title

    def identity(self) -> dict[str, Any]:
        """Return the options that decide the output's bytes."""
        return {
            "to": self.name,
            "codec": "keep" if self.codec is None else self.codec.name.lower(),
            "fixLz4": self.fix_lz4,
            "kafka": self.rules.version,
            "dialect": None if self.dialect is None else self.dialect.value,
            "newCluster": self.new_cluster and self.target is Format.V2,
            **({"oldTopics": sorted(self.old_topics)} if self.old_topics else {}),
        }


@dataclass(slots=True)
class PartitionConversion:
    """The result for one partition.

    `error` is the reason why it was not converted (the new log directory then has nothing of it), or why the output
    cannot be read for `verify`. `resumed`: an earlier run finished it. `comparison` is that of `verify`, with its first
    DIFFERENCES described; None without `verify`, or if an earlier run did it.
    """

    name: TopicPartition
    source: str
    folder: Path
    report: ConversionReport = field(default_factory=ConversionReport)
    lz4_headers: int = 0
    """Wrappers whose LZ4 header checksum was repaired."""
    ended_transactions: int = 0
    """Transactions that were open at the log's end, and were ended for a new cluster; none if `resumed`."""
    verified: bool = False
    """Compared with its source, in this run or an earlier one, and found to be the same."""
    resumed: bool = False
    error: MagicbyteError | None = None
    comparison: PartitionComparison | None = None

    @property
    def sound(self) -> bool:
        """Whether it was converted and, if it was compared, is the same."""
        return self.error is None and (self.comparison is None or self.comparison.same)

    def to_json(self) -> dict[str, Any]:
        """Return a partition as in `magicbyte convert --format json`."""
        return {
            "partition": str(self.name),
            "source": self.source,
            "path": str(self.folder) if self.folder.exists() else None,
            "resumed": self.resumed,
            "verified": self.verified,
            "error": None if self.error is None else str(self.error),
            "differing": None if self.comparison is None else sum(self.comparison.differing.values()),
            "endedTransactions": self.ended_transactions,
            **self.report.to_json(self.lz4_headers),
        }


def convert_partitions(
    partitions: dict[TopicPartition, PartitionDirectory], out: Path, options: ConvertOptions
) -> Iterator[PartitionConversion]:
    """Convert `partitions` into the new log directory `out`, and yield each when it is finished.

    A partition is complete and durable when it gets its name. One that is damaged, or that the target cannot hold, is
    yielded with its error and left out. At the end, checkpoints and the clean shutdown marker are written, unless a
    partition differs from its source. Sources are only read.

    If `out` is from an interrupted run of the same conversion, finished partitions are kept. Raises LogDirectoryError
    for any other content of `out`, and if the source of a finished partition has changed. Raises OSError, such as for a
    full disk: finished partitions are kept, and a rerun continues.
    """
    job = _Job.open(out, options, partitions)
    kernel.expect(sum(each.size for each in partitions.values()))
    writer = LogDirectoryWriter(out, options.rules)
    is_sound = True
    for done in job.run(writer):
        is_sound = is_sound and (done.sound or not done.folder.exists())
        yield done
    for leftover in out.glob(".*.part"):  # of a run that converted more topics
        shutil.rmtree(leftover)
    if is_sound and not job.state.complete and any(writer.is_finished(*name) for name in partitions):
        starts = {name: log_start_offset(each) for name, each in partitions.items()}
        writer.finish(meta_properties(partitions.values()), starts)
        job.state.complete = all(writer.is_finished(*name) for name in partitions)  # else some may be tried again
        job.state.write(out)


def convert_part(
    portion: PartitionDirectory, name: TopicPartition, out: Path, options: ConvertOptions
) -> tuple[PartitionConversion, list[WrittenSegment]]:
    """Convert some adjacent segments of a partition into a folder of their own, for `join_parts`.

    `options.following` is the base offset of the next part. An error is in the result, as in `convert_partitions`.
    """
    alone = replace(portion, texts={}, snapshots={})
    (done,) = convert_partitions({name: alone}, out, replace(options, is_part=True))
    if done.error is not None:
        return done, []
    end = options.following
    written = written_in(done.folder, options.rules)
    return done, [segment for segment in written if end is None or segment.base_offset < end]


def join_parts(
    source: PartitionDirectory,
    name: TopicPartition,
    out: Path,
    options: ConvertOptions,
    parts: Iterable[WrittenSegment],
) -> None:
    """Make the new log directory `out` of the converted segments of one partition, in order.

    The output is that of `convert_partitions`, byte for byte. The parts must be on the same file system.
    """
    directory = LogDirectoryWriter(out, options.rules)
    with partition_writer(source, name, directory, options) as writer:
        for part in parts:
            writer.adopt(part)
        if (epoch := last_epoch(source)) is not None:
            writer.note_epoch(epoch)
        writer.finish()
    directory.finish(meta_properties([source]), {name: log_start_offset(source)})


def partition_writer(
    source: PartitionDirectory,
    name: TopicPartition,
    directory: LogDirectoryWriter,
    options: ConvertOptions,
    resume_at: int | None = None,
) -> PartitionWriter:
    """Return the writer of a converted partition. `resume_at`: as in PartitionWriter."""
    metadata = source.metadata()
    return directory.partition(
        *name,
        segment_bytes=max([options.segment_bytes, *(segment.log.size for segment in source.segments)]),
        topic_id=None if metadata is None else metadata.topic_id,
        dialect=options.target.dialect,
        resume_at=resume_at,
        new_cluster=options.new_cluster,
        is_part=options.is_part,
    )


def partitions_to_convert(
    paths: Iterable[str], topics: Collection[str] = (), as_: TopicPartition | None = None
) -> dict[TopicPartition, PartitionDirectory]:
    """Return the partitions at `paths` by name, in order. Raises LogDirectoryError, UnknownTopicError."""
    return chosen_by_name(discover(paths, as_), topics)


def chosen_by_name(
    partitions: Iterable[PartitionDirectory], topics: Collection[str] = ()
) -> dict[TopicPartition, PartitionDirectory]:
    """Return the users' logs of these topics (none: of all) by name. Raises as `by_name`, and UnknownTopicError."""
    return by_name(choose(in_use(partitions, topics), topics))


def by_name(directories: Iterable[PartitionDirectory]) -> dict[TopicPartition, PartitionDirectory]:
    """Return partitions by name, in order. Raises LogDirectoryError for one without a name, or that comes twice."""
    partitions: dict[TopicPartition, PartitionDirectory] = {}
    for directory in directories:
        if directory.topic is None or directory.partition is None:
            raise LogDirectoryError(
                f"{directory.path}: expected a folder named TOPIC-N, or a name given by --as TOPIC-N"
            )
        name = TopicPartition(directory.topic, directory.partition)
        if name in partitions:
            raise LogDirectoryError(f"{name}: expected once, found {partitions[name].path} and {directory.path}")
        partitions[name] = directory
    return dict(sorted(partitions.items()))


# ---- the state


@dataclass(slots=True)
class _State:
    """The content of STATE. `complete`: all is written, and a broker may be using the directory."""

    conversion: dict[str, Any]
    complete: bool = False
    partitions: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> _State:
        """Return the content of the file. An incomplete last line, from an interrupted write, is ignored."""
        try:
            first, *lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
            if first["version"] != _STATE_VERSION:
                raise LogDirectoryError(f"{path}: expected version {_STATE_VERSION}, found {first['version']}")
            return cls(first["conversion"], first["complete"], {line["partition"]: line for line in lines})
        except (ValueError, KeyError, TypeError) as error:
            raise LogDirectoryError(f"{path}: expected the state of an interrupted conversion: {error!r}") from error

    def write(self, out: Path) -> None:
        """Replace the file, with the partitions sorted by name."""
        first = {"version": _STATE_VERSION, "conversion": self.conversion, "complete": self.complete}
        lines = [first, *(self.partitions[name] for name in sorted(self.partitions))]
        replace_file(out / STATE, "".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def add(self, out: Path, name: str, said: dict[str, Any]) -> None:
        """Append a line for a partition, durably. It replaces earlier lines of the same partition."""
        self.partitions[name] = {"partition": name, **said}
        with (out / STATE).open("ab") as file:
            file.write(f"{json.dumps(self.partitions[name])}\n".encode())
            file.flush()
            os.fsync(file.fileno())


# ---- one run


@dataclass(slots=True)
class _Piece:
    """A step in the conversion of a partition: the start of a segment, a chunk of it, or (with neither) the end.

    The fields after `chunk` are the result of the conversion of the chunk, or of a part of it.
    """

    name: TopicPartition
    segment: int | None = None
    chunk: Chunk | None = None

    entries: memoryview = _NO_ENTRIES
    report: ConversionReport = field(default_factory=ConversionReport)
    lz4_headers: int = 0
    next_offset: int = 0
    """The offset after the chunk's last entry, 0 if it is known only after decompression."""
    error: MagicbyteError | None = None


@dataclass(slots=True)
class _Job:
    out: Path
    options: ConvertOptions
    partitions: dict[TopicPartition, PartitionDirectory]
    finished: frozenset[TopicPartition]
    """Finished by earlier runs."""
    state: _State
    given_up: set[TopicPartition] = field(default_factory=set)
    """Partitions with an error: their remaining chunks need not be read."""
    resumed: dict[TopicPartition, dict[str, Any] | None] = field(default_factory=dict)
    """The progress of earlier runs in unfinished partitions."""

    @classmethod
    def open(cls, out: Path, options: ConvertOptions, partitions: dict[TopicPartition, PartitionDirectory]) -> _Job:
        """Begin a conversion in `out`, or continue one. Raises LogDirectoryError for any other content."""
        names = [name for key in partitions for name in (str(key), temporary_name(out / str(key)).name)]
        refuse_overlaps(out, names, inputs_of((), partitions.values()))
        path = out / STATE
        state = _State(options.identity())
        if path.exists():
            state = _State.read(path)
            if state.conversion != options.identity():
                raise LogDirectoryError(f"{path}: expected {options.identity()}, found another: {state.conversion}")
        elif out.exists() and {each.name for each in out.iterdir()} - {f"{STATE}.tmp"}:
            raise LogDirectoryError(f"{out}: expected nothing, an empty folder or an interrupted conversion")
        for name, each in partitions.items():
            noted, temporary = state.partitions.get(str(name), {}), temporary_name(out / str(name))
            is_as_noted = temporary.exists() and noted.get("whole") == _written(temporary)
            if is_as_noted and noted["source"] == _identity(each):
                give_name(out / str(name))
        finished = frozenset(name for name in partitions if (out / str(name)).exists())
        if state.complete and len(finished) < len(partitions):
            raise LogDirectoryError(f"{out}: expected an interrupted conversion, found a complete one")
        for name in finished:
            said = state.partitions.get(str(name))
            if said is None or said["source"] != _identity(partitions[name]):
                source = partitions[name].path
                raise LogDirectoryError(
                    f"{out / str(name)}: expected the conversion of the present {source}, found another"
                )
        make_directory(out)
        job = cls(out, options, partitions, finished, state)
        if not state.complete:
            state.write(out)
        return job

    def run(self, directory: LogDirectoryWriter) -> Iterator[PartitionConversion]:
        """Convert the unfinished partitions, and yield all partitions in order."""
        work = groupby(
            in_order(self.pieces(), self.convert, self.options.threads, size=lambda piece: len(piece.entries)),
            lambda piece: piece.name,
        )
        for name, source in self.partitions.items():
            if name in self.finished:
                done = self.recalled(name)
                self.options.progress(source.size)
            else:
                _, pieces = next(work)
                done = self.write(name, pieces, directory)
            if done.error is None and self.options.verify:
                self.verify(done)
            yield done

    # ---- reading and converting, by several threads

    def pieces(self) -> Iterator[_Piece]:
        """Yield the steps of all unfinished partitions."""
        for name, partition in self.partitions.items():
            if name not in self.finished:
                try:
                    yield from self.pieces_of(name, partition)
                except CorruptRecordError as error:
                    yield _Piece(name, error=error)
                yield _Piece(name)

    def pieces_of(self, name: TopicPartition, partition: PartitionDirectory) -> Iterator[_Piece]:
        dialect = self.options.dialect or partition.dialect
        started = self.started(name)
        for segment in partition.segments:
            if started is not None and segment.base_offset < started["through"]:
                self.options.progress(segment.log.size)
                continue
            yield _Piece(name, segment.base_offset)
            with partition.files.open(segment.log.path) as file:
                for chunk in read_chunks(file, dialect=dialect, limit=self.options.limit):
                    if name in self.given_up:
                        return
                    self.options.progress(chunk.table.end)
                    yield _Piece(name, chunk=chunk)
        if self.options.following is not None:
            yield _Piece(name, self.options.following)

    def convert(self, piece: _Piece) -> Iterator[_Piece]:
        """Yield the results of a step: for a chunk its converted entries, group by group, then its report."""
        chunk, options = piece.chunk, self.options
        if chunk is not None and piece.name not in self.given_up:
            table = chunk.table
            try:
                entries = table.buffer[: table.end]
                if options.fix_lz4:
                    entries, piece.lz4_headers = repair_lz4_headers(table)
                for group in self.converted(piece, entries, table.dialect):
                    yield _Piece(piece.name, chunk=chunk, entries=group)
                last = parse_entry(table.buffer[int(table.position[-1]) : table.end], table.dialect)
                assert last is not None, "the scan found it whole"
                piece.next_offset = last.next_offset or 0
            except CorruptRecordError as error:
                piece.error = error.locate(path=chunk.path, shift=chunk.position)
            except MagicbyteError as error:
                piece.error = error
        yield piece

    def converted(self, piece: _Piece, entries: memoryview, dialect: Dialect) -> Iterator[memoryview]:
        """Yield the entries of a chunk in the target's format, or as they are."""
        options = self.options
        if piece.name.topic in options.old_topics:
            piece.report.bytes_in += len(entries)
            piece.report.bytes_out += len(entries)
            piece.report.bytes_passed_through += len(entries)
            yield entries
            return
        yield from convert(
            entries, options.target, dialect=dialect, codec=options.codec, limit=options.limit, report=piece.report
        )

    # ---- writing, in order

    def write(
        self, name: TopicPartition, pieces: Iterator[_Piece], directory: LogDirectoryWriter
    ) -> PartitionConversion:
        """Write one partition and rename it to its final name, or delete it after an error."""
        source = self.partitions[name]
        done = PartitionConversion(name, source.path, self.out / str(name))
        try:
            started = self.started(name)
            if started is not None:
                done.report, done.lz4_headers = ConversionReport(**started["report"]), started["lz4Headers"]
            through = None if started is None else started["through"]
            with partition_writer(source, name, directory, self.options, through) as writer:
                next_offset = 0 if started is None else started["nextOffset"]
                begun = _first_base(source) if started is None else started["through"]
                for piece in pieces:
                    _append(writer, piece)
                    if piece.segment is not None and piece.segment > begun:
                        self.remember_segments(done, writer, piece.segment, next_offset)
                    add_report(done.report, piece.report)
                    done.lz4_headers += piece.lz4_headers
                    next_offset = max(next_offset, piece.next_offset)
                if next_offset > writer.end_offset:  # last entries were dropped: do not assign their offsets again
                    writer.roll(next_offset)
                if (epoch := last_epoch(source)) is not None:
                    writer.note_epoch(epoch)
                self.remember(done, whole=writer.complete())  # after a crash here, only the rename is left
                done.ended_transactions = writer.finish().ended_transactions
        except MagicbyteError as error:
            done.error = error
            self.given_up.add(name)
            if (temporary := temporary_name(done.folder)).exists():
                shutil.rmtree(temporary)
        return done

    def verify(self, done: PartitionConversion) -> None:
        """Compare a partition with its source, record by record, unless an earlier run did."""
        source = self.partitions[done.name]
        if done.verified:
            self.options.progress(source.size)
            return
        (written,) = discover([str(done.folder)])
        total = max(source.size + written.size, 1)
        options = DiffOptions(
            limit=self.options.limit,
            threads=self.options.threads,
            ignore=frozenset({Ignored.CONTROL} if self.options.new_cluster else ()),  # markers may be added
            progress=lambda size: self.options.progress(size * source.size // total),
        )
        report = DiffReport()
        try:
            for difference in diff_partition(
                Side(source, self.options.dialect, any_lz4_header=self.options.fix_lz4),
                Side(written),
                options,
                name=str(done.name),
                report=report,
            ):
                report.describe(difference, DIFFERENCES)
        except CorruptRecordError as error:
            done.error = error
            return
        (done.comparison,) = report.partitions
        done.verified = done.comparison.same
        if done.verified:
            self.remember(done)

    # ---- what is known of finished partitions, and of finished segments of the one that is being written

    def remember(self, done: PartitionConversion, **more: int) -> None:
        """Write the result into STATE. `whole`: the bytes of a complete log that is not renamed yet."""
        self.state.add(
            self.out,
            str(done.name),
            {
                "source": _identity(self.partitions[done.name]),
                "report": asdict(done.report),
                "lost": done.report.lost(),
                "lz4Headers": done.lz4_headers,
                "verified": done.verified,
                **more,
            },
        )

    def remember_segments(
        self, done: PartitionConversion, writer: PartitionWriter, base_offset: int, next_offset: int
    ) -> None:
        """Write into STATE that the segments below `base_offset` are complete."""
        written = writer.checkpoint()
        self.remember(done, through=base_offset, nextOffset=next_offset, written=written)

    def started(self, name: TopicPartition) -> dict[str, Any] | None:
        """Return the entry of STATE on complete segments of an interrupted run, if they exist unchanged."""
        said = self.state.partitions.get(str(name))
        temporary = temporary_name(self.out / str(name))
        if said is None or "through" not in said or said["source"] != _identity(self.partitions[name]):
            return None
        if name not in self.resumed:
            self.resumed[name] = said if _written(temporary, said["through"]) == said["written"] else None
        return self.resumed[name]

    def recalled(self, name: TopicPartition) -> PartitionConversion:
        """Return the result of an earlier run."""
        recorded = self.state.partitions[str(name)]
        return PartitionConversion(
            name,
            self.partitions[name].path,
            self.out / str(name),
            ConversionReport(**recorded["report"]),
            recorded["lz4Headers"],
            verified=recorded["verified"],
            resumed=True,
        )


def _first_base(source: PartitionDirectory) -> int:
    return source.segments[0].base_offset if source.segments else 0


def _written(folder: Path, below: int | None = None) -> int:
    """Return the bytes of the logs in `folder`, with `below` only of segments with a lower base offset."""
    logs = [path for path in folder.glob("*.log") if below is None or int(path.stem) < below]
    return sum(path.stat().st_size for path in logs)


def last_epoch(source: PartitionDirectory) -> int | None:
    """Return the last leader epoch in a log's checkpoint. It may have no records."""
    try:
        noted = source.leader_epochs()
    except CorruptRecordError:  # a broker does not need it, and `verify` reports it
        return None
    return noted[-1].epoch if noted else None


def _append(writer: PartitionWriter, piece: _Piece) -> None:
    """Write one step. Raises its error after writing the entries before it, or CorruptRecordError for its offsets."""
    if piece.segment is not None:
        if piece.segment < writer.end_offset:
            expected = f"at least {writer.end_offset}, the end of the segment before it"
            raise CorruptRecordError("base offset of a segment", expected=expected, found=piece.segment)
        writer.roll(piece.segment, keep_empty=True)
    try:
        writer.append(piece.entries)
    except CorruptRecordError as error:
        error.position = None  # it is the position in the output; that in the source is unknown
        raise error.locate(path=None if piece.chunk is None else piece.chunk.path) from None
    if piece.error is not None:
        raise piece.error


def add_report(total: ConversionReport, part: ConversionReport) -> None:
    """Add the counts of `part` to those of `total`."""
    for name in total.__struct_fields__:
        setattr(total, name, getattr(total, name) + int(getattr(part, name)))


def _identity(partition: PartitionDirectory) -> dict[str, int]:
    """Return the identity of a finished partition's source: its segments and their sizes."""
    return {segment.log.name: segment.log.size for segment in partition.segments}
