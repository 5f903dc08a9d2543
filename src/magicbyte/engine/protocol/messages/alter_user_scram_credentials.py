"""Generated from AlterUserScramCredentialsRequest.json and AlterUserScramCredentialsResponse.json. Do not edit: the

schema compiler makes it.
AlterUserScramCredentialsRequest: version 0, flexible 0+.
AlterUserScramCredentialsResponse: version 0, flexible 0+.
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

_B = struct.Struct(">b")
_BI = struct.Struct(">bi")
_H = struct.Struct(">h")
_I = struct.Struct(">i")


class ScramCredentialDeletion(Struct, gc=False, kw_only=True):
    """Credentials to remove.

    name: Name of the user.
    mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    """

    name: str = ""  # string, versions 0+
    mechanism: int = 0  # int8, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ScramCredentialDeletion], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _B.pack(self.mechanism)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ScramCredentialDeletion], int]:
        found: list[ScramCredentialDeletion] = []
        for _ in range(count):
            self = ScramCredentialDeletion()
            self.name, at = read_string(data, at, True, "name")
            (self.mechanism,) = _B.unpack_from(data, at)
            at += 1
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class ScramCredentialUpsertion(Struct, gc=False, kw_only=True):
    """Credentials to set, whether the user had some before or not.

    name: Name of the user.
    mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    iterations: Number of hash iterations of the password: 4096 to 16384.
    salt: Random bytes that went into the hash.
    salted_password: The password after salting and hashing, from which the broker derives its keys.
    """

    name: str = ""  # string, versions 0+
    mechanism: int = 0  # int8, versions 0+
    iterations: int = 0  # int32, versions 0+
    salt: bytes = b""  # bytes, versions 0+
    salted_password: bytes = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[ScramCredentialUpsertion], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, True, "name")
            buffer += _BI.pack(self.mechanism, self.iterations)
            write_bytes(buffer, self.salt, True, "salt")
            write_bytes(buffer, self.salted_password, True, "salted_password")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[ScramCredentialUpsertion], int]:
        found: list[ScramCredentialUpsertion] = []
        for _ in range(count):
            self = ScramCredentialUpsertion()
            self.name, at = read_string(data, at, True, "name")
            self.mechanism, self.iterations = _BI.unpack_from(data, at)
            at += 5
            self.salt, at = read_bytes(data, at, True, "salt")
            self.salted_password, at = read_bytes(data, at, True, "salted_password")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterUserScramCredentialsRequest(Message, gc=False, kw_only=True):
    """Sets or removes the passwords of SCRAM users. Only salted hashes are sent.

    deletions: Credentials to remove.
    upsertions: Credentials to set, whether the user had some before or not.
    """

    API_KEY = 51
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)  # []ScramCredentialDeletion, versions 0+
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)  # []ScramCredentialUpsertion, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_structs(out, self.deletions, True, ScramCredentialDeletion._write_each, version)
        write_structs(out, self.upsertions, True, ScramCredentialUpsertion._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterUserScramCredentialsRequest, int]:
        self = AlterUserScramCredentialsRequest()
        self.deletions, at = read_structs(data, at, True, 3, "deletions", ScramCredentialDeletion._read_each, version)
        self.upsertions, at = read_structs(
            data,
            at,
            True,
            9,
            "upsertions",
            ScramCredentialUpsertion._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class AlterUserScramCredentialsResult(Struct, gc=False, kw_only=True):
    """One result per user, whether set or removed.

    user: Name of the user.
    error_code: Error of this user; 0 means changed. 91 says that there was nothing to remove, 92 that the user is
        named twice, 93 that the new credential is not acceptable.
    error_message: Error message; null without an error, or if the broker sends none.
    """

    user: str = ""  # string, versions 0+
    error_code: int = 0  # int16, versions 0+
    error_message: str | None = ""  # string, versions 0+, nullable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AlterUserScramCredentialsResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.user, True, "user")
            buffer += _H.pack(self.error_code)
            write_nullable_string(buffer, self.error_message, True, "error_message")
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
    ) -> tuple[list[AlterUserScramCredentialsResult], int]:
        found: list[AlterUserScramCredentialsResult] = []
        for _ in range(count):
            self = AlterUserScramCredentialsResult()
            self.user, at = read_string(data, at, True, "user")
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.error_message, at = read_nullable_string(data, at, True, "error_message")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AlterUserScramCredentialsResponse(Message, gc=False, kw_only=True):
    """Result for each user's credentials.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    results: One result per user, whether set or removed.
    """

    API_KEY = 51
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    # []AlterUserScramCredentialsResult, versions 0+
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.results, True, AlterUserScramCredentialsResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AlterUserScramCredentialsResponse, int]:
        self = AlterUserScramCredentialsResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.results, at = read_structs(
            data,
            at,
            True,
            5,
            "results",
            AlterUserScramCredentialsResult._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
