"""Generated from JoinGroupRequest.json and JoinGroupResponse.json. Do not edit: the schema compiler makes it.

JoinGroupRequest: versions 0-9, flexible 6+; deprecated 0-1.
JoinGroupResponse: versions 0-9, flexible 6+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    present,
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

_HI = struct.Struct(">hi")
_I = struct.Struct(">i")
_IHI = struct.Struct(">ihi")
_II = struct.Struct(">ii")
_T = struct.Struct(">?")


class JoinGroupRequestProtocol(Struct, gc=False, kw_only=True):
    """Ways to share out the work that this member knows, in order of preference.

    name: Name of the way, such as range or cooperative-sticky.
    metadata: Metadata of the member for this protocol; for consumers a ConsumerProtocolSubscription after an int16
        version.
    """

    name: str = ""  # string, versions 0+
    metadata: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[JoinGroupRequestProtocol], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_bytes(buffer, self.metadata, flexible, "metadata")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[JoinGroupRequestProtocol], int]:
        flexible = version >= 6
        found: list[JoinGroupRequestProtocol] = []
        for _ in range(count):
            self = JoinGroupRequestProtocol()
            self.name, at = read_string(data, at, flexible, "name")
            self.metadata, at = read_bytes(data, at, flexible, "metadata")
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class JoinGroupRequest(Message, gc=False, kw_only=True):
    """Enters a consumer group, or takes part in its rebalance. The answer comes only when all members have joined or
    their time is up.

    group_id: Group to join; must not be empty.
    session_timeout_ms: After this many milliseconds without a heartbeat the member counts as dead.
    rebalance_timeout_ms: Milliseconds that members get to join a rebalance. -1, and always in version 0, means the
        session timeout.
    member_id: Id that the coordinator gave this member; empty at the first join. From version 4 on that join is
        answered with an id and error 79, and repeated.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    protocol_type: Kind of group, as all its members must have it: consumer, or connect for Kafka Connect workers.
    protocols: Ways to share out the work that this member knows, in order of preference.
    reason: Why the member joins again, for the coordinator's log; null if it does not say.
    """

    API_KEY = 11
    VALID_VERSIONS = range(10)
    FLEXIBLE_VERSIONS = range(6, 10)

    group_id: str = ""  # string, versions 0+
    session_timeout_ms: int = 0  # int32, versions 0+
    rebalance_timeout_ms: int = -1  # int32, versions 1+, ignorable
    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 5+, nullable
    protocol_type: str = ""  # string, versions 0+
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)  # []JoinGroupRequestProtocol, versions 0+
    reason: str | None = None  # string, versions 8+, nullable, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version < 5 and self.group_instance_id is not None:
            raise absent("group_instance_id")
        write_string(buffer, self.group_id, flexible, "group_id")
        if version >= 1:
            buffer += _II.pack(self.session_timeout_ms, self.rebalance_timeout_ms)
        else:
            buffer += _I.pack(self.session_timeout_ms)
        write_string(buffer, self.member_id, flexible, "member_id")
        if version >= 5:
            write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
        write_string(buffer, self.protocol_type, flexible, "protocol_type")
        write_structs(out, self.protocols, flexible, JoinGroupRequestProtocol._write_each, version)
        if version >= 8:
            write_nullable_string(buffer, self.reason, flexible, "reason")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[JoinGroupRequest, int]:
        self = JoinGroupRequest()
        flexible = version >= 6
        self.group_id, at = read_string(data, at, flexible, "group_id")
        if version >= 1:
            self.session_timeout_ms, self.rebalance_timeout_ms = _II.unpack_from(data, at)
            at += 8
        else:
            (self.session_timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            self.rebalance_timeout_ms = -1
        self.member_id, at = read_string(data, at, flexible, "member_id")
        if version >= 5:
            self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
        else:
            self.group_instance_id = None
        self.protocol_type, at = read_string(data, at, flexible, "protocol_type")
        self.protocols, at = read_structs(
            data,
            at,
            flexible,
            3,
            "protocols",
            JoinGroupRequestProtocol._read_each,
            version,
        )
        if version >= 8:
            self.reason, at = read_nullable_string(data, at, flexible, "reason")
        else:
            self.reason = None
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class JoinGroupResponseMember(Struct, gc=False, kw_only=True):
    """All members, for the leader; empty for the others.

    member_id: Id that the coordinator gave the member when it first joined.
    group_instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member, which gets
        a new identity whenever it restarts.
    metadata: Metadata that this member sent for the chosen protocol.
    """

    member_id: str = ""  # string, versions 0+
    group_instance_id: str | None = None  # string, versions 5+, nullable, ignorable
    metadata: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[JoinGroupResponseMember], out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, flexible, "member_id")
            if version >= 5:
                write_nullable_string(buffer, self.group_instance_id, flexible, "group_instance_id")
            write_bytes(buffer, self.metadata, flexible, "metadata")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[JoinGroupResponseMember], int]:
        flexible = version >= 6
        found: list[JoinGroupResponseMember] = []
        for _ in range(count):
            self = JoinGroupResponseMember()
            self.member_id, at = read_string(data, at, flexible, "member_id")
            if version >= 5:
                self.group_instance_id, at = read_nullable_string(data, at, flexible, "group_instance_id")
            else:
                self.group_instance_id = None
            self.metadata, at = read_bytes(data, at, flexible, "metadata")
            if version >= 6:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class JoinGroupResponse(Message, gc=False, kw_only=True):
    """The new generation of the group. The leader gets all members' data too, and shares out the work.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 2 the broker
        held this response back for that long; from version 3 on it answers at once and the client does the waiting.
    error_code: Error; 0 means none. 79 asks to join again with the member id given here; 25 says that the member id
        is unknown.
    generation_id: Number of the group's generation, one higher with each rebalance; -1 with an error.
    protocol_type: Kind of group, such as consumer; null with an error.
    protocol_name: Way to share out the work that all members know and most voted for; with an error empty, or null
        from version 7 on.
    leader: Member id of the leader, which computes the assignment.
    skip_assignment: True tells a returning leader to keep the assignment.
    member_id: Id of the member that joined, to be used from now on.
    members: All members, for the leader; empty for the others.
    """

    API_KEY = 11
    VALID_VERSIONS = range(10)
    FLEXIBLE_VERSIONS = range(6, 10)

    throttle_time_ms: int = 0  # int32, versions 2+, ignorable
    error_code: int = 0  # int16, versions 0+
    generation_id: int = -1  # int32, versions 0+
    protocol_type: str | None = None  # string, versions 7+, nullable, ignorable
    protocol_name: str | None = ""  # string, versions 0+, nullable 7+
    leader: str = ""  # string, versions 0+
    skip_assignment: bool = False  # bool, versions 9+
    member_id: str = ""  # string, versions 0+
    members: list[JoinGroupResponseMember] = field(default_factory=list)  # []JoinGroupResponseMember, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 6
        buffer = out.buffer
        if version < 9 and self.skip_assignment:
            raise absent("skip_assignment")
        if version >= 2:
            buffer += _IHI.pack(self.throttle_time_ms, self.error_code, self.generation_id)
        else:
            buffer += _HI.pack(self.error_code, self.generation_id)
        if version >= 7:
            write_nullable_string(buffer, self.protocol_type, flexible, "protocol_type")
        if version >= 7:
            write_nullable_string(buffer, self.protocol_name, flexible, "protocol_name")
        else:
            write_string(buffer, present(self.protocol_name, "protocol_name"), flexible, "protocol_name")
        write_string(buffer, self.leader, flexible, "leader")
        if version >= 9:
            buffer += _T.pack(self.skip_assignment)
        write_string(buffer, self.member_id, flexible, "member_id")
        write_structs(out, self.members, flexible, JoinGroupResponseMember._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[JoinGroupResponse, int]:
        self = JoinGroupResponse()
        flexible = version >= 6
        if version >= 2:
            self.throttle_time_ms, self.error_code, self.generation_id = _IHI.unpack_from(data, at)
            at += 10
        else:
            self.error_code, self.generation_id = _HI.unpack_from(data, at)
            at += 6
            self.throttle_time_ms = 0
        if version >= 7:
            self.protocol_type, at = read_nullable_string(data, at, flexible, "protocol_type")
            self.protocol_name, at = read_nullable_string(data, at, flexible, "protocol_name")
        else:
            self.protocol_type = None
            self.protocol_name, at = read_string(data, at, flexible, "protocol_name")
        self.leader, at = read_string(data, at, flexible, "leader")
        if version >= 9:
            (self.skip_assignment,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.skip_assignment = False
        self.member_id, at = read_string(data, at, flexible, "member_id")
        self.members, at = read_structs(data, at, flexible, 4, "members", JoinGroupResponseMember._read_each, version)
        if version >= 6:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
