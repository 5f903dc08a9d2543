"""The state of one partition on its way through the stages of a pipeline."""

from __future__ import annotations

import enum
import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import PartitionDirectory, discover, parse_file
from magicbyte.engine.log.files.filesystem import replace_file
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.ports import TopicPartition
from magicbyte.spark.pipeline.config import STAGES, Stage
from magicbyte.spark.pipeline.sink import FORM, files_of
from magicbyte.spark.pipeline.units import Unit, has_changed
from magicbyte.tools.offline.rebuild import recognise
from magicbyte.tools.offline.writer import end_offset

if TYPE_CHECKING:
    from magicbyte.engine.ports import FileEntry

Json = dict[str, Any]

_COPY_BYTES = 4 << 20


class TaskOutcome(enum.StrEnum):
    """The outcome of a partition. Only DONE leaves an output of this run."""

    DONE = "done"
    DAMAGED = "damaged"
    DIFFERENT = "different"  # `compare` found differing records
    CHANGED = "changed"  # the input changed while it was read
    FAILED = "failed"


class DamagedError(MagicbyteError):
    """Raised for damage found by a stage that only reads; the stage's record has the details."""


class DifferentError(MagicbyteError):
    """Raised if records differ from those of the other log."""


class ChangedError(MagicbyteError):
    """Raised if the input changed while it was read."""


SALVAGE = Stage("salvage", {name: option.default for name, option in STAGES["salvage"].items()})


def may_salvage(unit: Unit) -> bool:
    """Return whether damage in a partition should be salvaged, and its stages include no salvage yet."""
    is_asked = unit.on_damage == "salvage" and unit.sink is not None
    return is_asked and all(each.do != "salvage" for each in unit.stages)


@dataclass(slots=True)
class Work:
    """One partition in progress. `root`: the attempt's folder. `log`: the output of the stages so far.

    `given`: the step whose folder is the input of the present task. A task is repeated if its worker dies, so it keeps
    that folder.
    """

    unit: Unit
    root: Path | None
    log: PartitionDirectory
    step: int = 0
    given: int = -1
    owned: bool = False
    clean_to: int | None = None
    rules: IndexRules | None = None
    tables: list[Path] = field(default_factory=list)
    source_digests: dict[str, str] = field(default_factory=dict)
    """SHA-256, by name, of the source's segments and of the files of `log`, where the stages have computed them."""
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> TopicPartition:
        """The partition's name. Defined if there is a sink."""
        assert self.log.topic is not None
        assert self.log.partition is not None
        return TopicPartition(self.log.topic, self.log.partition)

    def next_folder(self) -> Path:
        """Return the path of the next log directory."""
        assert self.root is not None
        return self.root / f"{self.step + 1}"

    def take(self, folder: Path) -> None:
        """Continue with a new log directory. An earlier one that this task has written is deleted."""
        (found,) = discover([str(folder / str(self.key))])
        before = self.root / str(self.step) if self.root is not None and self.owned and self.step > self.given else None
        self.log, self.step, self.owned, self.digests = found, self.step + 1, True, {}
        self.rules = None
        if before is not None:
            shutil.rmtree(before)

    def begin_task(self) -> None:
        """Begin a task, which may be the repetition of one that died: delete its output and that of earlier tasks."""
        assert self.root is not None
        self.given = self.step
        for path in self.root.iterdir():
            number, _, kind = path.name.partition(".")
            if not number.isdecimal() or not path.is_dir():
                continue
            is_needed = int(number) == self.step + 1 or (int(number) == self.step and not kind)
            if not is_needed:
                shutil.rmtree(path)

    def fetch(self, stages: Sequence[Stage]) -> None:
        """Fetch a partition of a cluster, unless it is only sent on to another cluster."""
        live = self.unit.live
        if live is not None and (self.unit.aim is None or [stage.do for stage in stages] != ["mirror"]):
            from magicbyte.spark.pipeline.topics import fetch

            folder = self.next_folder()
            fetch(live, folder)
            self.take(folder)

    def own(self) -> PartitionDirectory:
        """Return the partition in a folder that may be modified: a copy, unless a stage has written it."""
        if not self.owned:
            folder = self.next_folder()
            copy_partition(self.log, folder, self.key)
            self.take(folder)
        return self.log

    def recognised(self) -> IndexRules:
        """Return the rules of the log's files before it was first opened, because opening repairs the files."""
        if self.rules is None:
            self.rules = recognise(self.own()) or LATEST_RULES
        return self.rules

    def refresh(self) -> None:
        """List the folder again after a change to it."""
        self.digests = {}
        (self.log,) = discover([self.log.path])

    def finish(self) -> Json:
        """Return the record of the output, empty without a sink."""
        unit = self.unit
        if has_changed(unit):
            raise ChangedError(f"{unit.partition.path}: changed while it was read; run the pipeline again")
        if self.root is None or unit.aim is not None:
            return {}
        if unit.tables:
            outputs = [_output(self.root, path) for path in self.tables]
        else:
            path = Path(self.own().path)
            outputs = [_output(self.root, path, self.digests)]
        return {
            "form": FORM,
            "fingerprint": unit.fingerprint,
            "logStartOffset": unit.first if unit.tables else log_start_offset(self.log),
            "logEndOffset": None if unit.tables else end_offset(self.log),
            "cleanTo": self.clean_to,
            "inputs": self.inputs(),
            "outputs": outputs,
        }

    def inputs(self) -> list[Json]:
        """Return the inputs: segments, or offsets of a cluster."""
        unit, live = self.unit, self.unit.live
        if live is not None:
            return [{"name": unit.partition.path, "first": live.first, "end": live.end}]
        return [
            {
                "name": name,
                "size": size,
                "modified": modified,
                "sha256": self.source_digests.get(name) or digest_of(unit.partition, name),
            }
            for name, size, modified in unit.inputs
        ]


def _output(root: Path, path: Path, digests: Mapping[str, str] | None = None) -> Json:
    return {"name": path.name, "staged": str(path.relative_to(root.parent)), "files": files_of(path, digests)}


def digest_of(partition: PartitionDirectory, name: str) -> str:
    """Return the SHA-256 of a segment's log."""
    digest = hashlib.sha256()
    (segment,) = (each for each in partition.segments if each.log.name == name)
    with partition.files.open(segment.log.path) as file:
        at = 0
        while piece := file.read_at(at, min(_COPY_BYTES, segment.log.size - at)):
            digest.update(piece)
            at += len(piece)
    return digest.hexdigest()


def copy_partition(source: PartitionDirectory, out: Path, key: TopicPartition) -> None:
    """Copy one partition into a new log directory `out`, with its lines of the checkpoint files.

    Modification times are kept, because the cleaner uses them, and so is a clean shutdown marker.
    """
    folder = out / str(key)
    folder.mkdir(parents=True)
    copy_segments(source, folder)
    for entry in [*source.snapshots.values(), *source.texts.values(), *source.leftovers]:
        _copy(source, entry, folder)
    above = source.log_directory or source.path.rstrip("/").rpartition("/")[0]
    for name in checkpoints.OFFSET_CHECKPOINTS:
        try:
            known = parse_file(source.files, f"{above}/{name}", checkpoints.parse_offset_checkpoint)
        except FileNotFoundError:
            continue
        replace_file(out / name, checkpoints.format_offset_checkpoint({key: known[key]} if key in known else {}))
    if any(each.name == checkpoints.CLEAN_SHUTDOWN for each in source.files.list(above)):
        marker = parse_file(source.files, f"{above}/{checkpoints.CLEAN_SHUTDOWN}", bytes)
        replace_file(out / checkpoints.CLEAN_SHUTDOWN, marker)


def copy_segments(source: PartitionDirectory, folder: Path) -> None:
    """Copy logs and indexes into a folder, with their modification times."""
    for segment in source.segments:
        for entry in (segment.log, *segment.companions.values()):
            _copy(source, entry, folder)


def _copy(source: PartitionDirectory, entry: FileEntry, folder: Path) -> None:
    target = folder / entry.name
    if "://" not in entry.path:
        shutil.copy2(entry.path, target)
        return
    with source.files.open(entry.path) as file, target.open("wb") as to:
        for at in range(0, entry.size, _COPY_BYTES):
            to.write(file.read_at(at, min(_COPY_BYTES, entry.size - at)))


def failed(error: Exception) -> tuple[TaskOutcome, str]:
    """Return the outcome of a part for an error, and its message."""
    return TaskOutcome.DAMAGED if isinstance(error, CorruptRecordError) else TaskOutcome.FAILED, str(error)


def raise_first(errors: Iterable[tuple[TaskOutcome, str] | None]) -> None:
    """Raise the error of the first part that failed."""
    if failed := next((each for each in errors if each is not None), None):
        raise DamagedError(failed[1]) if failed[0] is TaskOutcome.DAMAGED else MagicbyteError(failed[1])
