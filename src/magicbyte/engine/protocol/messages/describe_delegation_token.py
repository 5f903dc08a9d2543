"""Generated from DescribeDelegationTokenRequest.json and DescribeDelegationTokenResponse.json. Do not edit: the schema

compiler makes it.
DescribeDelegationTokenRequest: versions 0-3, flexible 2+; deprecated 0.
DescribeDelegationTokenResponse: versions 0-3, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_bytes,
    read_nullable_structs,
    read_string,
    read_structs,
    read_unknown_tags,
    write_bytes,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_QQQ = struct.Struct(">qqq")


class DescribeDelegationTokenOwner(Struct, gc=False, kw_only=True):
    """Owners of the requested tokens; null requests all.

    principal_type: Kind of the owner, such as User.
    principal_name: Name of the owner.
    """

    principal_type: str = ""  # string, versions 0+
    principal_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribeDelegationTokenOwner], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.principal_type, flexible, "principal_type")
            write_string(buffer, self.principal_name, flexible, "principal_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[DescribeDelegationTokenOwner], int]:
        flexible = version >= 2
        found: list[DescribeDelegationTokenOwner] = []
        for _ in range(count):
            self = DescribeDelegationTokenOwner()
            self.principal_type, at = read_string(data, at, flexible, "principal_type")
            self.principal_name, at = read_string(data, at, flexible, "principal_name")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeDelegationTokenRequest(Message, gc=False, kw_only=True):
    """Asks for tokens that the caller may see.

    owners: Owners of the requested tokens; null requests all.
    """

    API_KEY = 41
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    # []DescribeDelegationTokenOwner, versions 0+, nullable
    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        write_structs(out, self.owners, flexible, DescribeDelegationTokenOwner._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeDelegationTokenRequest, int]:
        self = DescribeDelegationTokenRequest()
        flexible = version >= 2
        self.owners, at = read_nullable_structs(
            data,
            at,
            flexible,
            3,
            "owners",
            DescribeDelegationTokenOwner._read_each,
            version,
        )
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class DescribedDelegationTokenRenewer(Struct, gc=False, kw_only=True):
    """Principals besides the owner that may renew it.

    principal_type: Kind of the principal, such as User.
    principal_name: Name of the principal, such as alice.
    """

    principal_type: str = ""  # string, versions 0+
    principal_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedDelegationTokenRenewer], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.principal_type, flexible, "principal_type")
            write_string(buffer, self.principal_name, flexible, "principal_name")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[DescribedDelegationTokenRenewer], int]:
        flexible = version >= 2
        found: list[DescribedDelegationTokenRenewer] = []
        for _ in range(count):
            self = DescribedDelegationTokenRenewer()
            self.principal_type, at = read_string(data, at, flexible, "principal_type")
            self.principal_name, at = read_string(data, at, flexible, "principal_name")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribedDelegationToken(Struct, gc=False, kw_only=True):
    """One entry per token.

    principal_type: Kind of the owner, such as User.
    principal_name: Name of the owner.
    token_requester_principal_type: Type of the principal that requested the token.
    token_requester_principal_name: Name of the principal that requested the token.
    issue_timestamp: When it was made, in milliseconds since 1970.
    expiry_timestamp: When it ends unless it is renewed, in milliseconds since 1970.
    max_timestamp: When it ends in any case, in milliseconds since 1970.
    token_id: Id of the token, the user name for SCRAM.
    hmac: Secret of the token; in base64 the password for SCRAM.
    renewers: Principals besides the owner that may renew it.
    """

    principal_type: str = ""  # string, versions 0+
    principal_name: str = ""  # string, versions 0+
    token_requester_principal_type: str = ""  # string, versions 3+
    token_requester_principal_name: str = ""  # string, versions 3+
    issue_timestamp: int = 0  # int64, versions 0+
    expiry_timestamp: int = 0  # int64, versions 0+
    max_timestamp: int = 0  # int64, versions 0+
    token_id: str = ""  # string, versions 0+
    hmac: bytes = b""  # bytes, versions 0+
    # []DescribedDelegationTokenRenewer, versions 0+
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[DescribedDelegationToken], out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        for self in structs:
            if version < 3 and self.token_requester_principal_type != "":
                raise absent("token_requester_principal_type")
            if version < 3 and self.token_requester_principal_name != "":
                raise absent("token_requester_principal_name")
            write_string(buffer, self.principal_type, flexible, "principal_type")
            write_string(buffer, self.principal_name, flexible, "principal_name")
            if version >= 3:
                write_string(buffer, self.token_requester_principal_type, flexible, "token_requester_principal_type")
                write_string(buffer, self.token_requester_principal_name, flexible, "token_requester_principal_name")
            buffer += _QQQ.pack(self.issue_timestamp, self.expiry_timestamp, self.max_timestamp)
            write_string(buffer, self.token_id, flexible, "token_id")
            write_bytes(buffer, self.hmac, flexible, "hmac")
            write_structs(out, self.renewers, flexible, DescribedDelegationTokenRenewer._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[DescribedDelegationToken], int]:
        flexible = version >= 2
        found: list[DescribedDelegationToken] = []
        for _ in range(count):
            self = DescribedDelegationToken()
            self.principal_type, at = read_string(data, at, flexible, "principal_type")
            self.principal_name, at = read_string(data, at, flexible, "principal_name")
            if version >= 3:
                self.token_requester_principal_type, at = read_string(
                    data,
                    at,
                    flexible,
                    "token_requester_principal_type",
                )
                self.token_requester_principal_name, at = read_string(
                    data,
                    at,
                    flexible,
                    "token_requester_principal_name",
                )
            else:
                self.token_requester_principal_type = ""
                self.token_requester_principal_name = ""
            self.issue_timestamp, self.expiry_timestamp, self.max_timestamp = _QQQ.unpack_from(data, at)
            at += 24
            self.token_id, at = read_string(data, at, flexible, "token_id")
            self.hmac, at = read_bytes(data, at, flexible, "hmac")
            self.renewers, at = read_structs(
                data,
                at,
                flexible,
                3,
                "renewers",
                DescribedDelegationTokenRenewer._read_each,
                version,
            )
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class DescribeDelegationTokenResponse(Message, gc=False, kw_only=True):
    """The tokens that were found.

    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    tokens: One entry per token.
    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    """

    API_KEY = 41
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    error_code: int = 0  # int16, versions 0+
    tokens: list[DescribedDelegationToken] = field(default_factory=list)  # []DescribedDelegationToken, versions 0+
    throttle_time_ms: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_structs(out, self.tokens, flexible, DescribedDelegationToken._write_each, version)
        buffer += _I.pack(self.throttle_time_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeDelegationTokenResponse, int]:
        self = DescribeDelegationTokenResponse()
        flexible = version >= 2
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.tokens, at = read_structs(data, at, flexible, 30, "tokens", DescribedDelegationToken._read_each, version)
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
