"""The metadata of a cluster as the directory of a KRaft node, on which a real Kafka starts.

The node is the only voter of its quorum. Its metadata log begins with a snapshot. With logs their folders are copied
beside it, each with its topic's id, because Kafka renames a folder without it to -stray, and makes an empty folder for
a partition that has none: both are refused here. Nothing that is read is changed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magicbyte.engine.cluster.features import METADATA_VERSION, initial_levels
from magicbyte.engine.cluster.metadata_batches import QuorumVoter, snapshot, voters_of
from magicbyte.engine.cluster.metadata_fold import records_of
from magicbyte.engine.cluster.quorum_image import TakingOver, quorum_image
from magicbyte.engine.errors import CorruptRecordError, InvalidRequestError, LogDirectoryError
from magicbyte.engine.internal_topics import CLUSTER_METADATA, INTERNAL
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    QUORUM_STATE,
    CleanShutdown,
    LeaderEpoch,
    MetaProperties,
    PartitionMetadata,
    format_clean_shutdown,
    format_leader_epochs,
    format_meta_properties,
    format_partition_metadata,
    format_quorum_state,
    parse_meta_properties,
    parse_quorum_state,
)
from magicbyte.engine.log.files.directory import LOG, discover, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, file_system, make_directory, put_file
from magicbyte.engine.log.files.left_out import in_use
from magicbyte.engine.log.files.outputs import refuse_overlap, refuse_used, whole_folder
from magicbyte.engine.log.files.reader import MAX_OFFSET, read_chunks
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import id_text
from magicbyte.engine.records.layout import PARTITION_LEADER_EPOCH, Dialect
from magicbyte.engine.sentinels import NO_EPOCH
from magicbyte.tools.offline.copies import copied_logs
from magicbyte.tools.offline.quorum_format import new_id, parse_id

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.releases import Release
    from magicbyte.tools.offline.quorum import DescribedCluster

T = TypeVar("T")

_READ_ONLY: Final = 0o400  # the mode of Kafka's snapshots
_FIRST_EPOCH: Final = 1


class ControllerListener(NamedTuple):
    """Where a controller listens: the name of the listener, host and port."""

    name: str
    host: str
    port: int


class ExportOptions(NamedTuple):
    """How a directory is written.

    `node_id`, `cluster_id`: None for those of the source. `release`: that starts on it. `level`: of
    `metadata.version`, None for that of the source, or of the release. `listener`: the quorum is dynamic, and this
    node its first voter. `logs`: log directories whose partitions are copied; several only if it `repairs`.
    `is_alone`: the node becomes the only replica of everything. `not_kafkas`: settings of topics that Kafka does
    not have. `repairs`: a damaged source is taken, and folders that Kafka would rename are left out.
    """

    release: Release
    node_id: int | None = None
    cluster_id: uuid.UUID | None = None
    level: int | None = None
    listener: ControllerListener | None = None
    logs: Sequence[Path] = ()
    is_alone: bool = False
    not_kafkas: Collection[str] = ()
    repairs: bool = False


class ExportedOwner(NamedTuple):
    """Whose directory is written: the node, the directory's own id, the cluster."""

    node_id: int
    directory_id: uuid.UUID
    cluster_id: str


class MetadataStart(NamedTuple):
    """Where a metadata log begins: the offset after its snapshot, the epoch of its last record, the last epoch."""

    end: int
    epoch: int
    term: int


class ExportedNode(NamedTuple):
    """A directory that was written: of which node and cluster, up to which offset, and what it does not have."""

    out: Path
    node_id: int
    cluster_id: str
    snapshot: str
    image: ClusterImage
    copied: Sequence[TopicPartition]
    left_out: Sequence[str]


def export_to_kraft(source: DescribedCluster, out: Path, options: ExportOptions, now_ms: int) -> ExportedNode:
    """Write the directory; it has its name when it is whole and durable.

    Raises LogDirectoryError for what cannot be taken over: a source that cannot be read as a whole, a folder without
    its record or a record without its folder, a topic id that differs, a level above that of the release, an `out` that
    is in use, or an input.
    """
    inputs = [each for each in (_directory(source), *options.logs) if each is not None]
    refuse_overlap(out, inputs)
    refuse_used(out)
    left_out = list[str]()
    owner = _read(lambda: _owner(source), options, left_out)
    node_id = _chosen("node id", options.node_id, None if owner is None else owner.node_id)
    logs = [each for path in options.logs for each in _logs(path)]
    if options.repairs:
        logs = _without_strays(source.image, node_id, logs, left_out)
    image, dropped, directory_id = _image(source, owner, node_id, logs, options)
    left_out += dropped
    _refuse_level(source, image, options)
    cluster_id = _cluster_id(source, owner, options)
    term = _read(lambda: _last_term(source), options, left_out) or 0
    end, epoch = _end(source, image)
    start = MetadataStart(end, epoch, max(epoch, term))
    node = ExportedOwner(node_id, directory_id, cluster_id)
    if out.exists():
        out.rmdir()  # it is empty, and gets its name at once, whole
    with _folder(out, logs, options) as folder:
        put_metadata(folder, image, node, start, options, now_ms)
        for each in logs:
            _give_id(folder / Path(each.path).name, image, each)
    return ExportedNode(
        out, node_id, cluster_id, _snapshot_name(end, epoch), image, [_key(each) for each in logs], left_out
    )


@contextlib.contextmanager
def _folder(out: Path, logs: Sequence[PartitionDirectory], options: ExportOptions) -> Iterator[Path]:
    if logs:
        with copied_logs(logs, out, was_killed=options.repairs) as copied:
            yield copied.folder
    else:
        with whole_folder(out, is_durable=True) as folder:
            yield folder


# ---- the source


def _refuse_level(source: DescribedCluster, image: ClusterImage, options: ExportOptions) -> None:
    """Raise LogDirectoryError for a level that the release does not have: it would not start."""
    level, release = image.features[METADATA_VERSION], options.release
    if level > (most := release.metadata_version or 0):
        what = f"{METADATA_VERSION} {level}"
        raise LogDirectoryError(f"{source.path}: {what}: Kafka {release.version} has up to {most}, and would not start")


def _directory(source: DescribedCluster) -> Path | None:
    """Return the log directory that the source is, None for a ZooKeeper."""
    if "://" in source.path:
        return None
    directory = Path(source.path)
    return directory.parent if directory.name == f"{CLUSTER_METADATA}-0" else directory


def _owner(source: DescribedCluster) -> MetaProperties | None:
    """Return whose directory the source is; None for a ZooKeeper, and one without a `meta.properties`."""
    if (directory := _directory(source)) is None:
        return None
    files, inside = file_system(str(directory))
    with contextlib.suppress(FileNotFoundError):
        return parse_file(files, f"{inside}/{META_PROPERTIES}", parse_meta_properties)
    return None


def _read(read: Callable[[], T], options: ExportOptions, left_out: list[str]) -> T | None:
    """Return what a file of the source says; None for a damaged one, if that is to be repaired."""
    try:
        return read()
    except CorruptRecordError as error:
        if not options.repairs:
            raise
        left_out.append(f"damaged file: {error}")
        return None


def _chosen(what: str, given: int | None, found: int | None) -> int:
    chosen = found if given is None else given
    if chosen is None:
        raise LogDirectoryError(f"the source names no {what}: give one")
    return chosen


def _cluster_id(source: DescribedCluster, owner: MetaProperties | None, options: ExportOptions) -> str:
    if options.cluster_id is not None:
        return id_text(options.cluster_id)
    return source.image.cluster_id or (None if owner is None else owner.cluster_id) or id_text(new_id())


def _end(source: DescribedCluster, image: ClusterImage) -> tuple[int, int]:
    """Return where the metadata log begins: after the last record of the source, in the epoch of that record.

    The records of a tree count from 0 on.
    """
    if source.end:
        return source.end, source.epoch
    return sum(1 for _ in records_of(image)), _FIRST_EPOCH


def _last_term(source: DescribedCluster) -> int:
    """Return the epoch that the source's node knew last, which may be later than its last record."""
    path = f"{source.path}/{QUORUM_STATE}"
    if source.end is None or not Path(path).exists():
        return 0
    files, inside = file_system(path)
    found = parse_file(files, inside, parse_quorum_state).get("leaderEpoch", 0)
    return found if isinstance(found, int) else 0


def _logs(path: Path) -> list[PartitionDirectory]:
    found = in_use(discover([str(path)]))
    for each in found:
        if each.dialect is not Dialect.KAFKA:
            raise LogDirectoryError(f"{each.path}: it holds enriched sets, which Kafka cannot read: convert it first")
    return found


def _key(folder: PartitionDirectory) -> TopicPartition:
    assert folder.topic is not None
    assert folder.partition is not None
    return TopicPartition(folder.topic, folder.partition)


def _image(
    source: DescribedCluster,
    owner: MetaProperties | None,
    node_id: int,
    logs: Sequence[PartitionDirectory],
    options: ExportOptions,
) -> tuple[ClusterImage, list[str], uuid.UUID]:
    """Return the image that the node takes over, the parts that are left out, and the id of the directory."""
    is_quorum = METADATA_VERSION in source.image.features
    known = None if owner is None or owner.node_id != node_id else owner.directory_id
    directory_id = new_id() if known is None else parse_id(known)
    levels = None
    if not is_quorum or options.level is not None:
        levels = initial_levels(options.level or options.release.metadata_version or 0, options.release, {})
    topic_ids = dict[str, uuid.UUID]()
    for each in logs:
        found = _read_id(each) if options.repairs else _stored_id(each)
        if found is not None and found != topic_ids.setdefault(_key(each).topic, found):
            raise LogDirectoryError(f"{each.path}: it has another topic id than other folders of its topic")
    taking = TakingOver(
        node_id=node_id,
        directory_id=directory_id,
        levels=levels,
        new_id=new_id,
        is_alone=options.is_alone,
        epochs={_key(each): _last_epoch(each, repairs=options.repairs) for each in logs},
        topic_ids=topic_ids,
        not_kafkas=options.not_kafkas,
    )
    try:
        image, left_out = quorum_image(source.image, taking)
    except InvalidRequestError as error:
        raise LogDirectoryError(f"{source.path}: {error}") from error
    if options.logs and not options.repairs:
        empty = _refuse_strays(image, node_id, logs, options.logs[0], is_lazy=not is_quorum)
        left_out += [f"folder of {key}: it has no records yet" for key in empty]
    return image, left_out, directory_id


def _refuse_strays(
    image: ClusterImage, node_id: int, logs: Sequence[PartitionDirectory], path: Path, *, is_lazy: bool
) -> list[TopicPartition]:
    """Raise LogDirectoryError for a folder that Kafka would rename, and a partition that it would make empty.

    `is_lazy`: brokers of the source make folders of internal topics at their first record. Returns those without one.
    """
    there = {_key(each): each for each in logs}
    for key, folder in there.items():
        partition = image.partition(key)
        if partition is None or node_id not in partition.replicas:
            raise LogDirectoryError(
                f"{folder.path}: the metadata do not give partition {key} to node {node_id}: "
                "Kafka would rename its folder to -stray"
            )
    empty = list(_without_folders(image, node_id, there))
    for key in empty:
        if not (is_lazy and key.topic in INTERNAL):
            raise LogDirectoryError(f"{path}: no folder of {key}: Kafka would make an empty one")
    return empty


def _without_folders(image: ClusterImage, node_id: int, there: Collection[TopicPartition]) -> Iterator[TopicPartition]:
    """Yield the partitions of a node that have no folder."""
    for name, topic in image.topics.items():
        for number, partition in enumerate(topic.partitions):
            if node_id in partition.replicas and (key := TopicPartition(name, number)) not in there:
                yield key


def _without_strays(
    image: ClusterImage, node_id: int, logs: Sequence[PartitionDirectory], left_out: list[str]
) -> list[PartitionDirectory]:
    """Return the folders that the metadata give to a node; say which ones are others', and which are missing."""
    kept = []
    for folder in logs:
        key = _key(folder)
        partition, found = image.partition(key), _read_id(folder)
        if partition is None or node_id not in partition.replicas:
            left_out.append(f"folder {folder.path}: the metadata do not give it to node {node_id}")
        elif found is not None and found != image.topics[key.topic].id:
            left_out.append(f"folder {folder.path}: it is of another topic of this name: {id_text(found)}")
        else:
            kept.append(folder)
    missing = _without_folders(image, node_id, [_key(each) for each in kept])
    left_out += [f"folder of {key}: there is none, and Kafka makes an empty one" for key in missing]
    return kept


def _stored_id(folder: PartitionDirectory) -> uuid.UUID | None:
    metadata = folder.metadata()
    return None if metadata is None else metadata.topic_id


def _read_id(folder: PartitionDirectory) -> uuid.UUID | None:
    """Return the topic id in a folder; None without one, and for a damaged one, which is written again."""
    with contextlib.suppress(CorruptRecordError):
        return _stored_id(folder)
    return None


def _last_epoch(folder: PartitionDirectory, *, repairs: bool) -> int:
    """Return the latest leader epoch in a log, by its batches and its file of epochs.

    Damage is an error, but not if it is to be repaired: Kafka recovers the log.
    """
    damage = list[CorruptRecordError]()

    def note(error: CorruptRecordError) -> None:
        damage.append(error)
        if not repairs:
            raise error

    latest = NO_EPOCH
    try:
        latest = max((each.epoch for each in folder.leader_epochs() or []), default=NO_EPOCH)
    except CorruptRecordError as error:
        note(error)
    for segment in reversed(folder.segments):
        if not segment.log.size:
            continue
        start = 0
        try:
            index = folder.offset_index(segment)
            start = 0 if index is None else index.floor(MAX_OFFSET)[1]
        except CorruptRecordError as error:
            note(error)
        with folder.files.open(segment.log.path) as file:
            for chunk in read_chunks(file, start=start, on_damage=note):
                batches = [row for row in range(len(chunk.table)) if chunk.table.magic[row] == 2]
                latest = max([latest, *chunk.table.gather(PARTITION_LEADER_EPOCH, batches).tolist()])
        break
    return latest


# ---- the directory


def _snapshot_name(end: int, epoch: int) -> str:
    return f"{CLUSTER_METADATA}-0/{end:020}-{epoch:010}.checkpoint"


def put_metadata(
    folder: Path, image: ClusterImage, owner: ExportedOwner, start: MetadataStart, options: ExportOptions, now_ms: int
) -> None:
    """Put the metadata log of a node into its log directory, and `meta.properties` last. Each file is durable.

    The log continues a snapshot, and has no record yet. A mark of a clean stop gets the form of the release.
    """
    is_dynamic = options.listener is not None
    controls = []
    if options.listener is not None:
        controls = voters_of([QuorumVoter(owner.node_id, owner.directory_id, *options.listener)])
    batches = snapshot(records_of(image), epoch=start.epoch, written_ms=now_ms, contained_ms=now_ms, controls=controls)
    log, name = f"{CLUSTER_METADATA}-0", _snapshot_name(start.end, start.epoch)
    directory_id = id_text(owner.directory_id) if options.release.has_directory_ids else None
    contents = {
        f"{log}/{start.end:020}{LOG}": b"",
        name: b"".join(batches),
        f"{log}/{QUORUM_STATE}": format_quorum_state(start.term, None if is_dynamic else [owner.node_id]),
        f"{log}/{LEADER_EPOCHS}": format_leader_epochs([LeaderEpoch(start.epoch, start.end)]),
        f"{log}/{PARTITION_METADATA}": format_partition_metadata(PartitionMetadata(0, uuid.UUID(int=1))),
    }
    if (folder / CLEAN_SHUTDOWN).exists():
        known = image.brokers.get(owner.node_id)
        epoch = -1 if known is None else known.epoch  # the same as in the metadata, else Kafka 4 takes it for unclean
        marker = CleanShutdown(0, epoch) if options.release.names_broker_epoch else CleanShutdown(None, None)
        contents[CLEAN_SHUTDOWN] = format_clean_shutdown(marker)
    contents[META_PROPERTIES] = format_meta_properties(owner.node_id, owner.cluster_id, directory_id)
    make_directory(folder / log)
    for file, content in contents.items():
        put_file(LocalFiles(), str(folder / file), content)
    (folder / name).chmod(_READ_ONLY)


def _give_id(folder: Path, image: ClusterImage, source: PartitionDirectory) -> None:
    """Write the id of its topic into a copied folder that has none, or none that can be read."""
    topic_id = image.topics[_key(source).topic].id
    if topic_id is not None and _read_id(source) is None:
        put_file(
            LocalFiles(), str(folder / PARTITION_METADATA), format_partition_metadata(PartitionMetadata(0, topic_id))
        )
