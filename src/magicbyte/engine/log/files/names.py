"""Names in a log directory: valid topics, and the meaning of a folder's or file's name.

One table for creating, loading, adopting and reading. A broker does not load a topic that it may not create. Otherwise
records could be accepted and be gone after the next start. Source: Kafka's Topic, LocalLog and LogManager.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from magicbyte.engine.errors import InvalidRequestError, InvalidTopicError
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.log.files.checkpoints import LEADER_EPOCHS, MESSAGE_DIALECT, PARTITION_METADATA
from magicbyte.engine.ports import TopicPartition

QUARANTINE: Final = "quarantine"
"""The folder of a log directory that keeps truncated or replaced bytes."""
MOST_PARTITIONS: Final = 10_000
"""The most partitions of a topic, and of all topics of one request: a small request could create very many."""
LARGEST_PARTITION: Final = 2**31 - 1
LARGEST_OFFSET: Final = 2**63 - 1
MAX_RELATIVE: Final = 2**31 - 1
"""The largest offset in a segment, and position in its file, relative to its start: indexes hold an int32."""
LONGEST_FILE_NAME: Final = 255

_LONGEST_TOPIC: Final = 249
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_FOLDER: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})(?:\.[0-9a-f]{32}-(?P<state>delete|future|stray))?"
)
_OFFSET_FILE: Final = re.compile(
    r"(?P<offset>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.emindex|\.snapshot)"
    r"(?P<suffix>\.deleted|\.cleaned|\.swap|)"
)
_TEXTS: Final = (LEADER_EPOCHS, PARTITION_METADATA, MESSAGE_DIALECT)
NOT_OURS: Final = (QUARANTINE, "lost+found")
"""Folders of a log directory that hold no partition."""


class FolderState(enum.Enum):
    """The purpose of a partition folder, by its name."""

    CURRENT = "current"
    DELETE = "delete"  # being deleted: brokers no longer read it
    FUTURE = "future"  # being copied to another log directory
    STRAY = "stray"  # not assigned to this broker


class FolderName(NamedTuple):
    """A parsed folder name."""

    state: FolderState
    key: TopicPartition


class OffsetFile(NamedTuple):
    """A parsed file name that begins with an offset. `suffix`: that of unfinished work, or empty."""

    offset: int
    kind: str
    suffix: str


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError unless a topic can have this name, also in the names of its folders."""
    if name in ("", ".", ".."):
        raise InvalidTopicError(f"{name!r} is not a valid topic name")
    if len(name) > _LONGEST_TOPIC:
        raise InvalidTopicError(f"expected a name of up to {_LONGEST_TOPIC} characters, found {len(name)}")
    if not _TOPIC.fullmatch(name):
        raise InvalidTopicError(f"{name!r}: expected letters, digits, '.', '_' and '-'")


def check_new_topic(name: str) -> None:
    """Raise unless a topic of this name may be created: InvalidTopicError, or InvalidRequestError for a reserved one.

    InvalidRequestError and its text are those of Kafka 4.
    """
    check_topic_name(name)
    if is_reserved(name):
        raise InvalidRequestError(f"Creation of internal topic {name} is prohibited.")


def is_reserved(topic: str) -> bool:
    """Return whether the name is reserved: no broker's topic has it, so the folder belongs to another program."""
    return topic == CLUSTER_METADATA


def folder_name(path: str) -> FolderName | None:
    """Return the last part of a path, parsed as the name of a partition folder; None for other names."""
    found = _FOLDER.fullmatch(path.rstrip("/").rpartition("/")[2])
    if found is None or int(found["partition"]) > LARGEST_PARTITION:
        return None
    state = FolderState(found["state"]) if found["state"] else FolderState.CURRENT
    return FolderName(state, TopicPartition(found["topic"], int(found["partition"])))


def lone_segment(name: str) -> TopicPartition | None:
    """Return the partition of a segment outside of its folder, called `TOPIC-N.log`; None for other names."""
    found = folder_name(name.removesuffix(".log")) if name.endswith(".log") else None
    return found.key if found is not None and found.state is FolderState.CURRENT else None


def why_not_loaded(name: str) -> str | None:
    """Return why a broker does not load the folder of this name as a partition's log; None if it does.

    The empty string means that the folder is known not to be a partition's, and needs no message.
    """
    if name in NOT_OURS or (name.startswith(".") and folder_name(name) is None):
        return ""
    folder = folder_name(name)
    if folder is None:
        return "no partition has a folder of this name (expected TOPIC-N)"
    try:
        check_topic_name(folder.key.topic)
    except InvalidTopicError as error:
        return f"no topic has this name: {error}"
    match folder.state:
        case FolderState.DELETE:
            return ""
        case FolderState.FUTURE:
            return "a copy that a broker had not finished"
        case FolderState.STRAY:
            return "a partition that another broker found not to be its own"
        case FolderState.CURRENT:
            if str(folder.key) != name:
                return f"the partition's folder is called {folder.key}"
    return f"{folder.key.topic} is the quorum's own" if is_reserved(folder.key.topic) else None


def offset_file(name: str) -> OffsetFile | None:
    """Return the parsed name of a log's file; None if it does not begin with an offset that a log can have."""
    found = _OFFSET_FILE.fullmatch(name)
    if found is None or int(found["offset"]) > LARGEST_OFFSET:
        return None
    return OffsetFile(int(found["offset"]), found["kind"], found["suffix"])


def is_named_by_offset(name: str) -> bool:
    """Return whether a name begins with an offset, as those of a log's files do."""
    return _OFFSET_FILE.match(name) is not None


def is_log_file(name: str) -> bool:
    """Return whether a partition's log reads or writes a file of this name in its folder."""
    plain = name.removesuffix(".tmp")
    return plain in _TEXTS or _OFFSET_FILE.fullmatch(plain) is not None
