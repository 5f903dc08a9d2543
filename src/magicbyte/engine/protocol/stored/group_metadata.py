"""Generated from GroupMetadataKey.json and GroupMetadataValue.json. Do not edit: the schema compiler makes it.

GroupMetadataKey: version 2.
GroupMetadataValue: versions 0-4, flexible 4+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_bytes,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_II = struct.Struct(">ii")
_Q = struct.Struct(">q")


class GroupMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the state of a group with the classic protocol. It follows the int16 2, its type.

    group: Group by its group.id, as its members are configured.
    """

    VALID_VERSIONS = range(2, 3)
    FLEXIBLE_VERSIONS = range(0)

    group: str = ""  # string, versions 2

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group, False, "group")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[GroupMetadataKey, int]:
        self = GroupMetadataKey()
        self.group, at = read_string(data, at, False, "group")
        return self, at


class MemberMetadata(Struct, gc=False, kw_only=True):
    """One member.

    member_id: Id of the member, as given by the coordinator.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member.
    client_id: The member's client.id.
    client_host: Address from which it joined, with a slash in front.
    rebalance_timeout: Milliseconds that it may take to join a rebalance; -1 means the session timeout, as version 0
        did not keep it.
    session_timeout: Milliseconds without a heartbeat after which the member counts as dead.
    subscription: Metadata that it sent when it joined; for consumers a ConsumerProtocolSubscription after an int16
        version.
    assignment: Its share of the work; for consumers a ConsumerProtocolAssignment with an int16 version in front.
    """

    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 3+, nullable, ignorable
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    rebalance_timeout: int = -1  # int32, versions 1+, ignorable
    session_timeout: int = 0  # int32, versions 0+
    subscription: bytes = b""  # bytes, versions 0+
    assignment: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[MemberMetadata], out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            if version >= 3:
                write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
            write_string(buffer, self.client_id, flexible, "client_id")
            write_string(buffer, self.client_host, flexible, "client_host")
            if version >= 1:
                buffer += _II.pack(self.rebalance_timeout, self.session_timeout)
            else:
                buffer += _I.pack(self.session_timeout)
            write_bytes(buffer, self.subscription, flexible, "subscription")
            write_bytes(buffer, self.assignment, flexible, "assignment")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[MemberMetadata], int]:
        flexible = version >= 4
        found: list[MemberMetadata] = []
        for _ in range(count):
            self = MemberMetadata()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            if version >= 3:
                self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
            else:
                self.group_instance_id = None
            self.client_id, at = read_string(data, at, flexible, "client_id")
            self.client_host, at = read_string(data, at, flexible, "client_host")
            if version >= 1:
                self.rebalance_timeout, self.session_timeout = _II.unpack_from(data, at)
                at += 8
            else:
                (self.session_timeout,) = _I.unpack_from(data, at)
                at += 4
                self.rebalance_timeout = -1
            self.subscription, at = read_bytes(data, at, flexible, "subscription")
            self.assignment, at = read_bytes(data, at, flexible, "assignment")
            if version >= 4:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class GroupMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: state of a group with the classic protocol, after its last rebalance; null if the
    group was deleted. It follows an int16, the version.

    protocol_type: Kind of group, such as consumer or connect.
    generation: Number of the group's generation, one higher with each rebalance.
    protocol: Way in which the work is shared out, such as range; null for a group without members.
    leader: Member id of the leader; null for a group without members.
    current_state_timestamp: When the group came into its state, in milliseconds since 1970; -1 if it is not known.
        Offsets of an empty group expire by it.
    members: Members of the group; empty if only offsets are kept.
    """

    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    protocol_type: str = ""  # string, versions 0+
    generation: int = 0  # int32, versions 0+
    protocol: str | None = ""  # string, versions 0+, nullable
    leader: str | None = ""  # string, versions 0+, nullable
    current_state_timestamp: int = -1  # int64, versions 2+, ignorable
    members: list[MemberMetadata] = field(default_factory=list)  # []MemberMetadata, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        write_string(buffer, self.protocol_type, flexible, "protocol_type")
        buffer += _I.pack(self.generation)
        write_nullable_string(buffer, self.protocol, flexible, "protocol")
        write_nullable_string(buffer, self.leader, flexible, "leader")
        if version >= 2:
            buffer += _Q.pack(self.current_state_timestamp)
        write_structs(out, self.members, flexible, MemberMetadata._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[GroupMetadataValue, int]:
        self = GroupMetadataValue()
        flexible = version >= 4
        self.protocol_type, at = read_string(data, at, flexible, "protocol_type")
        (self.generation,) = _I.unpack_from(data, at)
        at += 4
        self.protocol, at = read_nullable_string(data, at, flexible, "protocol")
        self.leader, at = read_nullable_string(data, at, flexible, "leader")
        if version >= 2:
            (self.current_state_timestamp,) = _Q.unpack_from(data, at)
            at += 8
        else:
            self.current_state_timestamp = -1
        self.members, at = read_structs(data, at, flexible, 15, "members", MemberMetadata._read_each, version)
        if version >= 4:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
