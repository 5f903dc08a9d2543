"""Run all steps of a rescue: unpack, choose replicas, salvage, convert, write to the target, read back.

Intermediate data is in a working folder, under one lock. Each step continues where it was interrupted: salvaged and
converted partitions have their final names only when complete, and the target stores the progress of its copy
(mirror/). The identity by which the target recognizes a topic depends on its records alone, so the same backup has the
same identity in any folder.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from magicbyte.access.client import Client
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.errors import LogDirectoryError, MagicbyteError
from magicbyte.engine.internal_topics import INTERNAL, OFFSETS_TOPIC
from magicbyte.engine.log.files.checkpoints import META_PROPERTIES
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import LocalFiles, make_directory, replace_file, sync_directory
from magicbyte.engine.log.files.outputs import refuse_overlap, refuse_used
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import Format
from magicbyte.tools.mirror.log_source import LogSource
from magicbyte.tools.offline.convert import ConvertOptions, convert_partitions
from magicbyte.tools.offline.salvage import SalvageOptions, SalvageReport, salvage_logs, salvage_partition
from magicbyte.tools.rescue.backup import BackupContent, missing_numbers, open_backup
from magicbyte.tools.rescue.groups import stored_groups
from magicbyte.tools.rescue.kraft import KraftReceipt, KraftTarget, add_metadata, forget_metadata
from magicbyte.tools.rescue.produce import Steps, planned, produce_all
from magicbyte.tools.rescue.receipt import RescuedPartition, RescueReceipt, count_records, records_seen
from magicbyte.tools.rescue.unpack import UnpackLimits, is_packed, unpack

STATE: Final = "rescue.json"
LOCK: Final = ".lock"
PLACED: Final = "placed"  # in STATE, written before the directory is renamed to the target
UNPACKED, SALVAGED, CONVERTED = "unpacked", "salvaged", "converted"
REMOVED: Final = ".removed"  # suffix of such a folder while it is being deleted


@dataclass(frozen=True, slots=True)
class RescueOptions:
    """Options of a rescue. `topics`: only these. `as_`: the name of a single partition. `unpacked`: limit in bytes.

    `kraft`: the target is a directory that becomes that of a KRaft node.
    """

    steps: Steps
    topics: tuple[str, ...] = ()
    as_: TopicPartition | None = None
    limit: int = DEFAULT_MAX_BATCH_BYTES
    unpacked: int | None = None
    threads: int = 1
    is_dry: bool = False
    kraft: KraftTarget | None = None


class ClusterTarget(NamedTuple):
    """A cluster to write to, with the factory of its client."""

    bootstrap: str
    client: Callable[[], Client]


def rescue_into(backup: Path, target: Path | ClusterTarget, work: Path, options: RescueOptions) -> RescueReceipt:
    """Bring the sound records of a backup into a cluster, or a new log directory. Return the receipt.

    The backup is only read. `work` is created if needed, and deleted at the end; after an interruption the same call
    continues there. Raises LogDirectoryError, MirrorError, CorruptRecordError, BrokerError, NetworkError, OSError.
    """
    if not backup.exists():
        raise LogDirectoryError(f"{backup}: expected a folder of logs or an archive, found nothing")
    if backup.is_file() and not is_packed(backup) and backup.suffix != ".log":
        raise LogDirectoryError(f"{backup}: expected a folder, a .log file, .tar, .tar.gz, .tar.zst, .zip or .log.gz")
    refuse_overlap(work, [str(backup)])
    to = str(target) if isinstance(target, Path) else target.bootstrap
    if isinstance(target, Path):
        target = target.resolve()  # "." cannot be removed by this name, and would denote another folder later
        if not _is_placed(work, target):
            refuse_used(target)
        refuse_overlap(target, [str(backup)])
        if _file_system(work) != _file_system(target):
            raise LogDirectoryError(f"{work}: expected a folder on the file system of {target}, which it is renamed to")
    else:
        asyncio.run(planned(target.client(), ()))  # fail early if the cluster does not answer
    is_new = not work.exists()
    make_directory(work)
    with ExitStack() as stack:
        try:
            lock = LocalFiles().lock(str(work / LOCK))
        except BlockingIOError as error:
            raise LogDirectoryError(f"{work}: another rescue is running there") from error
        stack.callback(lock.release)
        stage = _RescueStage(backup, work, options)
        stage.check_state()
        receipt = RescueReceipt(str(backup), to, options.is_dry, is_of_cluster=isinstance(target, ClusterTarget))
        try:
            stage.open(receipt)
            if isinstance(target, ClusterTarget):
                topics = [name for name in stage.content.partitions if name.topic != OFFSETS_TOPIC]
                receipt.plans = asyncio.run(planned(target.client(), topics))
        except MagicbyteError:
            if is_new:  # nothing worth keeping yet
                _remove(work)
            raise
        if options.is_dry:
            stage.look(receipt)
        elif isinstance(target, Path):
            if _is_placed(work, target):
                stage.resume_placed(receipt, target)
            else:
                stage.salvage_and_convert(receipt)
                if options.kraft is not None:
                    receipt.kraft = add_metadata(work / CONVERTED, options.kraft)
                stage.move_to_target(receipt, target)
            _close(target, receipt)
        else:
            stage.salvage_and_convert(receipt)
            asyncio.run(_produce(target.client(), work / CONVERTED, receipt, options))
    if not options.is_dry or is_new:
        _remove(work)
    return receipt


def _remove(work: Path) -> None:
    """Delete the working folder, so that the same call can continue after a crash at any point.

    Only files of a rescue are deleted; others keep the folder. The state is deleted last. A folder is renamed first,
    because a partial one would be taken for the output of a stage. Each stage is deleted before the stage that it was
    made from, with which it is compared.
    """
    for name in (CONVERTED, SALVAGED, UNPACKED):
        if (work / name).exists():
            (work / name).rename(work / f"{name}{REMOVED}")
            shutil.rmtree(work / f"{name}{REMOVED}")
    for name in (LOCK, f"{STATE}.tmp", STATE):
        (work / name).unlink(missing_ok=True)
    with suppress(OSError):
        work.rmdir()


def _is_placed(work: Path, target: Path) -> bool:
    """Return whether an interrupted rescue has renamed the converted directory to the target."""
    try:
        placed = _read_state(work).get(PLACED)
        return placed is not None and target.stat().st_ino == placed["inode"] and not (work / CONVERTED).exists()
    except FileNotFoundError:
        return False


def _read_state(work: Path) -> dict[str, Any]:
    """Return the content of STATE, empty if it is invalid. Raises FileNotFoundError."""
    try:
        found = json.loads((work / STATE).read_text())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _file_system(path: Path) -> int:
    """Return the device number of the file system of a path, or of its nearest existing parent."""
    return next(each for each in (path.resolve(), *path.resolve().parents) if each.exists()).stat().st_dev


@dataclass(slots=True)
class _RescueStage:
    """The working folder of a rescue."""

    backup: Path
    work: Path
    options: RescueOptions
    content: BackupContent = field(default_factory=BackupContent)

    def check_state(self) -> None:
        """Record the rescue that the folder belongs to. Raises LogDirectoryError if it belongs to another one."""
        path, now = self.work / STATE, self._identity()
        if path.exists():
            known = _read_state(self.work)
            known.pop(PLACED, None)
            if known != now:
                raise LogDirectoryError(
                    f"{self.work}: the work of another rescue, or of a backup that has changed since: remove it, "
                    "or give another folder with --work"
                )
            for each in self.work.glob(f"*{REMOVED}"):
                shutil.rmtree(each)
            return
        if others := {each.name for each in self.work.iterdir()} - {LOCK, f"{STATE}.tmp"}:
            raise LogDirectoryError(
                f"{self.work}: expected a new folder, or that of an interrupted rescue; found {min(others)}"
            )
        replace_file(path, json.dumps(now).encode())

    def _identity(self) -> dict[str, Any]:
        named = str(self.options.as_ or "")
        stat = self.backup.stat()
        told = [str(self.backup.resolve()), stat.st_size if self.backup.is_file() else 0, stat.st_mtime_ns]
        identity = {"backup": told, "topics": sorted(self.options.topics), "as": named}
        return identity if self.options.kraft is None else identity | {"kraft": self.options.kraft.identity()}

    def open(self, receipt: RescueReceipt) -> None:
        """Find the partitions in the backup, or in its unpacked files."""
        folder, options = self.backup, self.options
        if is_packed(self.backup):
            folder = self.work / UNPACKED
            limits = UnpackLimits.of(self.backup)
            if options.unpacked is not None:
                limits = UnpackLimits(options.unpacked)
            with options.steps("unpack", self.backup.stat().st_size) as advance:
                receipt.archive = unpack(self.backup, folder, limits, options.as_, advance).damage
        if not receipt.archive or any(folder.rglob("*.log")):
            opening = SalvageOptions(limit=options.limit, opens=True)
            self.content = open_backup(folder, options.topics, options.as_, opening)
        else:
            raise LogDirectoryError(f"{receipt.archive[0]}: no segment could be unpacked")
        if not self.content.partitions:
            gaps = "".join(f"; missing: {gap}" for gap in self.content.gaps[:1])
            raise LogDirectoryError(
                f"{self.backup}: expected partitions of topics, found none or only Kafka's own{gaps}"
            )
        receipt.left_out, receipt.gaps = self.content.left_out, self.content.gaps
        receipt.missing = missing_numbers(self.content.partitions)

    def look(self, receipt: RescueReceipt) -> None:
        """Report the replicas to use and the losses, for a dry run. Only an archive is unpacked."""
        with self.options.steps("look", self.content.size) as advance:
            for name, each in self.content.partitions.items():
                options = SalvageOptions(limit=self.options.limit, opens=True, progress=advance)
                receipt.partitions.append(self._partition(name, each, salvage_partition(each, None, options)))

    def salvage_and_convert(self, receipt: RescueReceipt) -> None:
        """Salvage and convert all partitions, and compare the output with the input."""
        if self.options.kraft is not None:
            forget_metadata(self.work / CONVERTED)
        rescued: dict[TopicPartition, RescuedPartition] = {}
        with self.options.steps("salvage", self.content.size) as advance:
            salvaging = SalvageOptions(limit=self.options.limit, opens=True, new_cluster=True, progress=advance)
            for done in salvage_logs(self.content.partitions, self.work / SALVAGED, salvaging):
                source = self.content.partitions[done.name]
                rescued[done.name] = self._partition(done.name, source, done.report)
        salvaged = {_name(each): each for each in discover(self.work / SALVAGED)}
        (self.work / SALVAGED / META_PROPERTIES).unlink(missing_ok=True)  # the new cluster has its own
        with self.options.steps("convert", 3 * sum(each.size for each in salvaged.values())) as advance:
            converting = ConvertOptions(
                Format.V2, fix_lz4=True, verify=True, limit=self.options.limit, threads=self.options.threads,
                new_cluster=True, old_topics=self._old_topics(), progress=advance,
            )  # fmt: skip
            for one in convert_partitions(salvaged, self.work / CONVERTED, converting):
                if one.error is not None:
                    rescued[one.name].error = f"not converted: {one.error}"
                elif not one.sound:
                    rescued[one.name].error = "not converted: the converted records differ from the source"
        receipt.partitions = [rescued[name] for name in sorted(rescued)]
        asyncio.run(self._digest_output(receipt, self.work / CONVERTED))

    def _old_topics(self) -> frozenset[str]:
        """Return the topics whose records stay in their formats."""
        if self.options.kraft is None or self.options.kraft.converts:
            return frozenset()
        return frozenset(name.topic for name in self.content.partitions if name.topic not in INTERNAL)

    def move_to_target(self, receipt: RescueReceipt, target: Path) -> None:
        """Rename the converted directory to the target.

        STATE identifies it, and lists the partitions missing from it.
        """
        converted = self.work / CONVERTED
        errors = {str(each.name): each.error for each in receipt.partitions if each.error is not None}
        placed: dict[str, Any] = {"inode": converted.stat().st_ino, "errors": errors}
        if receipt.kraft is not None:
            placed["kraft"] = receipt.kraft._asdict()
        replace_file(self.work / STATE, json.dumps(self._identity() | {PLACED: placed}).encode())
        if target.exists():
            target.rmdir()  # it must be empty
        make_directory(target.parent)
        converted.rename(target)  # crash before: the same call continues; after it, the call looks again

    def resume_placed(self, receipt: RescueReceipt, target: Path) -> None:
        """Fill the receipt of a rescue that was interrupted after its directory was renamed."""
        self.look(receipt)
        placed = _read_state(self.work)[PLACED]
        errors = placed["errors"]
        receipt.kraft = KraftReceipt(**placed["kraft"]) if "kraft" in placed else None
        for each in receipt.partitions:
            each.error = errors.get(str(each.name))
        asyncio.run(self._digest_output(receipt, target))

    def _partition(self, name: TopicPartition, source: PartitionDirectory, report: SalvageReport) -> RescuedPartition:
        return RescuedPartition(name, source.path, source.size, report, self.content.others.get(name, []))

    async def _digest_output(self, receipt: RescueReceipt, folder: Path) -> None:
        """Compute the digests of all sound records."""
        source = LogSource(discover([str(folder)]))
        with self.options.steps("read", sum(partition.salvage.bytes for partition in receipt.partitions)) as advance:
            for partition in receipt.partitions:
                if partition.error is None:
                    ends = await bounds(source, *partition.name)
                    size = partition.salvage.bytes
                    partition.whole = await records_seen(source, *partition.name, *ends, progress=advance, size=size)
                    every = await count_records(source, *partition.name, *ends)
                    partition.whole.aborted = every - partition.whole.digest.records


def _name(each: PartitionDirectory) -> TopicPartition:
    assert each.topic is not None
    assert each.partition is not None
    return TopicPartition(each.topic, each.partition)


async def _produce(target: Client, folder: Path, receipt: RescueReceipt, options: RescueOptions) -> None:
    """Copy the topics to a cluster, then the offsets of groups."""
    topics: dict[str, list[RescuedPartition]] = {}
    for each in receipt.partitions:
        if each.name.topic != OFFSETS_TOPIC and each.error is None:
            topics.setdefault(each.name.topic, []).append(each)
    found = discover([str(folder)])
    groups, damaged = stored_groups(each for each in found if each.topic == OFFSETS_TOPIC)
    receipt.groups_left_out |= dict.fromkeys(damaged, "not understood")
    staged: dict[str, list[PartitionDirectory]] = {name: [] for name in topics}
    for partition in found:
        if partition.topic in staged:
            staged[partition.topic].append(partition)
    await produce_all(target, topics, staged, groups, receipt, options.steps)


def _close(target: Path, receipt: RescueReceipt) -> None:
    """Delete files from the directory that only the work needed. Group offsets in it are unchanged."""
    groups, damaged = stored_groups(each for each in discover([str(target)]) if each.topic == OFFSETS_TOPIC)
    receipt.kept_groups = list(groups)
    receipt.groups_left_out |= dict.fromkeys(damaged, "not understood")
    for stray in target.glob("*.jsonl"):
        stray.unlink()
    sync_directory(target)
    sync_directory(target.parent)
