"""Parse and format the text files of log directories and partition folders. Source: Kafka's CheckpointFile and others.

A checkpoint is a version, a count, and a line per entry; 0 bytes mean no entries. Positions in errors are those of the
line.
"""

import base64
import binascii
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.properties import parse_properties
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (RECOVERY_POINT, HIGH_WATERMARK, LOG_START, CLEANER)
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
QUORUM_STATE = "quorum-state"  # in the folder of __cluster_metadata
MESSAGE_DIALECT = "message.dialect"

_NO_ID = "A" * 22
_INTEGER = re.compile(rb"-?[0-9]{1,19}")


class LeaderEpoch(NamedTuple):
    """The first offset that the leader of an epoch wrote."""

    epoch: int
    start_offset: int


class MetaProperties(Struct, frozen=True):
    """`meta.properties`: the owner of a log directory. None for keys that the file does not have."""

    version: int
    node_id: int | None  # broker.id in version 0, node.id in version 1 (KRaft)
    cluster_id: str | None
    directory_id: str | None
    properties: dict[str, str]


class CleanShutdown(Struct, frozen=True):
    """`.kafka_cleanshutdown`. Empty before 3.7: then both are None."""

    version: int | None
    broker_epoch: int | None


class PartitionMetadata(Struct, frozen=True):
    """`partition.metadata`: the topic's id."""

    version: int
    topic_id: uuid.UUID

    @property
    def topic_id_text(self) -> str:
        """The id as Kafka prints it: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")


def parse_offset_checkpoint(content: bytes) -> dict[TopicPartition, int]:
    """Return the offsets of one of OFFSET_CHECKPOINTS. Raises CorruptRecordError."""
    offsets: dict[TopicPartition, int] = {}
    for position, line in _checkpoint_lines(content):
        fields = line.split()
        if len(fields) != 3:
            raise CorruptRecordError("line", expected="topic partition offset", found=line, position=position)
        key = TopicPartition(_text(fields[0], position), _integer(fields[1], position))
        if key in offsets:
            raise CorruptRecordError("line", expected=f"{key} once", found=line, position=position)
        offsets[key] = _integer(fields[2], position)
    return offsets


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return one of OFFSET_CHECKPOINTS."""
    return _checkpoint(f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items())


def parse_leader_epochs(content: bytes) -> list[LeaderEpoch]:
    """Return the epochs of a `leader-epoch-checkpoint`, ascending. Raises CorruptRecordError."""
    epochs: list[LeaderEpoch] = []
    for position, line in _checkpoint_lines(content):
        fields = line.split()
        if len(fields) != 2:
            raise CorruptRecordError("line", expected="epoch startOffset", found=line, position=position)
        entry = LeaderEpoch(_integer(fields[0], position), _integer(fields[1], position))
        if epochs and (entry.epoch <= epochs[-1].epoch or entry.start_offset < epochs[-1].start_offset):
            expected = f"an epoch and offset after {epochs[-1].epoch} {epochs[-1].start_offset}"
            raise CorruptRecordError("line", expected=expected, found=line, position=position)
        epochs.append(entry)
    return epochs


def format_leader_epochs(epochs: Iterable[LeaderEpoch]) -> bytes:
    """Return a `leader-epoch-checkpoint`; `epochs` ascend."""
    return _checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in epochs)


def parse_partition_metadata(content: bytes) -> PartitionMetadata:
    """Return the content of a `partition.metadata`. Raises CorruptRecordError."""
    version, topic_id = _two_lines(content, b"topic_id")
    try:
        raw = base64.b64decode(topic_id + b"==", altchars=b"-_", validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != 16:
        raise CorruptRecordError("topic id", expected="22 characters of base64", found=topic_id)
    return PartitionMetadata(version, uuid.UUID(bytes=raw))


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Return a `partition.metadata`. As Kafka's, its last line has no newline."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id_text}".encode()


def parse_message_dialect(content: bytes) -> Dialect:
    """Return the dialect that a `message.dialect` file names. Raises CorruptRecordError."""
    _, name = _two_lines(content, b"dialect")
    for dialect in Dialect:
        if dialect.value.encode() == name:
            return dialect
    raise CorruptRecordError("dialect", expected=" or ".join(dialect.value for dialect in Dialect), found=name)


def format_message_dialect(dialect: Dialect) -> bytes:
    """Return a `message.dialect`."""
    return f"version: 0\ndialect: {dialect.value}\n".encode()


def parse_meta_properties(content: bytes) -> MetaProperties:
    """Return the content of a `meta.properties`. Raises CorruptRecordError."""
    properties = parse_properties(content)
    numbers: dict[str, int | None] = {}
    for name in ("version", "broker.id", "node.id"):
        text = properties.get(name)
        numbers[name] = None if text is None else _integer(text.strip().encode(), None)
    version = numbers["version"]
    if version not in (0, 1):
        raise CorruptRecordError("version", expected="0 or 1", found=version)
    node_id = numbers["broker.id"] if version == 0 else numbers["node.id"]
    return MetaProperties(version, node_id, properties.get("cluster.id"), properties.get("directory.id"), properties)


def format_meta_properties(node_id: int, cluster_id: str, directory_id: str | None) -> bytes:
    """Return the `meta.properties` of a KRaft node. `directory_id`: None for releases before 3.7."""
    named = {"node.id": node_id, "directory.id": directory_id, "version": 1, "cluster.id": cluster_id}
    return "".join(f"{name}={value}\n" for name, value in named.items() if value is not None).encode()


def parse_clean_shutdown(content: bytes) -> CleanShutdown:
    """Return the content of a clean shutdown marker. Raises CorruptRecordError."""
    if not content:
        return CleanShutdown(None, None)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptRecordError("clean shutdown marker", expected="JSON or nothing", found=content[:80]) from error
    if not isinstance(said, dict):
        raise CorruptRecordError("clean shutdown marker", expected="a JSON object", found=content[:80])
    version, epoch = said.get("version"), said.get("brokerEpoch")
    if not isinstance(version, int) or not isinstance(epoch, int):
        raise CorruptRecordError("clean shutdown marker", expected="version and brokerEpoch", found=content[:80])
    return CleanShutdown(version, epoch)


def parse_quorum_state(content: bytes) -> dict[str, Any]:
    """Return the state of a KRaft voter. Raises CorruptRecordError. Source: Kafka's FileQuorumStateStore."""
    try:
        state = json.loads(content)
    except ValueError as error:
        raise CorruptRecordError("quorum state", expected="JSON", found=error) from None
    if not isinstance(state, dict) or "data_version" not in state:
        raise CorruptRecordError("quorum state", expected="an object with data_version", found=type(state).__name__)
    return state


def format_quorum_state(epoch: int, voters: Sequence[int] | None) -> bytes:
    """Return the state of a KRaft voter that knows the last epoch and no leader. `voters`: None if they are records."""
    state: dict[str, Any] = {"leaderId": -1, "leaderEpoch": epoch, "votedId": -1}
    if voters is None:
        state |= {"votedDirectoryId": _NO_ID, "data_version": 1}
    else:
        ids = [{"voterId": each} for each in voters]
        state = {"clusterId": "", **state, "appliedOffset": 0, "currentVoters": ids, "data_version": 0}
    return json.dumps(state, separators=(",", ":")).encode()


def format_clean_shutdown(marker: CleanShutdown) -> bytes:
    """Return a clean shutdown marker, in the form of 3.7 and later unless the version is None."""
    if marker.version is None:
        return b""
    said = {"version": marker.version, "brokerEpoch": marker.broker_epoch}
    return json.dumps(said, separators=(",", ":")).encode()


def _checkpoint(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in ("0", len(lines), *lines)).encode()


def _checkpoint_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield position and text of each entry of a checkpoint, after a check of version and count."""
    if not content:
        return
    lines = _lines(content)
    for what, expected in (("version", 0), ("entry count", None)):
        position, line = next(lines, (len(content), b""))
        number = _integer(line.strip(), position)
        if expected is not None and number != expected:
            raise CorruptRecordError(what, expected=expected, found=number, position=position)
    count = number
    found = 0
    for position, line in lines:
        yield position, line
        found += 1
    if found != count:
        raise CorruptRecordError("entry count", expected=count, found=found, position=len(content))


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield position and text of each line that is not blank."""
    position = 0
    for line in content.split(b"\n"):
        if line.strip():
            yield position, line
        position += len(line) + 1


def _two_lines(content: bytes, name: bytes) -> tuple[int, bytes]:
    """Return the version, which must be 0, and the value of `name`, from a file of two lines `key: value`."""
    lines = [line.strip() for _, line in _lines(content)]
    values = [line.partition(b":")[2].strip() for line in lines]
    if [line.partition(b":")[0] for line in lines] != [b"version", name]:
        raise CorruptRecordError("file", expected=f"lines version: and {name.decode()}:", found=content[:80])
    version = _integer(values[0], 0)
    if version != 0:
        raise CorruptRecordError("version", expected=0, found=version, position=0)
    return version, values[1]


def _integer(text: bytes, position: int | None) -> int:
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise CorruptRecordError("number", expected="an int64", found=text[:80], position=position)
    return int(text)


def _text(raw: bytes, position: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError("topic", expected="UTF-8", found=raw[:80], position=position) from error
