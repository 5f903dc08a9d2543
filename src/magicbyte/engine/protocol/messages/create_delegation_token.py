"""Generated from CreateDelegationTokenRequest.json and CreateDelegationTokenResponse.json. Do not edit: the schema

compiler makes it.
CreateDelegationTokenRequest: versions 0-3, flexible 2+; deprecated 0.
CreateDelegationTokenResponse: versions 0-3, flexible 2+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
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

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_Q = struct.Struct(">q")
_QQQ = struct.Struct(">qqq")


class CreatableRenewers(Struct, gc=False, kw_only=True):
    """Principals besides the owner that may renew the token.

    principal_type: Kind of the principal; only User is known.
    principal_name: Name of the principal, such as alice.
    """

    principal_type: str = ""  # string, versions 0+
    principal_name: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[CreatableRenewers], out: Writer, version: int) -> None:
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
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[CreatableRenewers], int]:
        flexible = version >= 2
        found: list[CreatableRenewers] = []
        for _ in range(count):
            self = CreatableRenewers()
            self.principal_type, at = read_string(data, at, flexible, "principal_type")
            self.principal_name, at = read_string(data, at, flexible, "principal_name")
            if version >= 2:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class CreateDelegationTokenRequest(Message, gc=False, kw_only=True):
    """Makes a token that lets others log in as a user for some time, without the user's own password.

    owner_principal_type: Kind of the principal that the token is for, such as User; null or empty makes it for the
        caller.
    owner_principal_name: Name of the principal that the token is for; null or empty makes it for the caller.
    renewers: Principals besides the owner that may renew the token.
    max_lifetime_ms: Milliseconds after which the token ends even if renewed; -1 takes the broker's
        delegation.token.max.lifetime.ms.
    """

    API_KEY = 38
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    owner_principal_type: str | None = ""  # string, versions 3+, nullable
    owner_principal_name: str | None = ""  # string, versions 3+, nullable
    renewers: list[CreatableRenewers] = field(default_factory=list)  # []CreatableRenewers, versions 0+
    max_lifetime_ms: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 3 and self.owner_principal_type != "":
            raise absent("owner_principal_type")
        if version < 3 and self.owner_principal_name != "":
            raise absent("owner_principal_name")
        if version >= 3:
            write_nullable_string(buffer, self.owner_principal_type, flexible, "owner_principal_type")
            write_nullable_string(buffer, self.owner_principal_name, flexible, "owner_principal_name")
        write_structs(out, self.renewers, flexible, CreatableRenewers._write_each, version)
        buffer += _Q.pack(self.max_lifetime_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateDelegationTokenRequest, int]:
        self = CreateDelegationTokenRequest()
        flexible = version >= 2
        if version >= 3:
            self.owner_principal_type, at = read_nullable_string(data, at, flexible, "owner_principal_type")
            self.owner_principal_name, at = read_nullable_string(data, at, flexible, "owner_principal_name")
        else:
            self.owner_principal_type = ""
            self.owner_principal_name = ""
        self.renewers, at = read_structs(data, at, flexible, 3, "renewers", CreatableRenewers._read_each, version)
        (self.max_lifetime_ms,) = _Q.unpack_from(data, at)
        at += 8
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class CreateDelegationTokenResponse(Message, gc=False, kw_only=True):
    """The new token. A client with its id and its secret can log in with SCRAM as the owner.

    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    principal_type: Kind of the owner, such as User.
    principal_name: Name of the owner.
    token_requester_principal_type: Type of the principal that requested the token.
    token_requester_principal_name: Name of the principal that requested the token.
    issue_timestamp_ms: When it was made, in milliseconds since 1970.
    expiry_timestamp_ms: When it ends unless it is renewed, in milliseconds since 1970.
    max_timestamp_ms: When it ends in any case, in milliseconds since 1970.
    token_id: Id of the token, the user name for SCRAM.
    hmac: Secret of the token; in base64 the password for SCRAM.
    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    """

    API_KEY = 38
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(2, 4)

    error_code: int = 0  # int16, versions 0+
    principal_type: str = ""  # string, versions 0+
    principal_name: str = ""  # string, versions 0+
    token_requester_principal_type: str = ""  # string, versions 3+
    token_requester_principal_name: str = ""  # string, versions 3+
    issue_timestamp_ms: int = 0  # int64, versions 0+
    expiry_timestamp_ms: int = 0  # int64, versions 0+
    max_timestamp_ms: int = 0  # int64, versions 0+
    token_id: str = ""  # string, versions 0+
    hmac: bytes = b""  # bytes, versions 0+
    throttle_time_ms: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 2
        buffer = out.buffer
        if version < 3 and self.token_requester_principal_type != "":
            raise absent("token_requester_principal_type")
        if version < 3 and self.token_requester_principal_name != "":
            raise absent("token_requester_principal_name")
        buffer += _H.pack(self.error_code)
        write_string(buffer, self.principal_type, flexible, "principal_type")
        write_string(buffer, self.principal_name, flexible, "principal_name")
        if version >= 3:
            write_string(buffer, self.token_requester_principal_type, flexible, "token_requester_principal_type")
            write_string(buffer, self.token_requester_principal_name, flexible, "token_requester_principal_name")
        buffer += _QQQ.pack(self.issue_timestamp_ms, self.expiry_timestamp_ms, self.max_timestamp_ms)
        write_string(buffer, self.token_id, flexible, "token_id")
        write_bytes(buffer, self.hmac, flexible, "hmac")
        buffer += _I.pack(self.throttle_time_ms)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[CreateDelegationTokenResponse, int]:
        self = CreateDelegationTokenResponse()
        flexible = version >= 2
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.principal_type, at = read_string(data, at, flexible, "principal_type")
        self.principal_name, at = read_string(data, at, flexible, "principal_name")
        if version >= 3:
            self.token_requester_principal_type, at = read_string(data, at, flexible, "token_requester_principal_type")
            self.token_requester_principal_name, at = read_string(data, at, flexible, "token_requester_principal_name")
        else:
            self.token_requester_principal_type = ""
            self.token_requester_principal_name = ""
        self.issue_timestamp_ms, self.expiry_timestamp_ms, self.max_timestamp_ms = _QQQ.unpack_from(data, at)
        at += 24
        self.token_id, at = read_string(data, at, flexible, "token_id")
        self.hmac, at = read_bytes(data, at, flexible, "hmac")
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        if version >= 2:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
