"""Generated from DescribeUserScramCredentialsRequest.json and DescribeUserScramCredentialsResponse.json. Do not edit:

the schema compiler makes it.
DescribeUserScramCredentialsRequest: version 0, flexible 0+.
DescribeUserScramCredentialsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_nullable_structs,
    read_string,
    read_structs,
    read_unknown_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_BI = struct.Struct(">bi")
_H = struct.Struct(">h")
_IH = struct.Struct(">ih")
_ROWS_BI_COMPACT = Rows("bi", flexible=True)


class UserName(Struct, gc=False, kw_only=True):
    """Users; null or an empty list means all.

    name: Name of the user.
    """

    name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[UserName], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[UserName], int]:
        found: list[UserName] = []
        for _ in range(count):
            self = UserName()
            self.name, at = read_string(data, at, True, "name")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeUserScramCredentialsRequest(Message, gc=False, kw_only=True):
    """Asks which SCRAM mechanisms users have passwords for. The passwords themselves are never told.

    users: Users; null or an empty list means all.
    """

    API_KEY = 50
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    users: list[UserName] | None = field(default_factory=list)  # []UserName, versions 0+, nullable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.users, True, UserName._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeUserScramCredentialsRequest, int]:
        self = DescribeUserScramCredentialsRequest()
        self.users, at = read_nullable_structs(data, at, True, 2, "users", UserName._read_each, version)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class CredentialInfo(Struct, gc=False, kw_only=True):
    """Mechanisms that the user has a password for.

    mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    iterations: Number of hash iterations of the password.
    """

    mechanism: int = 0  # int8, versions 0+
    iterations: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CredentialInfo], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _BI.pack(self.mechanism, self.iterations)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CredentialInfo], int]:
        found: list[CredentialInfo] = []
        for _ in range(count):
            self = CredentialInfo()
            self.mechanism, self.iterations = _BI.unpack_from(data, at)
            at += 5
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[CredentialInfo], int]:
        found: list[CredentialInfo] = []
        rows, at = _ROWS_BI_COMPACT.read(data, at, most)
        for row in rows:
            mechanism, iterations = row
            self = CredentialInfo(mechanism=mechanism, iterations=iterations)
            found.append(self)
        return found, at


class DescribeUserScramCredentialsResult(Struct, gc=False, kw_only=True):
    """One entry per user.

    user: Name of the user.
    error_code: Error of this user; 0 means none. 91 says that the user has no SCRAM credentials, 92 that it was
        named twice.
    error_message: Error message; null without an error, or if the broker sends none.
    credential_infos: Mechanisms that the user has a password for.
    """

    user: str = ""  # string, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    credential_infos: list[CredentialInfo] = field(default_factory=list)  # []CredentialInfo, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeUserScramCredentialsResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.user, True, "user")
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
            write_structs(out, self.credential_infos, True, CredentialInfo._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[DescribeUserScramCredentialsResult], int]:
        found: list[DescribeUserScramCredentialsResult] = []
        for _ in range(count):
            self = DescribeUserScramCredentialsResult()
            self.user, at = read_string(data, at, True, "user")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.credential_infos, at = read_rows(data, at, True, 6, "credential_infos", CredentialInfo, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeUserScramCredentialsResponse(Message, gc=False, kw_only=True):
    """The mechanisms of each user.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    error_message: Error message; null without an error, or if the broker sends none.
    results: One entry per user.
    """

    API_KEY = 50
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    # []DescribeUserScramCredentialsResult, versions 0+
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(buffer, self.error_message, True, "error_message")
        write_structs(out, self.results, True, DescribeUserScramCredentialsResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeUserScramCredentialsResponse, int]:
        self = DescribeUserScramCredentialsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.error_message, at = read_nullable_string(data, at, True, "error_message")
        self.results, at = read_structs(
            data,
            at,
            True,
            6,
            "results",
            DescribeUserScramCredentialsResult._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
