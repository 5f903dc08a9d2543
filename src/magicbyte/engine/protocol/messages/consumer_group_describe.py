"""Generated from ConsumerGroupDescribeRequest.json and ConsumerGroupDescribeResponse.json. Do not edit: the schema

compiler makes it.
ConsumerGroupDescribeRequest: versions 0-1, flexible 0+.
ConsumerGroupDescribeResponse: versions 0-1, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_array,
    read_nullable_string,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    read_uuid,
    write_array,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_H = struct.Struct(">h")
_I = struct.Struct(">i")
_II = struct.Struct(">ii")
_T = struct.Struct(">?")


class ConsumerGroupDescribeRequest(Message, gc=False, kw_only=True):
    """Asks for the state and the members of groups with the new consumer protocol (KIP-848); sent to their coordinator.

    group_ids: Groups to describe, by their group.id.
    include_authorized_operations: Whether the response lists the operations that the caller may perform on each
        group.
    """

    API_KEY = 69
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    group_ids: list[str] = field(default_factory=list)  # []string, versions 0+
    include_authorized_operations: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_array(buffer, self.group_ids, True, write_string, True, "group_ids")
        buffer += _T.pack(self.include_authorized_operations)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupDescribeRequest, int]:
        self = ConsumerGroupDescribeRequest()
        self.group_ids, at = read_array(data, at, True, 1, "group_ids", read_string, True, "group_ids")
        (self.include_authorized_operations,) = _T.unpack_from(data, at)
        at += 1
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class TopicPartitions(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    topic_name: Topic by its name, which is unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    topic_name: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicPartitions], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_uuid(buffer, self.topic_id)
            write_string(buffer, self.topic_name, True, "topic_name")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicPartitions], int]:
        found: list[TopicPartitions] = []
        for _ in range(count):
            self = TopicPartitions()
            self.topic_id, at = read_uuid(data, at)
            self.topic_name, at = read_string(data, at, True, "topic_name")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class Assignment(Struct, gc=False, kw_only=True):
    """A set of partitions.

    topic_partitions: The partitions, by topic.
    """

    topic_partitions: list[TopicPartitions] = field(default_factory=list)  # []TopicPartitions, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.topic_partitions, True, TopicPartitions._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[Assignment, int]:
        self = Assignment()
        self.topic_partitions, at = read_structs(
            data,
            at,
            True,
            19,
            "topic_partitions",
            TopicPartitions._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _is_set(self) -> bool:
        return len(self.topic_partitions) > 0 or len(self.unknown_tags) > 0


class Member(Struct, gc=False, kw_only=True):
    """Members of the group.

    member_id: Id of the member, the same for as long as it runs.
    instance_id: Static member's own permanent name (group.instance.id); null for a dynamic member.
    rack_id: Rack or zone of the member (client.rack); null if it has none.
    member_epoch: Group epoch that the member has reached.
    client_id: The member's client.id.
    client_host: Address from which the member is connected, with a slash in front.
    subscribed_topic_names: Topics that the member wants to read, by name.
    subscribed_topic_regex: Pattern of topic names subscribed to, as the broker evaluates it; null or empty if there
        is none.
    assignment: Partitions that the member has now.
    target_assignment: Partitions that the member is going to have.
    member_type: Protocol that the member speaks: 0 the classic one, 1 the new one, -1 not known.
    """

    member_id: str = ""  # string, versions 0+
    instance_id: str | None = None  # string, versions 0+, nullable
    rack_id: str | None = None  # string, versions 0+, nullable
    member_epoch: int = 0  # int32, versions 0+
    client_id: str = ""  # string, versions 0+
    client_host: str = ""  # string, versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # []string, versions 0+
    subscribed_topic_regex: str | None = None  # string, versions 0+, nullable
    assignment: Assignment = field(default_factory=Assignment)  # Assignment, versions 0+
    target_assignment: Assignment = field(default_factory=Assignment)  # Assignment, versions 0+
    member_type: int = -1  # int8, versions 1+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[Member], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.member_id, True, "member_id")
            write_nullable_string(buffer, self.instance_id, True, "instance_id")
            write_nullable_string(buffer, self.rack_id, True, "rack_id")
            buffer += _I.pack(self.member_epoch)
            write_string(buffer, self.client_id, True, "client_id")
            write_string(buffer, self.client_host, True, "client_host")
            write_array(buffer, self.subscribed_topic_names, True, write_string, True, "subscribed_topic_names")
            write_nullable_string(buffer, self.subscribed_topic_regex, True, "subscribed_topic_regex")
            self.assignment._write(out, version)
            self.target_assignment._write(out, version)
            if version >= 1:
                buffer += _B.pack(self.member_type)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[Member], int]:
        found: list[Member] = []
        for _ in range(count):
            self = Member()
            self.member_id, at = read_string(data, at, True, "member_id")
            self.instance_id, at = read_nullable_string(data, at, True, "instance_id")
            self.rack_id, at = read_nullable_string(data, at, True, "rack_id")
            (self.member_epoch,) = _I.unpack_from(data, at)
            at += 4
            self.client_id, at = read_string(data, at, True, "client_id")
            self.client_host, at = read_string(data, at, True, "client_host")
            self.subscribed_topic_names, at = read_array(
                data,
                at,
                True,
                1,
                "subscribed_topic_names",
                read_string,
                True,
                "subscribed_topic_names",
            )
            self.subscribed_topic_regex, at = read_nullable_string(data, at, True, "subscribed_topic_regex")
            self.assignment, at = Assignment._read(data, at, version)
            self.target_assignment, at = Assignment._read(data, at, version)
            if version >= 1:
                (self.member_type,) = _B.unpack_from(data, at)
                at += 1
            else:
                self.member_type = -1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribedGroup(Struct, gc=False, kw_only=True):
    """One entry per group.

    error_code: Error of this group; 0 means none. 69 says that there is no such group, or that it has another
        protocol.
    error_message: Error message; null without an error, or if the broker sends none.
    group_id: Group by its group.id, as its members are configured.
    group_state: Empty, Assigning, Reconciling, Stable or Dead; empty text with an error.
    group_epoch: Grows whenever members or subscriptions change.
    assignment_epoch: Group epoch for which the target assignment was computed.
    assignor_name: Assignor that the coordinator uses, such as uniform or range.
    members: Members of the group.
    authorized_operations: Operations that the caller may perform on the group: bit n stands for ACL operation number
        n. -2147483648 if not requested.
    """

    error_code: int = 0  # int16, versions 0+
    error_message: str | None = None  # string, versions 0+, nullable
    group_id: str = ""  # string, versions 0+
    group_state: str = ""  # string, versions 0+
    group_epoch: int = 0  # int32, versions 0+
    assignment_epoch: int = 0  # int32, versions 0+
    assignor_name: str = ""  # string, versions 0+
    members: list[Member] = field(default_factory=list)  # []Member, versions 0+
    authorized_operations: int = -2147483648  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedGroup], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            write_string(buffer, self.group_id, True, "group_id")
            write_string(buffer, self.group_state, True, "group_state")
            buffer += _II.pack(self.group_epoch, self.assignment_epoch)
            write_string(buffer, self.assignor_name, True, "assignor_name")
            write_structs(out, self.members, True, Member._write_each, version)
            buffer += _I.pack(self.authorized_operations)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribedGroup], int]:
        found: list[DescribedGroup] = []
        for _ in range(count):
            self = DescribedGroup()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.group_id, at = read_string(data, at, True, "group_id")
            self.group_state, at = read_string(data, at, True, "group_state")
            self.group_epoch, self.assignment_epoch = _II.unpack_from(data, at)
            at += 8
            self.assignor_name, at = read_string(data, at, True, "assignor_name")
            self.members, at = read_structs(data, at, True, 16, "members", Member._read_each, version)
            (self.authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ConsumerGroupDescribeResponse(Message, gc=False, kw_only=True):
    """State, members, and current and target assignments of each group.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    groups: One entry per group.
    """

    API_KEY = 69
    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(2)

    throttle_time_ms: int = 0  # int32, versions 0+
    groups: list[DescribedGroup] = field(default_factory=list)  # []DescribedGroup, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, DescribedGroup._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupDescribeResponse, int]:
        self = ConsumerGroupDescribeResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.groups, at = read_structs(data, at, True, 20, "groups", DescribedGroup._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
