"""Generated from UpdateFeaturesRequest.json and UpdateFeaturesResponse.json. Do not edit: the schema compiler makes it.

UpdateFeaturesRequest: versions 0-2, flexible 0+.
UpdateFeaturesResponse: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_string,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_HB = struct.Struct(">hb")
_HT = struct.Struct(">h?")
_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_T = struct.Struct(">?")


class FeatureUpdateKey(Struct, gc=False, kw_only=True):
    """Features to change.

    feature: Name of the feature.
    max_version_level: Level that it is to have; less than 1 switches the feature off.
    allow_downgrade: True if the level may become lower; deleting needs it too.
    upgrade_type: 1 only upward, 2 also downward if nothing is lost, 3 also downward with loss of metadata.
    """

    feature: str = ""  # string, versions 0+
    max_version_level: int = 0  # int16, versions 0+
    allow_downgrade: bool = False  # bool, versions 0
    upgrade_type: int = 1  # int8, versions 1+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[FeatureUpdateKey], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            if version > 0 and self.allow_downgrade:
                raise absent("allow_downgrade")
            if version < 1 and self.upgrade_type != 1:
                raise absent("upgrade_type")
            write_string(buffer, self.feature, True, "feature")
            if version >= 1:
                buffer += _HB.pack(self.max_version_level, self.upgrade_type)
            else:
                buffer += _HT.pack(self.max_version_level, self.allow_downgrade)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[FeatureUpdateKey], int]:
        found: list[FeatureUpdateKey] = []
        for _ in range(count):
            self = FeatureUpdateKey()
            self.feature, at = read_string(data, at, True, "feature")
            if version >= 1:
                self.max_version_level, self.upgrade_type = _HB.unpack_from(data, at)
                at += 3
                self.allow_downgrade = False
            else:
                self.max_version_level, self.allow_downgrade = _HT.unpack_from(data, at)
                at += 3
                self.upgrade_type = 1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class UpdateFeaturesRequest(Message, gc=False, kw_only=True):
    """Changes the levels of cluster features, such as metadata.version.

    timeout_ms: Milliseconds to wait for the change.
    feature_updates: Features to change.
    validate_only: True only checks whether the change would be accepted.
    """

    API_KEY = 57
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    timeout_ms: int = 60000  # int32, versions 0+
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)  # []FeatureUpdateKey, versions 0+
    validate_only: bool = False  # bool, versions 1+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.validate_only:
            raise absent("validate_only")
        buffer += _I.pack(self.timeout_ms)
        write_structs(out, self.feature_updates, True, FeatureUpdateKey._write_each, version)
        if version >= 1:
            buffer += _T.pack(self.validate_only)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateFeaturesRequest, int]:
        self = UpdateFeaturesRequest()
        (self.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        self.feature_updates, at = read_structs(
            data,
            at,
            True,
            5,
            "feature_updates",
            FeatureUpdateKey._read_each,
            version,
        )
        if version >= 1:
            (self.validate_only,) = _T.unpack_from(data, at)
            at += 1
        else:
            self.validate_only = False
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class UpdatableFeatureResult(Struct, gc=False, kw_only=True):
    """One result for each feature; from version 2 on they succeed or fail together, and only the top-level error is
    left.

    feature: Name of the feature.
    error_code: Error of this feature; 0 means changed. 96 says that the change failed.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    feature: str = ""  # string, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UpdatableFeatureResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.feature, True, "feature")
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[UpdatableFeatureResult], int]:
        found: list[UpdatableFeatureResult] = []
        for _ in range(count):
            self = UpdatableFeatureResult()
            self.feature, at = read_string(data, at, True, "feature")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class UpdateFeaturesResponse(Message, gc=False, kw_only=True):
    """Result of the changes.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    results: One result for each feature; from version 2 on they succeed or fail together, and only the top-level
        error is left.
    """

    API_KEY = 57
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    # []UpdatableFeatureResult, versions 0-1, ignorable
    results: list[UpdatableFeatureResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        if version <= 1:
            write_structs(out, self.results, True, UpdatableFeatureResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[UpdateFeaturesResponse, int]:
        self = UpdateFeaturesResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        if version >= 2:
            self.results = []
        else:
            self.results, at = read_structs(data, at, True, 5, "results", UpdatableFeatureResult._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
