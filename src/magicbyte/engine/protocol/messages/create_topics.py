"""Generated from CreateTopicsRequest.json and CreateTopicsResponse.json. Do not edit: the schema compiler makes it.

CreateTopicsRequest: versions 0-7, flexible 5+; deprecated 0-1.
CreateTopicsResponse: versions 0-7, flexible 5+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, Shapes, read_rows

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IT = struct.Struct(">i?")
_ROWS_I_I_CLASSIC = Rows("i[i", flexible=False)
_ROWS_I_I_COMPACT = Rows("i[i", flexible=True)
_SHAPES_I_I_CLASSIC = Shapes("i[i", flexible=False)
_SHAPES_I_I_COMPACT = Shapes("i[i", flexible=True)
_TBT = struct.Struct(">?b?")


class CreatableReplicaAssignment(Struct, gc=False, kw_only=True):
    """Brokers for each partition, to place them by hand; empty lets the controller choose.

    partition_index: Number of the partition within its topic, counted from 0.
    broker_ids: Brokers that get a replica, the preferred leader first.
    """

    partition_index: int = 0  # int32, versions 0+
    broker_ids: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableReplicaAssignment], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        lengths: tuple[int, ...]
        for self in structs:
            if version >= 5:
                lengths = (len(self.broker_ids),)
                buffer += _SHAPES_I_I_COMPACT[lengths](self.partition_index, lengths[0] + 1, *self.broker_ids)
            else:
                lengths = (len(self.broker_ids),)
                buffer += _SHAPES_I_I_CLASSIC[lengths](self.partition_index, lengths[0], *self.broker_ids)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableReplicaAssignment], int]:
        flexible = version >= 5
        found: list[CreatableReplicaAssignment] = []
        for _ in range(count):
            self = CreatableReplicaAssignment()
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            self.broker_ids, at = read_numbers(data, at, flexible, "i", "broker_ids")
            if version >= 5:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[CreatableReplicaAssignment], int]:
        found: list[CreatableReplicaAssignment] = []
        if version >= 5:
            rows, at = _ROWS_I_I_COMPACT.read(data, at, most)
            for row in rows:
                (partition_index,), broker_ids = row
                self = CreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids)
                found.append(self)
        else:
            rows, at = _ROWS_I_I_CLASSIC.read(data, at, most)
            for row in rows:
                (partition_index,), broker_ids = row
                self = CreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids)
                found.append(self)
        return found, at


class CreatableTopicConfig(Struct, gc=False, kw_only=True):
    """Settings of the topic that differ from the broker's defaults.

    name: Name of the setting, such as cleanup.policy.
    value: Its value as text; null is refused.
    """

    name: str = ""  # string, versions 0+
    value: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableTopicConfig], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_nullable_string(buffer, self.value, flexible, "value")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableTopicConfig], int]:
        flexible = version >= 5
        found: list[CreatableTopicConfig] = []
        for _ in range(count):
            self = CreatableTopicConfig()
            self.name, at = read_string(data, at, flexible, "name")
            self.value, at = read_nullable_string(data, at, flexible, "value")
            if version >= 5:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreatableTopic(Struct, gc=False, kw_only=True):
    """Topics to create.

    name: Name of the topic: up to 249 letters, digits, dots, underscores and hyphens.
    num_partitions: Number of partitions. -1 leaves it to Assignments or, from version 4 on, to the broker's
        num.partitions.
    replication_factor: Number of replicas of each partition. -1 leaves it to Assignments or, from version 4 on, to
        the broker's default.replication.factor.
    assignments: Brokers for each partition, to place them by hand; empty lets the controller choose.
    configs: Settings of the topic that differ from the broker's defaults.
    """

    name: str = ""  # string, versions 0+
    num_partitions: int = 0  # int32, versions 0+
    replication_factor: int = 0  # int16, versions 0+
    # []CreatableReplicaAssignment, versions 0+
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)  # []CreatableTopicConfig, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableTopic], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            buffer += _IH.pack(self.num_partitions, self.replication_factor)
            write_structs(out, self.assignments, flexible, CreatableReplicaAssignment._write_each, version)
            write_structs(out, self.configs, flexible, CreatableTopicConfig._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableTopic], int]:
        flexible = version >= 5
        found: list[CreatableTopic] = []
        for _ in range(count):
            self = CreatableTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.num_partitions, self.replication_factor = _IH.unpack_from(data, at)
            at += 6
            self.assignments, at = read_rows(data, at, flexible, 6, "assignments", CreatableReplicaAssignment, version)
            self.configs, at = read_structs(data, at, flexible, 3, "configs", CreatableTopicConfig._read_each, version)
            if version >= 5:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreateTopicsRequest(Message, gc=False, kw_only=True):
    """Creates topics. Sent to the controller, or in KRaft mode to any broker, which forwards it.

    topics: Topics to create.
    timeout_ms: Milliseconds to wait for the topics to be ready everywhere; with 0 or less the answer does not wait.
    validate_only: True only checks whether the topics could be created.
    """

    API_KEY = 19
    VALID_VERSIONS = range(8)
    FLEXIBLE_VERSIONS = range(5, 8)

    topics: list[CreatableTopic] = field(default_factory=list)  # []CreatableTopic, versions 0+
    timeout_ms: int = 60000  # int32, versions 0+
    validate_only: bool = False  # bool, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        if version < 1 and self.validate_only:
            raise absent("validate_only")
        write_structs(out, self.topics, flexible, CreatableTopic._write_each, version)
        if version >= 1:
            buffer += _IT.pack(self.timeout_ms, self.validate_only)
        else:
            buffer += _I.pack(self.timeout_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateTopicsRequest, int]:
        self = CreateTopicsRequest()
        flexible = version >= 5
        self.topics, at = read_structs(data, at, flexible, 10, "topics", CreatableTopic._read_each, version)
        if version >= 1:
            self.timeout_ms, self.validate_only = _IT.unpack_from(data, at)
            at += 5
        else:
            (self.timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            self.validate_only = False
        if version >= 5:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class CreatableTopicConfigs(Struct, gc=False, kw_only=True):
    """All settings in force for the topic; null with an error, or if the caller may not read them.

    name: Name of the setting.
    value: Its value as text; null if it is secret or has none.
    read_only: True if it cannot be changed while brokers run.
    config_source: Where the value comes from: 1 the topic, 2 this broker's dynamic settings, 3 dynamic settings of
        all brokers, 4 the broker's file, 5 Kafka's default; -1 unknown.
    is_sensitive: True for passwords and the like, whose values are never sent.
    """

    name: str = ""  # string, versions 5+
    value: str | None = ""  # string, versions 5+, nullable
    read_only: bool = False  # bool, versions 5+
    config_source: int = -1  # int8, versions 5+, ignorable
    is_sensitive: bool = False  # bool, versions 5+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableTopicConfigs], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            write_nullable_string(buffer, self.value, True, "value")
            buffer += _TBT.pack(self.read_only, self.config_source, self.is_sensitive)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableTopicConfigs], int]:
        found: list[CreatableTopicConfigs] = []
        for _ in range(count):
            self = CreatableTopicConfigs()
            self.name, at = read_string(data, at, True, "name")
            self.value, at = read_nullable_string(data, at, True, "value")
            self.read_only, self.config_source, self.is_sensitive = _TBT.unpack_from(data, at)
            at += 3
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class CreatableTopicResult(Struct, gc=False, kw_only=True):
    """One result per topic.

    name: Name of the topic.
    topic_id: Id that the topic got; all zeros if it was not created.
    error_code: Error of this topic; 0 means created (or possible, if only checked). 36 says that it exists already,
        41 that this is not the controller.
    error_message: Error message; null without an error, or if the broker sends none.
    topic_config_error_code: Error that kept the settings below from being returned, for instance 29 if the caller
        may not read them; 0 means none.
    num_partitions: Number of partitions that it got; -1 with an error, or if the caller may not know.
    replication_factor: Number of replicas that each partition got; -1 with an error, or if the caller may not know.
    configs: All settings in force for the topic; null with an error, or if the caller may not read them.
    """

    name: str = ""  # string, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 7+, ignorable
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 1+, nullable 0+, ignorable
    topic_config_error_code: int = 0  # int16, versions 5+, ignorable, tag 0
    num_partitions: int = -1  # int32, versions 5+, ignorable
    replication_factor: int = -1  # int16, versions 5+, ignorable
    # []CreatableTopicConfigs, versions 5+, nullable, ignorable
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            if version >= 7:
                write_uuid(buffer, self.topic_id)
            buffer += _H.pack(self.error_code)
            if version >= 1:
                write_nullable_string(buffer, self.error_message, flexible, "error_message")
            if version >= 5:
                buffer += _IH.pack(self.num_partitions, self.replication_factor)
                write_structs(out, self.configs, flexible, CreatableTopicConfigs._write_each, version)
            if version >= 5:
                tags = self._tags(version)
                if tags or self.unknown_tags:
                    write_tags(buffer, tags, self.unknown_tags)
                else:
                    buffer.append(0)
            elif self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableTopicResult], int]:
        flexible = version >= 5
        found: list[CreatableTopicResult] = []
        for _ in range(count):
            self = CreatableTopicResult()
            self.name, at = read_string(data, at, flexible, "name")
            if version >= 7:
                self.topic_id, at = read_uuid(data, at)
            else:
                self.topic_id = NULL_UUID
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            if version >= 1:
                self.error_message, at = read_nullable_string(data, at, flexible, "error_message")
            else:
                self.error_message = ""
            self.topic_config_error_code = 0
            if version >= 5:
                self.num_partitions, self.replication_factor = _IH.unpack_from(data, at)
                at += 6
                self.configs, at = read_nullable_structs(
                    data,
                    at,
                    flexible,
                    6,
                    "configs",
                    CreatableTopicConfigs._read_each,
                    version,
                )
                if data[at]:
                    tags, at = read_tags(data, at)
                    if 0 in tags:
                        part = tags.pop(0)
                        self.topic_config_error_code = whole(
                            part,
                            (_H.unpack_from(part)[0], 2),
                            "topic_config_error_code",
                        )
                    self.unknown_tags = unknown(tags)
                else:
                    self.unknown_tags, at = (), at + 1
            else:
                self.num_partitions = -1
                self.replication_factor = -1
                self.configs = []
                self.unknown_tags = ()
            found.append(self)
        return found, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 5 and self.topic_config_error_code != 0:
            part = Writer()
            part.buffer += _H.pack(self.topic_config_error_code)
            found.append((0, bytes(part)))
        return found


class CreateTopicsResponse(Message, gc=False, kw_only=True):
    """Result for each topic.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 2 the broker
        held this response back for that long; from version 3 on it answers at once and the client does the waiting.
    topics: One result per topic.
    """

    API_KEY = 19
    VALID_VERSIONS = range(8)
    FLEXIBLE_VERSIONS = range(5, 8)

    throttle_time_ms: int = 0  # int32, versions 2+, ignorable
    topics: list[CreatableTopicResult] = field(default_factory=list)  # []CreatableTopicResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 5
        buffer = out.buffer
        if version >= 2:
            buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.topics, flexible, CreatableTopicResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateTopicsResponse, int]:
        self = CreateTopicsResponse()
        flexible = version >= 5
        if version >= 2:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.topics, at = read_structs(data, at, flexible, 4, "topics", CreatableTopicResult._read_each, version)
        if version >= 5:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
