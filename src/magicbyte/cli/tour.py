"""`magicbyte tour`: run the commands live on real logs."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from magicbyte.cli.base import Command
from magicbyte.cli.options import OutputPath
from magicbyte.cli.tour_broker import serving
from magicbyte.cli.tour_stage import COUNT_LINES, ONLY_RECORDS, TourEndedError, TourStage
from magicbyte.engine.extras import obtain, present
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC

if TYPE_CHECKING:
    from magicbyte.tools.offline.inventory import PartitionInventory

BUNDLED = "logs"
OLDEST = "logs/kafka-0.8.2.2"
JAVA = "The Spark query needs Java 17 or later; on Debian or Ubuntu: sudo apt install default-jre-headless"
PYARROW = "Arrow and Parquet need pyarrow: pip install 'magicbyte[arrow]'"
PYSPARK = "The Spark query needs PySpark: pip install 'magicbyte[spark]'"

NEWEST_MAGIC = 2

_ENOUGH = 400  # records, or batches, among which good examples are chosen
_LARGE = 1 << 20  # bytes, above which a segment is not dumped whole

COUNT = """\
import pyarrow.parquet as pq

records = pq.read_table("records.parquet")
counts = records.group_by("topic").aggregate([([], "count_all"), ("headers", "count")]).sort_by("topic")
print(records.schema.remove_metadata())
print()
for count in counts.to_pylist():
    print(f"{count['topic']:<26} {count['count_all']:>6} records, {count['headers_count']:>6} with headers")
"""
QUERY = """\
import magicbyte.spark
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.master("local[*]").getOrCreate()
magicbyte.spark.register(spark)
logs = spark.read.format("magicbyte"){options}

batches = logs.option("mode", "shallow").load()  # a row per batch, nothing is decompressed
batches.groupBy("topic", "magic").agg(F.count("*").alias("batches"), F.sum("size").alias("bytes")).orderBy(
    "topic", "magic"
).show(50, truncate=False)

records = logs.option("mode", "deep").load()  # a row per record, as Spark's Kafka source has it
records.agg(F.count("*").alias("records"), F.sum(F.length("value")).alias("bytes of values")).show()
"""


PIPELINE = """\
[source]
path = "logs/kafka-0.8.2.2"

[[stage]]
do = "convert"
to = "2"
codec = "zstd"

[[stage]]
do = "digest"

[sink]
path = "archive"
"""

CHAPTERS = {
    "inventory": "formats, codecs, offsets and times of the logs",
    "bytes": "one batch of the oldest and of the newest format, byte by byte",
    "damage": "a damaged log, salvaged, and compared record by record",
    "serve": "a log of Kafka 0.8, served to a current client and mirrored",
    "migration": "what the next release would break, and the next step",
    "records": "records as text and as JSON",
    "batches": "a log with several formats, in the lines of Kafka's dump tool",
    "transactions": "transactions at both isolation levels",
    "groups": "the offsets that consumer groups committed",
    "enriched": "a proposed format that Kafka did not adopt",
    "convert": "an old log, converted to the current format",
    "parquet": "all records in a Parquet file",
    "pipeline": "a whole archive through a pipeline on Spark",
    "spark": "the logs as a DataFrame",
}
"""The chapters of the tour, by their names on the command line, in order."""
SHORT = ("inventory", "bytes", "damage", "serve", "migration")
"""The chapters without arguments."""
WITH_SPARK = ("pipeline", "spark")


class _Tour(Command):
    """The command, whose help lists the chapters."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the chapters above the examples."""
        with formatter.section("Chapters"):
            formatter.write_dl(list(CHAPTERS.items()))
        super().format_epilog(ctx, formatter)


@click.command(
    cls=_Tour,
    examples=(
        "magicbyte tour",
        "magicbyte tour transactions convert",
        "magicbyte tour --all /backup/kafka-logs",
        "magicbyte tour --unpack tour",
    ),
)
@click.argument("paths", nargs=-1, metavar="[CHAPTER...] [PATH...]")
@click.option("--all", "everything", is_flag=True, help="All chapters, without pauses; Spark if it is installed.")
@click.option("--keep", type=OutputPath(folder=True), metavar="DIR",
              help="Work in this new folder and keep it: the printed commands work there.")  # fmt: skip
@click.option("--unpack", type=OutputPath(folder=True), metavar="DIR",
              help="Only put the bundled logs into this new folder.")  # fmt: skip
def tour(paths: tuple[str, ...], everything: bool, keep: Path | None, unpack: Path | None) -> None:
    """Show the commands on real logs of every Kafka version, in a few seconds.

    The logs are included in magicbyte: partitions written by brokers of 0.8.2 to 4.3, one of them damaged. With PATHs
    the tour shows those instead, and changes none. A name from the list below is a chapter; a folder of such a name is
    ./NAME. On a terminal the tour waits for Enter after each screen.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap, whole_folder

    asked = [each for each in paths if each in CHAPTERS]
    paths = tuple(each for each in paths if each not in CHAPTERS)
    for each in paths:
        if "/" not in each and not Path(each).exists():
            raise click.UsageError(f"{each!r}: expected a path that exists, or a chapter: {', '.join(CHAPTERS)}")
    for output in (keep, unpack):
        if output is not None:
            refuse_overlap(output, paths)
    if unpack is not None:
        with whole_folder(_checked(unpack)) as fresh:
            _unpack(fresh)
        return
    if any(each in WITH_SPARK for each in asked):
        obtain("spark")
    chapters = asked or SHORT
    if everything:
        chapters = [each for each in CHAPTERS if each in asked or each not in WITH_SPARK or present("spark")]
    pauses = not everything and sys.stdin.isatty() and sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="magicbyte-tour-")))
        else:
            folder = _checked(keep)
            with whole_folder(folder) as fresh:
                if not paths:
                    _unpack(fresh)
        # Absolute paths, because the tour changes the current folder.
        given = [path if "://" in path else str(Path(path).absolute()) for path in paths]
        if not given and keep is None:
            _unpack(folder)
        stack.enter_context(contextlib.chdir(folder))
        tour = Tour(given or [BUNDLED], folder, TourStage(pauses=pauses), bundled=not given, kept=keep is not None)
        with contextlib.suppress(TourEndedError):
            tour.walk(chapters)


def _checked(folder: Path) -> Path:
    """Return the absolute path of a folder to create. Raises UsageError for one that is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder}: expected a folder that is new or empty")
    return folder.absolute()


def _unpack(folder: Path) -> None:
    archive = files("magicbyte").joinpath("cli/tour_logs.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(archive)) as logs:
        logs.extractall(folder)


class Example(NamedTuple):
    """A batch or a single message that is small enough to show."""

    segment: str
    position: int


class Tour:
    """The walk through the logs at `paths`. Its examples are chosen by an inventory of them."""

    def __init__(self, paths: list[str], folder: Path, stage: TourStage, *, bundled: bool, kept: bool) -> None:
        self.paths = paths
        self.folder = folder
        self.bundled = bundled
        self.kept = kept
        self.stage = stage
        self.found: list[PartitionInventory] = []
        self._ending = contextlib.ExitStack()
        self._old: str | None = None

    def walk(self, chapters: Sequence[str]) -> None:
        """Show chapters. Raises LogDirectoryError if there are no logs, TourEndedError."""
        started = time.monotonic()
        self._look()
        self._introduce()
        steps = {
            "inventory": self.inventory,
            "bytes": self.anatomy,
            "damage": self.damage,
            "serve": self.served,
            "migration": self.migration,
            "records": self.records,
            "batches": self.batches,
            "transactions": self.transactions,
            "groups": self.internal_topics,
            "enriched": self.enriched,
            "convert": self.conversion,
            "parquet": self.parquet,
            "pipeline": self.pipeline,
            "spark": self.spark,
        }
        with self._ending:
            for name in chapters:
                steps[name]()
        self._your_turn(chapters, time.monotonic() - started)

    def _your_turn(self, seen: Sequence[str], seconds: float) -> None:
        self.stage.heading("Your turn")
        self.stage.say(f"That was the tour, in {seconds:.0f} s.")
        logs = f"{self.folder}/logs" if self.kept and self.bundled else "tour/logs"
        lines = [] if self.kept else ["magicbyte tour --unpack tour"]
        self.stage.lines(
            [
                "",
                *(f"  {each}" for each in lines),
                f"  magicbyte inventory {logs if self.bundled else shlex.join(self.paths)}",
                "  magicbyte cat --help",
                "",
            ]
        )
        if self.kept:
            self.stage.say(f"All of it is still in {self.folder}")
        if others := [each for each in CHAPTERS if each not in seen]:
            self.stage.say(f"More chapters: magicbyte tour {' '.join(others)}")
        self.stage.say("On logs of your own: magicbyte tour PATH.")

    def _look(self) -> None:
        from magicbyte.engine.log.files.directory import discover
        from magicbyte.engine.log.files.left_out import in_use
        from magicbyte.tools.offline.inventory import take_inventory

        partitions = [each for each in in_use(discover(self.paths)) if each.segments]
        total = sum(each.size for each in partitions)
        self.found = [take_inventory(each, deep=True, threads=2, expected_bytes=total) for each in partitions]

    def _introduce(self) -> None:
        whose = "Log directories as real brokers left them" if self.bundled else "Your logs"
        where = (
            f"The folder is {self.folder}, and there all commands work as printed."
            if self.kept
            else "To repeat a command, leave the logs in a folder: magicbyte tour --keep DIR."
        )
        self.stage.say(
            f"{whose}, {len(self.found)} partitions. The commands below run now, as printed; long output is cut, and "
            f"no log is changed. {where}"
        )

    # ---- the steps

    def inventory(self) -> None:
        """Show the inventory."""
        self.stage.heading("What is in these logs?")
        self.stage.say(
            "From the headers alone, so at the speed of the disk. A ? marks what is known only after decompression."
        )
        self.stage.run("inventory", *self.paths, rows=24)

    def records(self) -> None:
        """Print records of a log as text and as JSON."""
        chosen = max(
            self._sound(), key=lambda each: (_deep(each).with_headers, max(each.tally.formats)[0]), default=None
        )
        if chosen is None:
            return
        offset = self._readable_offset(chosen)
        where = (_shown(chosen.partition.path), "--from", str(offset))
        self.stage.heading("Records as text and as JSON")
        self.stage.run("cat", *where, "-n", "5")
        self.stage.run("cat", *where, "-n", "2", "--format", "jsonl", "--values", "utf8", wrap=True)

    def batches(self) -> None:
        """Show the log with the most formats, batch by batch."""
        chosen = max(self._sound(), key=lambda each: len({magic for magic, _ in each.tally.formats}), default=None)
        if chosen is None:
            return
        magics = sorted({magic for magic, _ in chosen.tally.formats})
        self.stage.heading("Batches")
        self.stage.say(
            f"{chosen.partition.name} holds magic {', '.join(map(str, magics))}"
            + (": its format was changed while it grew." if len(magics) > 1 else ".")
            + " The lines are those of Kafka's own dump tool; cat --batches gives the same as JSON."
        )
        segment = chosen.partition.segments[0]
        bound = ("--max-bytes", str(_LARGE)) if segment.log.size > _LARGE else ()
        self.stage.run("dump", _shown(segment.log.path), *bound, rows=18, wrap=True)

    def anatomy(self) -> None:
        """Show the bytes of the oldest and of the newest format."""
        examples = {magic: self._example(magic) for magic in (0, 1, 2)}
        present = [magic for magic, example in examples.items() if example is not None]
        if not present:
            return
        self.stage.heading("Byte by byte")
        names = {
            0: "a message of Kafka 0.8 and 0.9",
            1: "a message of Kafka 0.10",
            2: "a batch of Kafka 0.11 and later",
        }
        magics = sorted({present[0], present[-1]})
        self.stage.say(
            f"Byte 16 is the magic byte: {'; '.join(f'{magic}, {names[magic]}' for magic in magics)}. docs/formats has "
            "a page for each."
        )
        for magic in magics:
            example = examples[magic]
            assert example is not None, "only those that are present"
            self.stage.run("dump", example.segment, "--anatomy", "--at", str(example.position), rows=32)

    def transactions(self) -> None:
        """Count the records of consumers with and without aborted transactions."""
        chosen = max(
            (each for each in self._sound() if each.tally.aborted or each.tally.open_transactions),
            key=lambda each: (len(each.tally.open_transactions), each.tally.aborted),
            default=None,
        )
        if chosen is None:
            return
        tally = chosen.tally
        self.stage.heading("Transactions")
        self.stage.say(
            f"{chosen.partition.name}: {tally.committed} committed, {tally.aborted} aborted, "
            f"{len(tally.open_transactions)} open. How many records does a consumer see, with each isolation level?"
        )
        for isolation in ("read_uncommitted", "read_committed"):
            path = _shown(chosen.partition.path)
            self.stage.run("cat", path, "--isolation", isolation, "--format", "jsonl", pipe=COUNT_LINES)

    def internal_topics(self) -> None:
        """Decode an internal topic of Kafka."""
        decoders = {OFFSETS_TOPIC: "--offsets-decoder", STATE_TOPIC: "--transaction-log-decoder"}
        chosen = next((each for each in self._sound() if each.partition.topic in decoders and each.tally.batches), None)
        if chosen is None:
            return
        topic = chosen.partition.topic
        segment = next(each for each in chosen.partition.segments if each.log.size)
        assert topic is not None, "it was chosen by its name"
        self.stage.heading("Kafka's own topics")
        self.stage.say("Committed offsets of the groups when the broker stopped:")
        bound = ("--max-bytes", "65536") if segment.log.size > _LARGE else ()
        decoding = (decoders[topic], "--skip-record-metadata")
        self.stage.run("dump", _shown(segment.log.path), *decoding, *bound, rows=14, wrap=True, pipe=ONLY_RECORDS)

    def enriched(self) -> None:
        """Show the enriched format, which also has magic 1."""
        from magicbyte.engine.records.layout import Dialect

        chosen = next((each for each in self.found if each.dialect is Dialect.ENRICHED and not each.damage), None)
        if chosen is None:
            return
        self.stage.heading("The enriched dialect")
        self.stage.say(
            "A proposal for magic 1 that Kafka did not adopt: tags in each message. Its bytes look like v1, so "
            "a file in the folder says which it is, or --dialect does."
        )
        self.stage.run("cat", _shown(chosen.partition.path), "-n", "4")

    def damage(self) -> None:
        """Find the damage."""
        damaged = [each for each in self.found if each.damage]
        self.stage.heading("Damage")
        if not damaged:
            self.stage.say(f"Every checksum is verified in {len(self.found)} partitions, and none is wrong.")
            self.stage.run("inventory", "--deep", *self.paths, rows=14)
            return
        self.stage.say(
            "Decoding finds it, headers do not show it. Each damage has a file, a position, the expected and the found "
            "value. Everything else in the log is read."
        )
        chosen = damaged[0]
        self.stage.run("inventory", "--deep", _shown(chosen.partition.path), rows=12, wrap=True)
        error = next((each for each in chosen.damage if each.position is not None and each.path), None)
        if error is not None:
            self.stage.run("dump", _shown(str(error.path)), "--anatomy", "--at", str(error.position), rows=16)
        self.stage.say("Every whole batch is copied out, and a comparison that continues after the damage proves that:")
        self.stage.run("salvage", _shown(chosen.partition.path), "--out", "whole", wrap=True)
        self.stage.run("diff", _shown(chosen.partition.path), "whole", "--on-damage", "skip", rows=12, wrap=True)

    def served(self) -> None:
        """Serve the log of the oldest release, read it with a modern client, and mirror it."""
        self.stage.heading("An old log, served and mirrored")
        if not self.bundled:
            self.stage.say("A broker works on a copy of its directory, so this chapter takes the bundled logs only.")
            return
        self.stage.say(
            "A broker on the directory that Kafka 0.8.2 left; --overlay does not change the original. The client "
            "speaks the newest protocol, as one of Kafka 4 does. The mirror copies into a broker that stores v2."
        )
        old = self._old_broker()
        with serving(self.stage, "--dir", "target") as new:
            line = ("-f", "%o %k %s\\n")
            self.stage.run("consume", "-b", old, "-t", "basic-none", "-o", "13", "-c", "2", *line)
            ends = ("--from", old, "--to", new)
            self.stage.run("mirror", *ends, "--topics", "basic-.*", "--until-caught-up", "--yes", wrap=True)
            self.stage.run("inventory", f"kafka://{new}/basic-none", rows=4)

    def migration(self) -> None:
        """Plan the migration of an old cluster to format 2."""
        self.stage.heading("A migration, planned")
        if not self.bundled:
            self.stage.say(
                "From the stored formats; with -b and the cluster's brokers it knows clients and settings, too:"
            )
            self.stage.run("plan", *(part for path in self.paths for part in ("--dir", path)), "--rehearse", "0")
            return
        self.stage.say("The broker of the 0.8 log has the settings of a 0.8 cluster. What must change before Kafka 4?")
        old = self._old_broker()
        self.stage.run("migrate", "check", "-b", old, "--to", "4", rows=9, wrap=True)
        self.stage.run("migrate", "next", "-b", old, "--to", "v2", "--rehearse", "0", wrap=True)

    def _old_broker(self) -> str:
        """Return the address of a broker with the log of the oldest release, which runs until the end of the tour."""
        if self._old is None:
            self._old = self._ending.enter_context(serving(self.stage, "--dir", OLDEST, "--overlay", "served"))
        return self._old

    def conversion(self) -> None:
        """Convert a log of the oldest format to the newest, and compare both."""
        chosen = min(self._sound(), key=lambda each: min(each.tally.formats), default=None)
        if chosen is None or min(chosen.tally.formats)[0] == NEWEST_MAGIC:
            return
        path = _shown(chosen.partition.path)
        self.stage.heading("Old logs for Kafka 4")
        self.stage.say(
            "Kafka 4 neither writes nor serves formats before v2. What this writes it opens as its own. Records of v0 "
            "have no timestamps, so those are not compared."
        )
        self.stage.run("convert", path, "--to", f"v{NEWEST_MAGIC}", "--codec", "zstd", "--out", "newer", wrap=True)
        self.stage.run("diff", path, "newer", "--ignore", "timestamps", wrap=True)

    def parquet(self) -> None:
        """Write all records to a Parquet file, and count them with pyarrow."""
        self.stage.heading("To Arrow and Parquet")
        if not present("arrow"):
            self.stage.say(PYARROW)
            return
        skip = ("--on-damage", "skip") if any(each.damage for each in self.found) else ()
        self.stage.run("cat", *self.paths, *skip, "--format", "parquet", "-o", "records.parquet", wrap=True)
        self.stage.run_script(self.folder / "count_records.py", COUNT)

    def pipeline(self) -> None:
        """Run a pipeline on a log directory."""
        self.stage.heading("A pipeline")
        if not self._has_spark():
            return
        if not self.bundled:
            self.stage.say("A pipeline writes converted copies, so this chapter takes the bundled logs only.")
            return
        self.stage.say("Each partition goes through all stages in one task. Starting Spark takes some seconds.")
        (self.folder / "archive.toml").write_text(PIPELINE)
        self.stage.command("cat archive.toml")
        self.stage.lines(PIPELINE.splitlines())
        self.stage.run("pipeline", "run", "archive.toml", wrap=True)
        self.stage.run("inventory", "archive", rows=6)

    def _has_spark(self) -> bool:
        """Return whether Spark can start. Print the missing parts if it cannot."""
        if not present("spark"):
            self.stage.say(PYSPARK)
        elif not _runs_java():
            self.stage.say(JAVA)
        else:
            return True
        return False

    def spark(self) -> None:
        """Query the logs with Spark."""
        self.stage.heading("Spark")
        sound = self._sound()
        if not self._has_spark():
            return
        if not sound:
            self.stage.say("There is no sound partition with a topic's name to query.")
        else:
            self.stage.say("The same files as a DataFrame, without a broker. Starting Spark takes some seconds.")
            options = f'.option("path", {",".join(self.paths)!r})'
            if len(sound) < len(self.found):
                topics = ",".join(sorted({str(each.partition.topic) for each in sound}))
                options += f'.option(\n    "subscribe", {topics!r}\n)'
            done = self.stage.run_script(self.folder / "query.py", QUERY.replace("{options}", options))
            if done.status:
                raise click.ClickException("the Spark query failed; the reason is in its output above")

    # ---- choosing

    def _sound(self) -> list[PartitionInventory]:
        """Return the partitions of topics in Kafka's formats that have records and no damage."""
        from magicbyte.engine.records.layout import Dialect

        bad = {each.partition.topic for each in self.found if each.damage or each.dialect is not Dialect.KAFKA}
        return [each for each in self.found if each.partition.topic not in bad and _deep(each).records]

    def _readable_offset(self, chosen: PartitionInventory) -> int:
        """Return an offset from which on some records are short text, if there is one."""
        from magicbyte.engine.log.files.reader import SegmentReader, Selection

        records: list[Any] = []
        for columns in SegmentReader(chosen.partition).records(Selection(chosen.log_start_offset)):
            records += itertools.islice(columns, _ENOUGH)
            if len(records) >= _ENOUGH:
                break
        good = [_is_readable(record) for record in records]
        best = max(range(len(records)), key=lambda i: (sum(good[i : i + 5]), -i))
        return int(records[best].offset)

    def _example(self, magic: int) -> Example | None:
        """Return the smallest uncompressed batch of a magic with readable key and value, or a similar one."""
        from magicbyte.engine.log.files.reader import SegmentReader
        from magicbyte.tools.offline.batch_list import list_batches

        candidates: list[tuple[bool, int, Example]] = []
        for sound in self._sound():
            if (magic, "none") not in sound.tally.formats:
                continue
            reader = SegmentReader(sound.partition)
            readable = {
                record.offset
                for columns in itertools.islice(reader.records(), 20)
                for record in columns
                if _is_readable(record) and record.key
            }
            folder = _shown(sound.partition.path)
            for line in itertools.islice(list_batches(reader), _ENOUGH):
                if line["magic"] == magic and line["codec"] == "none" and line["recordCount"] and "marker" not in line:
                    example = Example(f"{folder}/{line['segment']}", line["position"])
                    candidates.append((line["baseOffset"] not in readable, line["size"], example))
        return min(candidates)[2] if candidates else None


def _deep(found: PartitionInventory) -> Any:
    assert found.tally.deep is not None, "the inventory was a deep one"
    return found.tally.deep


def _is_readable(record: Any) -> bool:
    """Return whether a record has some text that fits on a line."""
    try:
        key, value = ((part or b"").decode() for part in (record.key, record.value))
    except UnicodeDecodeError:
        return False
    return bool(value) and len(key) + len(value) < 60 and f"{key}{value}".isascii() and f"{key}{value}".isprintable()


def _shown(path: str) -> str:
    """Return the shortest form of a path for the present folder."""
    if "://" in path:
        return path
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _runs_java() -> bool:
    """Return whether `java` runs. On a Mac without Java, it is a stub that fails."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        return False
    return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
