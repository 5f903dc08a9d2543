"""The records of `__consumer_offsets`: committed offsets and group metadata.

`decode_key` comes first: the key determines the type of the value. Unknown versions and types are returned as such,
with their bytes, because a log may come from a later broker. The stored forms: `magicbyte.engine.protocol.stored`.
"""

import uuid
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from magicbyte.engine.coordination.stored import UnknownKey, UnknownValue, read_stored, write_stored
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups.consumer_protocol import Assignment, Subscription, base64_or_null
from magicbyte.engine.groups.later_records import RECORDS, read_later
from magicbyte.engine.protocol.fields import NULL_UUID, id_text
from magicbyte.engine.protocol.stored import group_metadata, offset_commit
from magicbyte.engine.wire.reader import Reader

OFFSET_KEYS = (0, 1)  # both mean a committed offset
GROUP_KEY = 2
LAST_KNOWN = 4  # of both kinds of values
_MEMBER_BYTES = 100  # estimate for its ids and times
CONSUMER = "consumer"  # the protocol type whose subscriptions and assignments can be decoded


class OffsetCommitKey(Struct, frozen=True):
    """The key of an offset that `group` committed."""

    version: int  # 0 or 1
    group: str
    topic: str
    partition: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        data = {"group": self.group, "topic": self.topic, "partition": self.partition}
        return {"type": str(self.version), "data": data}

    def to_bytes(self) -> bytes:
        """Return the encoded key. Raises ProtocolError for names that are too long."""
        key = offset_commit.OffsetCommitKey(group=self.group, topic=self.topic, partition=self.partition)
        return write_stored(key, self.version)


class GroupMetadataKey(Struct, frozen=True):
    """The key of the metadata of `group`."""

    group: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return {"type": str(GROUP_KEY), "data": {"group": self.group}}

    def to_bytes(self) -> bytes:
        """Return the encoded key. Raises ProtocolError for a name that is too long."""
        return write_stored(group_metadata.GroupMetadataKey(group=self.group), GROUP_KEY)


class LaterGroupKey(Struct, frozen=True):
    """A key of the newer group protocols. `name` is Kafka's name of the record; `fields` have Kafka's names."""

    version: int
    name: str
    fields: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return {"type": str(self.version), "data": self.fields}


class LaterGroupValue(Struct, frozen=True):
    """A value of the newer group protocols: its fields by Kafka's names, topic ids and bytes in base64."""

    version: int
    fields: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return {"version": str(self.version), "data": self.fields}


class OffsetCommitValue(Struct, frozen=True):
    """A committed offset. Fields that its version does not have are -1 or None."""

    version: int
    offset: int
    leader_epoch: int  # version 3 on
    metadata: str
    commit_timestamp: int  # ms
    expire_timestamp: int  # ms; version 1 only
    topic_id: uuid.UUID | None  # version 4 on, if the broker knew it

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this version in the JSON form of Kafka's tools."""
        data: dict[str, Any] = {"offset": self.offset}
        if self.version >= 3:
            data["leaderEpoch"] = self.leader_epoch
        data |= {"metadata": self.metadata, "commitTimestamp": self.commit_timestamp}
        if self.version == 1:
            data["expireTimestamp"] = self.expire_timestamp
        if self.topic_id is not None:
            data["topicId"] = id_text(self.topic_id)
        return {"version": str(self.version), "data": data}

    def to_bytes(self) -> bytes:
        """Return the encoded value, in its version."""
        value = offset_commit.OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp,
            expire_timestamp=self.expire_timestamp,
            topic_id=self.topic_id or NULL_UUID,
        )
        return write_stored(value, self.version)


class StoredMember(Struct, frozen=True):
    """A member of a group. `subscription` and `assignment` are opaque bytes of its protocol."""

    member_id: str
    group_instance_id: str | None  # version 3 on
    client_id: str
    client_host: str
    rebalance_timeout: int  # ms; version 1 on, else -1
    session_timeout: int  # ms
    subscription: bytes
    assignment: bytes

    def to_json(self, version: int, protocol_type: str) -> dict[str, Any]:
        """Return the fields of `version`; a consumer's metadata is decoded if possible."""
        fields: dict[str, Any] = {"memberId": self.member_id}
        if version >= 3:
            fields["groupInstanceId"] = self.group_instance_id
        fields |= {"clientId": self.client_id, "clientHost": self.client_host}
        if version >= 1:
            fields["rebalanceTimeout"] = self.rebalance_timeout
        fields["sessionTimeout"] = self.session_timeout
        fields["subscription"] = _readable(Subscription, self.subscription, protocol_type)
        fields["assignment"] = _readable(Assignment, self.assignment, protocol_type)
        return fields


class GroupMetadataValue(Struct, frozen=True):
    """A group at the end of a rebalance, or empty."""

    version: int
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int  # ms; version 2 on, else -1
    members: list[StoredMember]

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this version in the JSON form of Kafka's tools."""
        data: dict[str, Any] = {
            "protocolType": self.protocol_type,
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
        }
        if self.version >= 2:
            data["currentStateTimestamp"] = self.current_state_timestamp
        data["members"] = [member.to_json(self.version, self.protocol_type) for member in self.members]
        return {"version": str(self.version), "data": data}

    @property
    def weight(self) -> int:
        """The approximate encoded size in bytes."""
        return sum(_MEMBER_BYTES + len(each.subscription) + len(each.assignment) for each in self.members)

    def to_bytes(self) -> bytes:
        """Return the encoded value, in its version; fields that the version does not have are omitted."""
        members = [group_metadata.MemberMetadata(**asdict(member)) for member in self.members]
        value = group_metadata.GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.current_state_timestamp,
            members=members,
        )
        return write_stored(value, self.version)


GroupKey: TypeAlias = OffsetCommitKey | GroupMetadataKey | LaterGroupKey | UnknownKey
GroupValue: TypeAlias = OffsetCommitValue | GroupMetadataValue | LaterGroupValue | UnknownValue


def decode_key(data: bytes) -> GroupKey:
    """Decode a record's key. Raises CorruptRecordError."""
    reader = Reader(data)
    version = reader.int16()
    if version in OFFSET_KEYS:
        offset = read_stored(offset_commit.OffsetCommitKey, data, version)
        return OffsetCommitKey(version, offset.group, offset.topic, offset.partition)
    if version == GROUP_KEY:
        return GroupMetadataKey(read_stored(group_metadata.GroupMetadataKey, data, version).group)
    if version in RECORDS:
        record = RECORDS[version]
        return LaterGroupKey(version, record.name, read_later(record.key, data, version))
    return UnknownKey(version, bytes(data))


def decode_value(key: GroupKey, data: bytes | None) -> GroupValue | None:
    """Decode the value of `key`, None for a tombstone. Raises CorruptRecordError."""
    if data is None:
        return None
    reader = Reader(data)
    version = reader.int16()
    last_known = 0 if isinstance(key, LaterGroupKey) else LAST_KNOWN
    if not 0 <= version <= last_known or isinstance(key, UnknownKey):
        return UnknownValue(version, bytes(data))
    if isinstance(key, LaterGroupKey):
        record = RECORDS[key.version]
        return LaterGroupValue(version, read_later(record.value, data, version, record.tagged))
    return _offset_commit(data, version) if isinstance(key, OffsetCommitKey) else _group_metadata(data, version)


def _offset_commit(data: bytes, version: int) -> OffsetCommitValue:
    stored = read_stored(offset_commit.OffsetCommitValue, data, version)
    return OffsetCommitValue(
        version=version,
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp=stored.commit_timestamp,
        expire_timestamp=stored.expire_timestamp,
        topic_id=None if stored.topic_id == NULL_UUID else stored.topic_id,
    )


def _group_metadata(data: bytes, version: int) -> GroupMetadataValue:
    stored = read_stored(group_metadata.GroupMetadataValue, data, version)
    return GroupMetadataValue(
        version=version,
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=stored.leader,
        current_state_timestamp=stored.current_state_timestamp,
        members=[
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout,
                session_timeout=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ],
    )


def _readable(kind: type[Subscription] | type[Assignment], data: bytes, protocol_type: str) -> Any:
    """Return a consumer's metadata as JSON if it is valid, else in base64: clients may have sent anything."""
    if protocol_type == CONSUMER:
        try:
            return kind.parse(data).to_json()
        except CorruptRecordError:
            return base64_or_null(data)
    return base64_or_null(data)
