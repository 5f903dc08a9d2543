"""What Kafka would do with the log directories of a KRaft node at its next start.

A node that does not start says why in its log. It hardly says that it renames folders, or makes empty ones. A folder
without the right topic id, or that no record names, becomes a stray. A partition without its folder gets an empty one.
A metadata log that does not reach back to a complete snapshot counts as empty. Nothing is changed here. Source: Kafka's
MetaPropertiesEnsemble, KafkaRaftClient, LogManager and BrokerMetadataPublisher; probed on 3.9.1, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    QUORUM_STATE,
    MetaProperties,
    parse_leader_epochs,
    parse_meta_properties,
    parse_partition_metadata,
    parse_quorum_state,
)
from magicbyte.engine.log.files.directory import PartitionDirectory, parse_file, survey
from magicbyte.engine.log.files.filesystem import file_system, is_locked
from magicbyte.engine.log.files.left_out import is_quorums_own, left_out
from magicbyte.engine.log.files.names import FolderState
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.fields import id_text
from magicbyte.tools.offline.findings import NOTHING, Finding, Severity, of_left_out
from magicbyte.tools.offline.quorum import DescribedCluster, bootstrap_of, read_quorum

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import PartitionImage

_STATE_VERSIONS: Final = (0, 1)
_RESERVED: Final = 100  # directory ids up to this number are no directories: unassigned, lost, migrating
_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

NO_START: Final = "the node does not start"
STRAY: Final = "Kafka renames the folder to -stray, and clients find an empty partition without an error"
EMPTY: Final = "Kafka makes an empty folder at its start, and clients find an empty partition without an error"
AS_NEW: Final = "Kafka 4 starts as an empty cluster and renames the folder of each topic to -stray"


OF_ONE_NODE: Final = ("node.id", "cluster.id")
"""What all log directories of a node have in common, as in findings."""


class _OwnedDirectory(NamedTuple):
    path: str
    owner: MetaProperties | None


class NodeCheck(NamedTuple):
    """The log directories of a node, what they say of its cluster (None: that cannot be read), and the findings."""

    paths: Sequence[str]
    cluster: DescribedCluster | None
    findings: Sequence[Finding]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that keeps a node from starting or hides a folder. Logs are not read."""
        return all(each.severity is _NOTE for each in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return what was checked, and the findings."""
        end = None if self.cluster is None else self.cluster.end
        return {"paths": list(self.paths), "endOffset": end, "findings": [each.to_json() for each in self.findings]}


def check_node(paths: Sequence[str]) -> NodeCheck:
    """Check the log directories of one stopped node, or a copy of them: all of them, as it has them in `log.dirs`.

    Raises LogDirectoryError for a path that is no folder.
    """
    directories, findings = list[_OwnedDirectory](), list[Finding]()
    folders = list[PartitionDirectory]()
    for path in paths:
        inside = _partitions(path)
        directory, of_owner = _owner(path, has_logs=bool(inside))
        directories.append(directory)
        findings += of_owner
        folders += inside
    findings += _of_one_node(directories)
    users = [each for each in folders if not is_quorums_own(each.topic) and each.state is FolderState.CURRENT]
    cluster, of_metadata = _metadata(paths, folders, has_users=bool(users))
    findings += of_metadata
    node_id = next((each.owner.node_id for each in directories if each.owner is not None), None)
    if cluster is not None and node_id is not None:
        findings += _folders(cluster, node_id, directories, users)
    findings += [of_left_out(each) for each in left_out(folders) if not is_quorums_own(each.partition.topic)]
    return NodeCheck(paths, cluster, findings)


def _partitions(path: str) -> Sequence[PartitionDirectory]:
    try:
        return survey(path).partitions
    except LogDirectoryError:
        files, inside = file_system(path)
        if not files.entry(inside).is_directory:
            raise
        return ()  # an empty one is a directory, too


# ---- whose directories they are


def _owner(path: str, *, has_logs: bool) -> tuple[_OwnedDirectory, list[Finding]]:
    files, inside = file_system(path)
    file = f"{inside}/{META_PROPERTIES}"
    try:
        owner = parse_file(files, file, parse_meta_properties)
    except FileNotFoundError:
        why = f'{NO_START}: "No readable meta.properties files found"; write one with cluster.id and node.id'
        return _OwnedDirectory(inside, None), [Finding(_ERROR, file, "owner", "a node's", "none", why)]
    except CorruptRecordError as error:
        return _OwnedDirectory(inside, None), [_damage(error, "write it again, with cluster.id and node.id")]
    findings = list[Finding]()
    if owner.version != 1:
        found, why = f"version {owner.version}", "a broker of ZooKeeper's: migrate its metadata first"
        findings.append(Finding(_ERROR, file, "owner", "version 1, of a KRaft node", found, why))
    for name, value in (("cluster.id", owner.cluster_id), ("node.id", owner.node_id)):
        if value is None and owner.version == 1:
            findings.append(Finding(_ERROR, file, name, "one", "none", f"{NO_START}: add it"))
    if is_locked(Path(path) / LOCK):
        why = "stop it, or check a copy: what it is writing looks unfinished"
        findings.append(Finding(_NOTE, inside, LOCK, "a stopped node", "a running one", why))
    elif has_logs and not files_have(path, CLEAN_SHUTDOWN):
        why = "Kafka reads segments above the recovery point again, and loses nothing"
        findings.append(Finding(_NOTE, inside, "mark of a clean stop", CLEAN_SHUTDOWN, "none", why))
    return _OwnedDirectory(inside, owner), findings


def files_have(path: str, name: str) -> bool:
    """Return whether a folder has a file of this name."""
    files, inside = file_system(path)
    return any(each.name == name for each in files.list(inside))


def _of_one_node(directories: Sequence[_OwnedDirectory]) -> Iterator[Finding]:
    """Yield what several directories of one node must not have: other owners, or the same directory twice."""
    known = [(each.path, each.owner) for each in directories if each.owner is not None]
    for path, owner in known[1:]:
        first_path, first = known[0]
        owners = ((owner.node_id, first.node_id), (owner.cluster_id, first.cluster_id))
        for name, (mine, other) in zip(OF_ONE_NODE, owners, strict=True):
            if mine != other:
                why = f"{NO_START}: check the directories of each node by themselves"
                yield Finding(_ERROR, path, name, f"{other}, as in {first_path}", str(mine), why)
    given = Counter(owner.directory_id for _, owner in known if owner.directory_id is not None)
    for path, owner in known:
        if owner.directory_id is not None and given[owner.directory_id] > 1:
            why = f"{NO_START}: a copy of a directory needs a directory.id of its own"
            yield Finding(_ERROR, path, "directory.id", "one for each directory", owner.directory_id, why)


# ---- the metadata log


def _metadata(
    paths: Sequence[str], folders: Sequence[PartitionDirectory], *, has_users: bool
) -> tuple[DescribedCluster | None, list[Finding]]:
    """Return what the metadata log says, and what is wrong with it."""
    logs = [each for each in folders if each.topic == CLUSTER_METADATA and each.state is FolderState.CURRENT]
    if len(logs) > 1:
        why = "keep the one in metadata.log.dir, or in the first directory of log.dirs"
        return None, [Finding(_ERROR, logs[1].path, "metadata log", "one", str(len(logs)), why)]
    if not logs:
        is_formatted = any(bootstrap_of(each)[1] is not None for each in paths)
        return None, [_no_log(paths[0], is_formatted=is_formatted, has_users=has_users)]
    folder = logs[0]
    try:
        cluster = read_quorum(folder)
    except LogDirectoryError as error:
        why = f"{AS_NEW}: put the snapshot back, or take the directory of another node"
        return None, [Finding(_ERROR, folder.path, "snapshot", "a complete one", str(error), why)]
    except CorruptRecordError as error:
        return None, [_damage(error, f"{NO_START}: take the directory of another node")]
    findings = [
        Finding(
            _WARNING if note.is_damage else _NOTE,
            folder.path,
            "metadata log",
            "one that is read to its end",
            note.text,
            NOTHING,
        )
        for note in cluster.notes
    ]
    if "metadata.version" not in cluster.image.features:
        why = f"{NO_START}: format the directory"
        findings.append(Finding(_ERROR, folder.path, "metadata.version", "a level", "none", why))
    findings += _quorum_state(folder)
    return cluster, findings


def _no_log(path: str, *, is_formatted: bool, has_users: bool) -> Finding:
    if not has_users:
        if is_formatted:
            return Finding(_NOTE, path, "metadata log", "records", "none: no node has started on it yet", NOTHING)
        why = f"{NO_START}: format the directory"
        return Finding(_ERROR, path, "metadata log", f"{CLUSTER_METADATA}-0", "none", why)
    why = f"{AS_NEW}: put {CLUSTER_METADATA}-0 back, or take that of another node"
    return Finding(_ERROR, path, "metadata log", f"{CLUSTER_METADATA}-0", "none, beside folders of topics", why)


def _quorum_state(folder: PartitionDirectory) -> Iterator[Finding]:
    path = f"{folder.path}/{QUORUM_STATE}"
    try:
        state = parse_file(folder.files, path, parse_quorum_state)
    except FileNotFoundError:
        yield Finding(_NOTE, path, "state of the quorum", "one", "none", "Kafka takes the epoch of the log, and warns")
        return
    except CorruptRecordError as error:
        yield _damage(error, "move it away: Kafka takes the epoch of the log")
        return
    if state["data_version"] not in _STATE_VERSIONS:
        expected = " or ".join(map(str, _STATE_VERSIONS))
        why = f"{NO_START}: a later release wrote it"
        yield Finding(_ERROR, path, "data_version", expected, str(state["data_version"]), why)


def _damage(error: CorruptRecordError, advice: str) -> Finding:
    return Finding(_ERROR, error.path or "", error.what, str(error.expected), str(error.found), advice,
                   position=error.position, offsets=error.offsets)  # fmt: skip


# ---- the folders of topics


def _folders(
    cluster: DescribedCluster, node_id: int, directories: Sequence[_OwnedDirectory], users: Sequence[PartitionDirectory]
) -> Iterator[Finding]:
    image, there = cluster.image, set[TopicPartition]()
    own = {each.owner.directory_id for each in directories if each.owner is not None and each.owner.directory_id}
    for folder in users:
        if folder.topic is None or folder.partition is None:
            continue
        key = TopicPartition(folder.topic, folder.partition)
        there.add(key)
        partition = image.partition(key)
        if partition is None or node_id not in partition.replicas:
            found = "none" if partition is None else f"replicas {','.join(map(str, partition.replicas))}"
            yield Finding(_ERROR, folder.path, "partition", f"a record that gives it to node {node_id}", found, STRAY)
            continue
        yield from _topic_id(folder, image.topics[key.topic].id)
        yield from _epochs(folder, partition)
        yield from _assigned(folder, partition, node_id, own)
    if node_id not in image.brokers:
        return
    for name, topic in image.topics.items():
        for number, partition in enumerate(topic.partitions):
            key = TopicPartition(name, number)
            if node_id in partition.replicas and key not in there:
                yield Finding(_ERROR, directories[0].path, f"folder of {key}", "one", "none", EMPTY)


def _topic_id(folder: PartitionDirectory, expected: uuid.UUID | None) -> Iterator[Finding]:
    text = "none" if expected is None else id_text(expected)
    path = f"{folder.path}/{PARTITION_METADATA}"
    if PARTITION_METADATA not in folder.texts:
        yield Finding(_ERROR, path, "topic id", text, "none", STRAY)
        return
    try:
        found = parse_file(folder.files, path, parse_partition_metadata)
    except CorruptRecordError as error:
        yield _damage(error, STRAY)
        return
    if found.topic_id != expected:
        yield Finding(_ERROR, path, "topic id", text, found.topic_id_text, STRAY)


def _epochs(folder: PartitionDirectory, partition: PartitionImage) -> Iterator[Finding]:
    if partition.known is None or LEADER_EPOCHS not in folder.texts:
        return
    path, epoch = f"{folder.path}/{LEADER_EPOCHS}", partition.known.state.leader_epoch
    try:
        known = parse_file(folder.files, path, parse_leader_epochs)
    except CorruptRecordError as error:
        yield _damage(error, "delete it: Kafka makes it of the log")
        return
    if known and known[-1].epoch > epoch:
        why = "Kafka forgets the epochs of the log: followers may keep other records"
        yield Finding(_WARNING, path, "last epoch", f"up to {epoch}, by the metadata", str(known[-1].epoch), why)


def _assigned(
    folder: PartitionDirectory, partition: PartitionImage, node_id: int, own: Collection[str]
) -> Iterator[Finding]:
    """Yield a directory id that is not this node's: a race with the registration decides who leads."""
    if partition.quorum is None or len(partition.quorum.directories) != len(partition.replicas) or not own:
        return
    directory = partition.quorum.directories[partition.replicas.index(node_id)]
    if directory.int > _RESERVED and id_text(directory) not in own:
        why = "Kafka assigns it again; 3.9 may leave the partition without a leader until a restart"
        yield Finding(_WARNING, folder.path, "directory id", "that of a directory of the node", id_text(directory), why)
