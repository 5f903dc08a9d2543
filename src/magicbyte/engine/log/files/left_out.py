"""Tell users' logs from the other folders of a log directory: the quorum's own, strays, unfinished copies, deletions.

Every reader of folders uses this rule, so that none counts or carries what another one leaves out. Source: Kafka's
LogManager, and Topic for the quorum's topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.log.files.names import FolderState, is_reserved
from magicbyte.engine.ports import TopicPartition

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory

QUORUMS_OWN: Final = "the quorum's own log: records of a KRaft cluster, of no topic"

_BY_STATE: Final = {
    FolderState.DELETE: "a deleted partition that the broker had not removed",
    FolderState.FUTURE: "a copy that a broker had not finished",
    FolderState.STRAY: "a partition that a broker found not to be its own",
}


class LeftOut(NamedTuple):
    """A folder that is not a user's log. `is_only_copy`: records of a user may be in it and in no other folder."""

    partition: PartitionDirectory
    why: str
    is_only_copy: bool


def is_quorums_own(topic: str | None) -> bool:
    """Return whether this is the topic of a KRaft quorum. No cluster lets a client create or write it."""
    return topic is not None and is_reserved(topic)


def in_use(
    partitions: Iterable[PartitionDirectory], topics: Collection[str] = (), *, quorum: bool = False
) -> list[PartitionDirectory]:
    """Return the users' logs among `partitions`.

    A log of the quorum is included if `topics` names it, or with `quorum`, for checks of files. A folder whose own path
    was given (it has no `log_directory`) is always included.
    """
    return [each for each in partitions if why_left_out(each, topics, quorum=quorum) is None]


def left_out(
    partitions: Iterable[PartitionDirectory], topics: Collection[str] = (), *, quorum: bool = False
) -> list[LeftOut]:
    """Return the folders that `in_use` leaves out, with the reason for each.

    With `topics`, only folders of these topics.
    """
    found = list(partitions)
    used = {_key(each) for each in in_use(found, topics, quorum=quorum)}
    folders = []
    for each in found:
        why = why_left_out(each, topics, quorum=quorum)
        if why is not None and (not topics or each.topic in topics):
            may_be_needed = each.state in (FolderState.FUTURE, FolderState.STRAY) and not is_quorums_own(each.topic)
            folders.append(LeftOut(each, why, may_be_needed and _key(each) not in used))
    return folders


def why_left_out(partition: PartitionDirectory, topics: Collection[str] = (), *, quorum: bool = False) -> str | None:
    """Return why a folder is not a user's log; None if it is one. Arguments as in `in_use`."""
    if partition.log_directory is None:
        return None
    if partition.state is not FolderState.CURRENT:
        return _BY_STATE[partition.state]
    is_wanted = quorum or partition.topic in topics
    return QUORUMS_OWN if is_quorums_own(partition.topic) and not is_wanted else None


def _key(partition: PartitionDirectory) -> TopicPartition | None:
    if partition.topic is None or partition.partition is None:
        return None
    return TopicPartition(partition.topic, partition.partition)
