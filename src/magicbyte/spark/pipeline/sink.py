"""A pipeline's sink: what attempts write, what is committed, and what has its name. `docs/decisions/0007-pipeline.md`.

Everything is put there once, under a name that nobody else gives; a manifest makes it the output of a run. After a
crash at any point the next run finds either nothing of a partition, or all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magicbyte.archive.writer import LogDirectoryWriter
from magicbyte.errors import LogDirectoryError
from magicbyte.log.files import checkpoints
from magicbyte.log.files.filesystem import LocalFiles, replace_file, sync_directory
from magicbyte.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.log.live.log_directory import LOCK
from magicbyte.ports import TopicPartition

Json = dict[str, Any]

WORK = ".pipeline"
"""The folder of a run that has not settled."""
RUN = "run.json"
PAGE, NUMBERS = "pipeline-report.html", "pipeline-report.json"
"""What the last run did; where nothing was done there is no more in the sink."""
FORM = 1
"""Of manifests and records."""
_MANIFEST = re.compile(r"pipeline-([0-9]{8})\.json")
_READ_BYTES = 4 << 20


# ---- in workers


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Where a task puts what it makes of one partition. `token`: of this attempt alone."""

    sink: str
    unit: str
    fingerprint: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def folder(self) -> Path:
        """Where this attempt writes."""
        return Path(self.sink) / WORK / f"{self.unit}.{self.fingerprint}.{self.token}"

    @property
    def record(self) -> Path:
        """What says that an attempt has finished, and which."""
        return Path(self.sink) / WORK / f"{self.unit}.{self.fingerprint}.json"

    def begin(self) -> Path:
        """Make this attempt's folder. Raises FileNotFoundError when the run is over."""
        self.folder.mkdir()
        return self.folder

    def commit(self, found: Json) -> Json:
        """Make this attempt's folder the output, unless another attempt was first; return the record that counts.

        A record whose output is gone is nobody's: a worker put it that outlived its driver, when the next one had
        removed what it wrote.
        """
        while not put_once(self.record, json.dumps(found).encode()):
            other = read_json(self.record)
            if all(is_as_written(self.record.parent / each["staged"], each["files"]) for each in other["outputs"]):
                self.give_up()
                return other
            self.record.unlink(missing_ok=True)
        return found

    def committed(self) -> Json | None:
        """Return the record that this attempt put, None if it has put none."""
        if not self.record.exists():
            return None
        found = read_json(self.record)
        is_ours = all(each["staged"].startswith(f"{self.folder.name}/") for each in found["outputs"])
        return found if is_ours else None

    def give_up(self) -> None:
        """Remove what this attempt wrote."""
        shutil.rmtree(self.folder, ignore_errors=True)


def put_once(path: Path, content: bytes) -> bool:
    """Put a file where none is, whole and durably; say whether it was this call that did."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with fresh.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)  # unlike a rename it fails where the name exists
        except FileExistsError:
            return False
        sync_directory(path.parent)
        return True
    finally:
        fresh.unlink(missing_ok=True)


def read_json(path: Path) -> Json:
    """Return the object in a file. Raises LogDirectoryError when it holds something else."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise LogDirectoryError(f"{path}: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise LogDirectoryError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def files_of(path: Path, digests: Mapping[str, str] | None = None) -> list[Json]:
    """Return name, size and SHA-256 of each file of an output: a folder, or one file. `digests`: that are known."""
    paths, known = sorted(path.iterdir()) if path.is_dir() else [path], digests or {}
    return [
        {"name": each.name, "size": each.stat().st_size, "sha256": known.get(each.name) or _sha256(each)}
        for each in paths
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- in the driver


@dataclass(slots=True)
class Sink:
    """The folder that a run writes to, locked. `manifest` is the last one that was put, `number` its number."""

    path: Path
    tables: bool
    manifest: Json | None
    number: int

    @classmethod
    @contextlib.contextmanager
    def held(cls, path: Path, *, tables: bool, resume: bool) -> Iterator[Sink]:
        """Lock the sink, made if need be, and bring what an interrupted run had committed to its names.

        Raises LogDirectoryError when another run or a broker has it, when it holds what no pipeline made, or, without
        `resume`, what one made.
        """
        if _has_work(path) and not resume:
            raise LogDirectoryError(f"{path}: it holds the work of an earlier run; --resume continues it")
        path.mkdir(parents=True, exist_ok=True)
        try:
            lock = LocalFiles().lock(str(path / LOCK))
        except BlockingIOError as error:
            raise LogDirectoryError(f"{path}: another run, or a broker, is using this folder") from error
        try:
            sink = cls.seen(path, tables=tables)
            sink.work.mkdir(exist_ok=True)
            if sink.manifest is not None:
                sink.settle()
            yield sink
        finally:
            if (path / WORK).is_dir() and {each.name for each in (path / WORK).iterdir()} <= {RUN}:
                shutil.rmtree(path / WORK, ignore_errors=True)  # an attempt that came late may be writing there
            lock.release()

    @classmethod
    def seen(cls, path: Path, *, tables: bool) -> Sink:
        """Return the sink as it is, neither locked nor made: to be looked at.

        Raises LogDirectoryError if it is not a folder, or holds files of no pipeline.
        """
        _has_work(path)
        manifests = sorted(each.name for each in path.glob("pipeline-*.json") if _MANIFEST.fullmatch(each.name))
        last = read_json(path / manifests[-1]) if manifests else None
        return cls(path, tables, last, int(manifests[-1][9:17]) if manifests else 0)

    @property
    def work(self) -> Path:
        """Where attempts write."""
        return self.path / WORK

    def now_ms(self, default: int) -> int:
        """Return the time that the run counts from: of the run that is gone on with, else `default`."""
        path = self.work / RUN
        if not path.exists():
            put_once(path, json.dumps({"now": default}).encode())
        now = read_json(path)["now"]
        assert isinstance(now, int)
        return now

    def committed(self, unit: str, fingerprint: str) -> Json | None:
        """Return the record of a partition that the manifest has as it is to be, and whose output is there.

        Raises LogDirectoryError for an output that somebody changed.
        """
        record = None if self.manifest is None else self.manifest["units"].get(unit)
        if record is None:
            return None
        for output in record["outputs"]:
            path = self.path / output["name"]
            if path.exists() and not is_as_written(path, output["files"]):
                raise LogDirectoryError(f"{path}: expected the output of the pipeline, but it was changed since")
            if not path.exists():
                return None
        return dict(record) if record["fingerprint"] == fingerprint else None

    def known(self, unit: str, fingerprint: str) -> Json | None:
        """Return the record of a partition that is done already. Raises LogDirectoryError as `committed`."""
        place = SinkPlace(str(self.path), unit, fingerprint)
        return self.committed(unit, fingerprint) or self.finished(place)

    def has(self, record: Json) -> bool:
        """Whether the outputs of a record of the manifest are still there."""
        return all((self.path / output["name"]).exists() for output in record["outputs"])

    def finished(self, place: SinkPlace) -> Json | None:
        """Return the record that an attempt of an interrupted run left, if all that it wrote is there."""
        if not place.record.exists():
            return None
        record = read_json(place.record)
        whole = all(is_as_written(self.work / each["staged"], each["files"]) for each in record["outputs"])
        return record if whole else None

    def clear(self, keep: set[str]) -> None:
        """Remove what attempts of earlier runs left, but for the records of `keep` and the folders that they name."""
        folders = {
            output["staged"].split("/")[0]
            for name in keep
            if (self.work / name).exists()
            for output in read_json(self.work / name)["outputs"]
        }
        for each in self.work.iterdir():
            if each.name not in keep | folders | {RUN}:
                remove(each)

    def commit(self, manifest: Json) -> None:
        """Put the run's manifest, then bring its outputs to their names.

        Raises LogDirectoryError for an output that is gone, or not whole, and when another run has put a manifest.
        """
        for record in manifest["units"].values():
            for output in record["outputs"]:
                staged, target = self.work / output["staged"], self.path / output["name"]
                if not (is_as_written(staged, output["files"]) if staged.exists() else target.exists()):
                    raise LogDirectoryError(
                        f"{self.path}: the output {output['name']} is missing: run again with --resume"
                    )
        self.number += 1
        path = self.path / f"pipeline-{self.number:08}.json"
        if not put_once(path, json.dumps(manifest, indent=1).encode()):
            raise LogDirectoryError(f"{path}: expected nothing of that name: another run has committed")
        self.manifest = manifest
        self.settle()

    def settle(self) -> None:
        """Bring the outputs of the manifest to their names: what a crash left undone in here, the next run does."""
        assert self.manifest is not None
        moved = False
        for unit, record in self.manifest["units"].items():
            for output in record["outputs"]:
                staged, target = self.work / output["staged"], self.path / output["name"]
                if not staged.exists():
                    continue
                if target.exists():
                    target.rename(self.work / f"{unit}.replaced.{uuid.uuid4().hex}")
                staged.rename(target)
                moved = True
        if moved:
            sync_directory(self.path)
        if not self.tables and (moved or not (self.path / ".kafka_cleanshutdown").exists()):
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        """Write what lies beside the partitions of a log directory."""
        assert self.manifest is not None
        units: Mapping[str, Json] = self.manifest["units"]
        starts = {key_of(name): unit["logStartOffset"] for name, unit in units.items()}
        meta, version = self.manifest["metaProperties"], self.manifest["kafka"]
        rules = LATEST_RULES if version is None else IndexRules.of(version)
        LogDirectoryWriter(self.path, rules).finish(None if meta is None else meta.encode(), starts)
        cleaner = {key_of(name): unit["cleanTo"] for name, unit in units.items() if unit.get("cleanTo") is not None}
        if cleaner:
            replace_file(self.path / checkpoints.CLEANER, checkpoints.format_offset_checkpoint(cleaner))

    def close(self) -> None:
        """Remove what the run needed, when all is at its place."""
        self.clear(set())


def _has_work(path: Path) -> bool:
    """Whether a folder holds what a pipeline made. Raises LogDirectoryError for a file, and for what others made."""
    if not path.exists():
        return False
    if not path.is_dir():
        raise LogDirectoryError(f"{path}: expected a folder, found a file")
    held = [each.name for each in path.iterdir() if each.name not in (LOCK, PAGE, NUMBERS)]
    if held and WORK not in held and not any(map(_MANIFEST.fullmatch, held)):
        raise LogDirectoryError(f"{path}: expected an empty folder, or the output of a pipeline; found {min(held)}")
    return bool(held)


def key_of(unit: str) -> TopicPartition:
    """Return the partition that a unit is called by."""
    topic, _, number = unit.rpartition("-")
    return TopicPartition(topic, int(number))


def is_as_written(path: Path, files: list[Json]) -> bool:
    """Whether an output has the segments, or the file, that it had, by their sizes."""
    if not path.exists():
        return False
    found = {each.name: each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path])}
    data = {each["name"]: each["size"] for each in files if each["name"].endswith((".log", ".parquet"))}
    return data == {name: size for name, size in found.items() if name.endswith((".log", ".parquet"))}


def remove(path: Path) -> None:
    """Remove a file, or a folder, into which an attempt that nobody waits for may be writing still."""
    if not path.is_dir():
        path.unlink(missing_ok=True)  # what is put once is first called otherwise
        return
    away = path.with_name(f"{uuid.uuid4().hex}.removed")
    path.rename(away)  # from here on that attempt finds nothing to write into
    shutil.rmtree(away)
