"""Generated from ApiVersionsRequest.json and ApiVersionsResponse.json. Do not edit: the schema compiler makes it.

ApiVersionsRequest: versions 0-5, flexible 3+.
ApiVersionsResponse: versions 0-5, flexible 3+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_string,
    read_structs,
    read_tags,
    read_unknown_tags,
    unknown,
    whole,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_H = struct.Struct(">h")
_HH = struct.Struct(">hh")
_HHH = struct.Struct(">hhh")
_I = struct.Struct(">i")
_Q = struct.Struct(">q")
_ROWS_HHH_CLASSIC = Rows("hhh", flexible=False)
_ROWS_HHH_COMPACT = Rows("hhh", flexible=True)
_T = struct.Struct(">?")


class ApiVersionsRequest(Message, gc=False, kw_only=True):
    """Asks which requests the broker understands, in which versions. It may come before authentication, and its client
    needs to know nothing about the broker.

    client_software_name: Name of the client library, for the operator's metrics; letters, digits, dots and hyphens
        only.
    client_software_version: Version of the client library, for the operator's metrics; letters, digits, dots and
        hyphens only.
    cluster_id: Id of the cluster that the client means to reach; null if it does not know. Sent together with
        NodeId, or neither.
    node_id: Id of the broker that the client means to reach; -1 if it does not know.
    """

    API_KEY = 18
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    client_software_name: str = ""  # string, versions 3+, ignorable
    client_software_version: str = ""  # string, versions 3+, ignorable
    cluster_id: str | None = None  # string, versions 5+, nullable, ignorable
    node_id: int = -1  # int32, versions 5+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version >= 3:
            write_string(buffer, self.client_software_name, flexible, "client_software_name")
            write_string(buffer, self.client_software_version, flexible, "client_software_version")
        if version >= 5:
            write_nullable_string(buffer, self.cluster_id, flexible, "cluster_id")
            buffer += _I.pack(self.node_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ApiVersionsRequest, int]:
        self = ApiVersionsRequest()
        flexible = version >= 3
        if version >= 3:
            self.client_software_name, at = read_string(data, at, flexible, "client_software_name")
            self.client_software_version, at = read_string(data, at, flexible, "client_software_version")
        else:
            self.client_software_name = ""
            self.client_software_version = ""
        if version >= 5:
            self.cluster_id, at = read_nullable_string(data, at, flexible, "cluster_id")
            (self.node_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.cluster_id = None
            self.node_id = -1
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class ApiVersion(Struct, gc=False, kw_only=True):
    """Requests that the broker understands. After error 35 only the range for this one request, or nothing from brokers
    before 2.4.

    api_key: Number of the API.
    min_version: Oldest version understood.
    max_version: Newest version understood.
    """

    api_key: int = 0  # int16, versions 0+
    min_version: int = 0  # int16, versions 0+
    max_version: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ApiVersion], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            buffer += _HHH.pack(self.api_key, self.min_version, self.max_version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ApiVersion], int]:
        found: list[ApiVersion] = []
        for _ in range(count):
            self = ApiVersion()
            self.api_key, self.min_version, self.max_version = _HHH.unpack_from(data, at)
            at += 6
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[ApiVersion], int]:
        found: list[ApiVersion] = []
        if version >= 3:
            rows, at = _ROWS_HHH_COMPACT.read(data, at, most)
            for row in rows:
                api_key, min_version, max_version = row
                self = ApiVersion(api_key=api_key, min_version=min_version, max_version=max_version)
                found.append(self)
        else:
            rows, at = _ROWS_HHH_CLASSIC.read(data, at, most)
            for row in rows:
                api_key, min_version, max_version = row
                self = ApiVersion(api_key=api_key, min_version=min_version, max_version=max_version)
                found.append(self)
        return found, at


class SupportedFeatureKey(Struct, gc=False, kw_only=True):
    """Features that this broker could run, each with a range of levels.

    name: Name of the feature, such as metadata.version.
    min_version: Lowest level that the broker can run. Up to version 3 never 0, as old clients could not bear it.
    max_version: Highest level that the broker can run.
    """

    name: str = ""  # string, versions 3+
    min_version: int = 0  # int16, versions 3+
    max_version: int = 0  # int16, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[SupportedFeatureKey], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _HH.pack(self.min_version, self.max_version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[SupportedFeatureKey], int]:
        found: list[SupportedFeatureKey] = []
        for _ in range(count):
            self = SupportedFeatureKey()
            self.name, at = read_string(data, at, True, "name")
            self.min_version, self.max_version = _HH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class FinalizedFeatureKey(Struct, gc=False, kw_only=True):
    """Features that are switched on in the whole cluster. Only to be trusted if the epoch is 0 or more.

    name: Name of the feature.
    max_version_level: Highest level that is switched on.
    min_version_level: Lowest level that is switched on.
    """

    name: str = ""  # string, versions 3+
    max_version_level: int = 0  # int16, versions 3+
    min_version_level: int = 0  # int16, versions 3+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FinalizedFeatureKey], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _HH.pack(self.max_version_level, self.min_version_level)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FinalizedFeatureKey], int]:
        found: list[FinalizedFeatureKey] = []
        for _ in range(count):
            self = FinalizedFeatureKey()
            self.name, at = read_string(data, at, True, "name")
            self.max_version_level, self.min_version_level = _HH.unpack_from(data, at)
            at += 4
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ApiVersionsResponse(Message, gc=False, kw_only=True):
    """The requests and versions that the broker understands, and the features of the cluster. Its header is always the
    oldest one, so that any client can read it.

    error_code: Error; 0 means none. 35 says that the version asked was too new; the answer then comes in version 0.
    api_keys: Requests that the broker understands. After error 35 only the range for this one request, or nothing
        from brokers before 2.4.
    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 1 the broker
        held this response back for that long; from version 2 on it answers at once and the client does the waiting.
    supported_features: Features that this broker could run, each with a range of levels.
    finalized_features_epoch: Grows with every change of the finalized features, so that clients recognize the newer
        of two responses; -1 if unknown.
    finalized_features: Features that are switched on in the whole cluster. Only to be trusted if the epoch is 0 or
        more.
    zk_migration_ready: Set by a KRaft controller that is ready to take over a cluster from ZooKeeper.
    """

    API_KEY = 18
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    error_code: int = 0  # int16, versions 0+
    api_keys: list[ApiVersion] = field(default_factory=list)  # []ApiVersion, versions 0+
    throttle_time_ms: int = 0  # int32, versions 1+, ignorable
    # []SupportedFeatureKey, versions 3+, ignorable, tag 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1  # int64, versions 3+, ignorable, tag 1
    # []FinalizedFeatureKey, versions 3+, ignorable, tag 2
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False  # bool, versions 3+, ignorable, tag 3
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_structs(out, self.api_keys, flexible, ApiVersion._write_each, version)
        if version >= 1:
            buffer += _I.pack(self.throttle_time_ms)
        if version >= 3:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ApiVersionsResponse, int]:
        self = ApiVersionsResponse()
        flexible = version >= 3
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.api_keys, at = read_rows(data, at, flexible, 6, "api_keys", ApiVersion, version)
        if version >= 1:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            self.throttle_time_ms = 0
        self.supported_features = []
        self.finalized_features_epoch = -1
        self.finalized_features = []
        self.zk_migration_ready = False
        if version >= 3:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.supported_features = whole(
                        part,
                        read_structs(
                            part,
                            0,
                            flexible,
                            6,
                            "supported_features",
                            SupportedFeatureKey._read_each,
                            version,
                        ),
                        "supported_features",
                    )
                if 1 in tags:
                    part = tags.pop(1)
                    self.finalized_features_epoch = whole(
                        part,
                        (_Q.unpack_from(part)[0], 8),
                        "finalized_features_epoch",
                    )
                if 2 in tags:
                    part = tags.pop(2)
                    self.finalized_features = whole(
                        part,
                        read_structs(
                            part,
                            0,
                            flexible,
                            6,
                            "finalized_features",
                            FinalizedFeatureKey._read_each,
                            version,
                        ),
                        "finalized_features",
                    )
                if 3 in tags:
                    part = tags.pop(3)
                    self.zk_migration_ready = whole(part, (_T.unpack_from(part)[0], 1), "zk_migration_ready")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        flexible = version >= 3
        found: list[tuple[int, bytes]] = []
        if version >= 3 and len(self.supported_features) > 0:
            part = Writer()
            write_structs(part, self.supported_features, flexible, SupportedFeatureKey._write_each, version)
            found.append((0, bytes(part)))
        if version >= 3 and self.finalized_features_epoch != -1:
            part = Writer()
            part.buffer += _Q.pack(self.finalized_features_epoch)
            found.append((1, bytes(part)))
        if version >= 3 and len(self.finalized_features) > 0:
            part = Writer()
            write_structs(part, self.finalized_features, flexible, FinalizedFeatureKey._write_each, version)
            found.append((2, bytes(part)))
        if version >= 3 and self.zk_migration_ready:
            part = Writer()
            part.buffer += _T.pack(self.zk_migration_ready)
            found.append((3, bytes(part)))
        return found
