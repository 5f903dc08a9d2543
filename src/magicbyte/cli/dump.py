"""`magicbyte dump`: print the content of each file of a partition folder or log directory, entry by entry."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import parsed
from magicbyte.cli.output import DamagePolicy, binary_output, complain, say
from magicbyte.cli.progress import progress
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.checkpoints import MESSAGE_DIALECT, parse_message_dialect
from magicbyte.engine.log.files.directory import INDEXES, LOG, OFFSET_INDEX, SNAPSHOT, parse_file
from magicbyte.engine.log.files.filesystem import file_system, listed_paths
from magicbyte.engine.printable import without_passwords
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import Release, release_meant

if TYPE_CHECKING:
    from magicbyte.engine.ports import FileSystem

KRAFT_SNAPSHOT = ".checkpoint"  # records of __cluster_metadata, in batches
BOOTSTRAP = "bootstrap.checkpoint"
_LEFTOVER = re.compile(r"\.(deleted|cleaned|swap)$")
_KRAFT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_NO_JAVA = "Java classes cannot run here: use --deep, or --format jsonl for the bytes"
_EXPECTED = (
    ".log, .index, .timeindex, .txnindex, .emindex, .snapshot, .checkpoint, or one of the text files of a log directory"
)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file to dump. `kind`: its suffix, or the name of a text file. `leftover`: a suffix after it."""

    files: FileSystem
    path: str
    name: str
    kind: str
    leftover: str
    size: int


def _refuse(instead: str) -> Any:
    def callback(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001
        if value:
            raise click.BadParameter(instead)

    return callback


@click.command(
    cls=Command,
    examples=(
        "magicbyte dump tour/logs/kafka-4.3.1/basic-zstd-0/*.log --deep",
        "magicbyte dump tour/logs/kafka-0.8.2.2/basic-none-0/*0.log --anatomy --at 6039",
        "magicbyte dump tour/logs/kafka-4.3.1/basic-zstd-0/*.index --verify-index-only",
    ),
)
@click.argument("segments", nargs=-1, metavar="SEGMENT...")
@click.option("--deep", is_flag=True, help="Also print the records, with readable keys and values.")
@options.json_option("jsonl")
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", show_default=True,
              callback=options.form_of)  # fmt: skip
@click.option("--anatomy", "as_anatomy", is_flag=True, help="Print one entry's bytes in hex, with field names.")
@click.option("--at", type=click.IntRange(0), metavar="POSITION",
              help="With --anatomy: a position in the entry, in bytes.  [default: 0]")  # fmt: skip
@click.option("--all-bytes", is_flag=True, help="With --anatomy: print all bytes of long fields.")
@options.dialect_option
@options.on_damage_option
@options.max_batch_bytes_option
@click.option("--files", metavar="FILE,...", help="SEGMENTs, as Kafka's dump tool takes them.")
@click.option("--print-data-log", is_flag=True, help="Also print the records, as Kafka's dump tool does.")
@click.option("--deep-iteration", is_flag=True, help="The same without keys and values.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option("--offsets-decoder", "decoder", flag_value="offsets", help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", "decoder", flag_value="transactions",
              help="Decode records of __transaction_state.")  # fmt: skip
@click.option("--cluster-metadata-decoder", "decoder", flag_value="metadata",
              help="Decode records of __cluster_metadata, as JSON.")  # fmt: skip
@click.option("--as-version", metavar="RELEASE", callback=parsed(release_meant),
              help="Print lines as the dump tool of this release of Kafka.  [default: 4.0, or earlier]")  # fmt: skip
@click.option("--index-sanity-check", is_flag=True, help="Only check whether each index is sound.")
@click.option("--verify-index-only", is_flag=True, help="Check each index, also against its log; print no entries.")
@click.option("--max-bytes", type=click.IntRange(0), metavar="BYTES", help="Dump only the first BYTES of each log.")
@click.option("--max-message-size", type=click.IntRange(1), expose_value=False, hidden=True)
@click.option("--key-decoder-class", hidden=True, expose_value=False,
              callback=_refuse(_NO_JAVA))  # fmt: skip
@click.option("--value-decoder-class", hidden=True, expose_value=False,
              callback=_refuse(_NO_JAVA))  # fmt: skip
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True, expose_value=False,
              callback=_refuse("not supported: use --deep, or --format jsonl for the bytes"))  # fmt: skip
def dump(segments: tuple[str, ...], files: str | None, as_anatomy: bool, **given: Any) -> None:
    """Print the content of SEGMENTs, batch by batch: .log files, their indexes and snapshots, checkpoints.

    The lines are those of Kafka's dump tool (kafka-dump-log), and its options are accepted. Unlike it, dump shows the
    position of damage, continues after it with --on-damage skip, and exits with 1.
    """
    paths = [*segments, *listed_paths(files or "")]
    if not paths:
        raise click.UsageError("expected at least one SEGMENT")
    request = DumpOptions(**given)
    targets = [_target(path) for path in paths]
    if as_anatomy:
        request.show_anatomy(targets)
        return
    if request.at is not None or request.all_bytes:
        raise click.UsageError(f"{'--at' if request.at is not None else '--all-bytes'} is for --anatomy")
    damage = DamagePolicy(request.on_damage)
    total = sum(target.size for target in targets)
    with binary_output(None) as stream, progress(total, streams=True) as advance:
        for target in targets:
            for line in request.lines(target, damage, advance):
                stream.write(f"{line}\n".encode(errors="backslashreplace"))
    if request.form == "text":
        for path, holes in request.holes.items():
            say(
                f"Non-consecutive offsets in {path}",
                *(f"  {before} is followed by {after}" for before, after in holes),
                err=True,
            )
    damage.exit()


def _target(path: str) -> DumpFile:
    """Return the kind of file at `path`, by its name. Raises LogDirectoryError, with the expected kinds."""
    from magicbyte.cli.dump_files import TEXTS

    files, inside = file_system(path)
    try:
        entry = files.entry(inside)
    except OSError as error:
        raise LogDirectoryError(f"{path}: expected a file: {error.strerror or error}") from error
    if entry.is_directory:
        raise LogDirectoryError(f"{path}: expected a file, found a folder (inventory and cat take those)")
    found = _LEFTOVER.search(entry.name)
    leftover = found[0] if found else ""
    name = entry.name.removesuffix(leftover)
    suffixes = (LOG, *INDEXES, SNAPSHOT, KRAFT_SNAPSHOT)
    kind = name if name in TEXTS else f".{name.rpartition('.')[2]}"
    if kind not in TEXTS and kind not in suffixes:
        raise LogDirectoryError(f"{path}: expected {_EXPECTED}")
    return DumpFile(files, inside, name, kind, leftover, entry.size)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of the command, by name."""

    deep: bool
    form: str
    at: int | None
    all_bytes: bool
    dialect: Dialect | None
    on_damage: str
    max_batch_bytes: int
    print_data_log: bool
    deep_iteration: bool
    skip_record_metadata: bool
    decoder: str | None
    index_sanity_check: bool
    verify_index_only: bool
    max_bytes: int | None
    as_version: Release | None
    holes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # of the logs dumped so far, by path

    def show_anatomy(self, targets: list[DumpFile]) -> None:
        """Print one entry of the only given log. Exit with status 1 unless it is sound."""
        from magicbyte.cli import anatomy

        if len(targets) != 1 or targets[0].kind not in (LOG, KRAFT_SNAPSHOT):
            raise click.UsageError("--anatomy: expected one .log file")
        target = targets[0]
        with target.files.open(target.path) as file:
            sound = anatomy.show(
                file,
                self.at or 0,
                self._dialect(target),
                deep=self.deep,
                whole=self.all_bytes,
                form=self.form,
                limit=self.max_batch_bytes,
            )
        if not sound:
            raise click.exceptions.Exit(1)

    def lines(self, target: DumpFile, damage: DamagePolicy, advance: Any) -> Iterator[str]:
        """Yield the lines of one file."""
        from magicbyte.cli import dump_text

        show = None
        if self.print_data_log or self.decoder is not None:
            show = dump_text.readably if sys.stdout.isatty() else dump_text.plainly
        elif self.deep:
            show = dump_text.readably
        text = self.form == "text"
        if text:
            yield from _heading(target)
        for fields in self._fields(target, damage, advance):
            if text:
                yield dump_text.line_of(
                    fields,
                    contents=show,
                    metadata=not self.skip_record_metadata,
                    names_leaders=self.as_version is not None and self.as_version.names_leader_changes,
                )
            else:
                yield json.dumps({"file": without_passwords(target.path)} | dump_text.jsonable(fields))

    def _fields(self, target: DumpFile, damage: DamagePolicy, advance: Any) -> Iterator[dict[str, Any]]:
        if target.kind in (LOG, KRAFT_SNAPSHOT):
            yield from self._log(target, damage, advance)
            return
        from magicbyte.cli.dump_files import SmallFile, lines_of

        if target.kind == OFFSET_INDEX and not target.size:
            yield {"kind": "empty", "file": target.path}
            return
        file = SmallFile(target.files, target.path, target.leftover, damage)
        only_checks = target.kind in INDEXES and (self.index_sanity_check or self.verify_index_only)
        before = damage.found
        yield from lines_of(file, target.kind, show=not only_checks, deep_check=not self.index_sanity_check)
        if only_checks and self.index_sanity_check and damage.found == before:
            yield {"kind": "sanity check", "passed": True, "file": target.path}

    def _log(self, target: DumpFile, damage: DamagePolicy, advance: Any) -> Iterator[dict[str, Any]]:
        from magicbyte.cli import dump_decoders
        from magicbyte.cli.dump_log import LogDump
        from magicbyte.engine.compiled import kernel

        decoders = {
            "offsets": dump_decoders.decode_group_record,
            "transactions": dump_decoders.decode_transaction_record,
            "metadata": dump_decoders.decode_metadata_record,
        }
        kernel.expect(target.size)
        dump = LogDump(
            dialect=self._dialect(target),
            deep=self.deep or self.print_data_log or self.deep_iteration or self.decoder is not None,
            decode=decoders[self.decoder] if self.decoder else None,
            limit=self.max_batch_bytes,
            max_bytes=self.max_bytes,
            on_damage=damage,
            warn=complain,
            progress=advance,
        )
        with target.files.open(target.path) as file:
            yield from dump.lines(file)
        if dump.holes:
            self.holes[target.path] = dump.holes[::-1]  # Kafka's tool has the last hole first

    def _dialect(self, target: DumpFile) -> Dialect:
        """Return the given dialect, or that of the folder."""
        if self.dialect is not None:
            return self.dialect
        folder = target.path.rpartition("/")[0] or "."
        try:
            return parse_file(target.files, f"{folder}/{MESSAGE_DIALECT}", parse_message_dialect)
        except OSError:
            return Dialect.KAFKA


def _heading(target: DumpFile) -> Iterator[str]:
    """Yield the first lines of Kafka's tool."""
    yield f"Dumping {without_passwords(target.path)}"
    stem = target.name.partition(".")[0]
    snapshot = _KRAFT_NAME.fullmatch(target.name)
    if target.kind == LOG and stem.isdigit():
        yield f"Log starting offset: {int(stem)}"
    elif target.name == BOOTSTRAP:
        yield "KRaft bootstrap snapshot"
    elif snapshot is not None:
        yield f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
