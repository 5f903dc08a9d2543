"""Write a pipeline's outputs to a folder: staged by attempts, committed by a manifest, then renamed."""

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

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.filesystem import LocalFiles, replace_file, sync_directory
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.ports import TopicPartition
from magicbyte.tools.offline.writer import LogDirectoryWriter

Json = dict[str, Any]

WORK = ".pipeline"
"""The folder of a run in progress or interrupted."""
RUN = "run.json"
PAGE, NUMBERS = "pipeline-report.html", "pipeline-report.json"
"""The report of the last run. An unfinished or empty sink may hold nothing else."""
FORM = 1
"""The version of manifests and records."""
_MANIFEST = re.compile(r"pipeline-([0-9]{8})\.json")
_READ_BYTES = 4 << 20


# ---- in workers


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """The folder of one attempt at a partition. `token` is unique to the attempt."""

    sink: str
    unit: str
    fingerprint: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def folder(self) -> Path:
        """The folder that this attempt writes to."""
        return Path(self.sink) / WORK / f"{self.unit}.{self.fingerprint}.{self.token}"

    @property
    def record(self) -> Path:
        """The file that records the partition's first finished attempt."""
        return Path(self.sink) / WORK / f"{self.unit}.{self.fingerprint}.json"

    def begin(self) -> Path:
        """Create this attempt's folder. Raises FileNotFoundError if the run is over."""
        self.folder.mkdir()
        return self.folder

    def commit(self, record: Json) -> Json:
        """Record this attempt as the partition's output, unless another one is recorded. Return the valid record.

        A record with missing outputs is replaced. It is of a worker that outlived its driver, and whose files the next
        run had deleted.
        """
        while not put_once(self.record, json.dumps(record).encode()):
            other = read_json(self.record)
            if all(is_as_written(self.record.parent / each["staged"], each["files"]) for each in other["outputs"]):
                self.give_up()
                return other
            self.record.unlink(missing_ok=True)
        return record

    def committed(self) -> Json | None:
        """Return the record of this attempt, None if it has not been committed."""
        if not self.record.exists():
            return None
        found = read_json(self.record)
        is_ours = all(each["staged"].startswith(f"{self.folder.name}/") for each in found["outputs"])
        return found if is_ours else None

    def give_up(self) -> None:
        """Delete the files of this attempt."""
        shutil.rmtree(self.folder, ignore_errors=True)


def put_once(path: Path, content: bytes) -> bool:
    """Create a file unless it exists, atomically and durably. Return whether this call created it."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with fresh.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)  # unlike a rename, it fails if the name exists
        except FileExistsError:
            return False
        sync_directory(path.parent)
        return True
    finally:
        fresh.unlink(missing_ok=True)


def read_json(path: Path) -> Json:
    """Return the JSON object in a file. Raises LogDirectoryError for other content."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise LogDirectoryError(f"{path}: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise LogDirectoryError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def files_of(path: Path, digests: Mapping[str, str] | None = None) -> list[Json]:
    """Return name, size and SHA-256 of each file of an output, a folder or a file. `digests`: those already known."""
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
    """The locked folder that a run writes to. `manifest`: the last one. `number`: its number."""

    path: Path
    tables: bool
    manifest: Json | None
    number: int

    @classmethod
    @contextlib.contextmanager
    def held(cls, path: Path, *, tables: bool, resume: bool) -> Iterator[Sink]:
        """Lock the sink, created if needed, and rename the outputs that an interrupted run had committed.

        Raises LogDirectoryError if another run or a broker holds it, if it holds files of no pipeline, or, without
        `resume`, if it holds the output of one.
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
                shutil.rmtree(path / WORK, ignore_errors=True)  # a late attempt may still be writing there
            lock.release()

    @classmethod
    def seen(cls, path: Path, *, tables: bool) -> Sink:
        """Return the sink for reading, without locking or creating it.

        Raises LogDirectoryError if it is not a folder, or holds files of no pipeline.
        """
        _has_work(path)
        manifests = sorted(each.name for each in path.glob("pipeline-*.json") if _MANIFEST.fullmatch(each.name))
        last = read_json(path / manifests[-1]) if manifests else None
        return cls(path, tables, last, int(manifests[-1][9:17]) if manifests else 0)

    @property
    def work(self) -> Path:
        """The folder of attempts."""
        return self.path / WORK

    def now_ms(self, default: int) -> int:
        """Return the time from which ages are computed: of the continued run, else `default`."""
        path = self.work / RUN
        if not path.exists():
            put_once(path, json.dumps({"now": default}).encode())
        now = read_json(path)["now"]
        assert isinstance(now, int)
        return now

    def committed(self, unit: str, fingerprint: str) -> Json | None:
        """Return a partition's record in the manifest if its fingerprint is the same and its outputs exist, else None.

        Raises LogDirectoryError for an output that was changed.
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
        """Return the record of a finished partition, else None. Raises as `committed` does."""
        place = SinkPlace(str(self.path), unit, fingerprint)
        return self.committed(unit, fingerprint) or self.finished(place)

    def has(self, record: Json) -> bool:
        """Return whether the outputs of a record in the manifest still exist."""
        return all((self.path / output["name"]).exists() for output in record["outputs"])

    def finished(self, place: SinkPlace) -> Json | None:
        """Return the record of a finished attempt of an interrupted run, if all its files exist, else None."""
        if not place.record.exists():
            return None
        record = read_json(place.record)
        whole = all(is_as_written(self.work / each["staged"], each["files"]) for each in record["outputs"])
        return record if whole else None

    def clear(self, keep: set[str]) -> None:
        """Delete the files of earlier attempts, except the records named in `keep` and their folders."""
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
        """Write the run's manifest, then rename its outputs.

        Raises LogDirectoryError for a missing or incomplete output, and if another run has written a manifest.
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
        """Rename the outputs in the manifest to their final names. After a crash, the next run completes this."""
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
        """Write the checkpoints of a log directory, and its clean shutdown marker."""
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
        """Delete the run's temporary files, after its outputs are renamed."""
        self.clear(set())


def _has_work(path: Path) -> bool:
    """Return whether a folder holds output of a pipeline.

    Raises LogDirectoryError for a file, and for other content.
    """
    if not path.exists():
        return False
    if not path.is_dir():
        raise LogDirectoryError(f"{path}: expected a folder, found a file")
    held = [each.name for each in path.iterdir() if each.name not in (LOCK, PAGE, NUMBERS)]
    if held and WORK not in held and not any(map(_MANIFEST.fullmatch, held)):
        raise LogDirectoryError(f"{path}: expected an empty folder, or the output of a pipeline; found {min(held)}")
    return bool(held)


def key_of(unit: str) -> TopicPartition:
    """Return the partition named by a unit."""
    topic, _, number = unit.rpartition("-")
    return TopicPartition(topic, int(number))


def is_as_written(path: Path, files: list[Json]) -> bool:
    """Return whether an output has the recorded segments or table files, by name and size."""
    if not path.exists():
        return False
    found = {each.name: each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path])}
    data = {each["name"]: each["size"] for each in files if each["name"].endswith((".log", ".parquet"))}
    return data == {name: size for name, size in found.items() if name.endswith((".log", ".parquet"))}


def remove(path: Path) -> None:
    """Delete a file, or a folder to which an abandoned attempt may still be writing."""
    if not path.is_dir():
        path.unlink(missing_ok=True)  # `put_once` writes under another name first
        return
    away = path.with_name(f"{uuid.uuid4().hex}.removed")
    path.rename(away)  # from now on that attempt finds no folder to write to
    shutil.rmtree(away)
