"""Frames, the units of Kafka's connections: four bytes of size, a header, and a request or response.

The header's version depends on API and version: `Api.request_header_version`, `Api.response_header_version`. Source:
Kafka's protocol guide; KIP-482 (flexible headers), KIP-511 (the header of ApiVersions).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol.api import Api
from magicbyte.engine.protocol.apis import APIS
from magicbyte.engine.protocol.message import Buffer, Message, Writer
from magicbyte.engine.protocol.messages.request_header import RequestHeader
from magicbyte.engine.protocol.messages.response_header import ResponseHeader

LARGEST_FRAME: Final = 100 * 1024 * 1024  # bytes: the default of socket.request.max.bytes

LARGEST_HEADER: Final = 40 * 1024  # bytes of a request's header: the longest client id, and some tagged fields

LONG: Final = 128 * 1024  # bytes from which a frame gets a buffer of its own

SIZE_BYTES: Final = 4  # of a frame's size field, which counts the bytes after it

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_RESPONSE_HEADS = struct.Struct(">ii"), struct.Struct(">iix")
"""The size field and the header of a response, by the header's version: 1 has no tagged fields."""
_KEY = struct.Struct(">h")
_KEY_AND_VERSION = struct.Struct(">hh")


def frame_size(head: Buffer, largest: int) -> int:
    """Return the size field that `head` begins with. Raises ProtocolError if it is negative or above `largest`."""
    (size,) = _SIZE.unpack_from(head)
    if not 0 <= size <= largest:
        raise ProtocolError("size of a frame", expected=f"0 to {largest}", found=size, position=0)
    return int(size)


def framed(content: bytes) -> list[bytes]:
    """Return the frame of bytes that are no request, such as a token of SASL, as pieces to send."""
    return [_SIZE.pack(len(content)), content]


def api_key_of(frame: Buffer) -> int:
    """Return the API key of a request's frame, without its size; -1 if it is too short for one."""
    return int(_KEY.unpack_from(frame)[0]) if len(frame) >= _KEY.size else -1


def correlation_id_of(frame: Buffer) -> int:
    """Return the correlation id of a response's frame, without its size; -1 if it is too short for one."""
    return int(_CORRELATION_ID.unpack_from(frame)[0]) if len(frame) >= _CORRELATION_ID.size else -1


class Frames:
    """Split the bytes of a connection into frames.

    `reused`: long frames reuse the memory of earlier ones that are no longer referenced. That saves the system from
    clearing new memory for each.
    """

    def __init__(self, largest: int = LARGEST_FRAME, *, reused: bool = False) -> None:
        self.largest = largest
        self._reused = reused
        self.pending = bytearray()  # the start of an incomplete frame, its size included
        self._long: memoryview | None = None  # an incomplete long frame in its own buffer, its size included
        self._filled = 0

    @property
    def has_begun(self) -> bool:
        """Whether a part of a frame has come."""
        return bool(self.pending) or self._long is not None

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, without their sizes; not copied if `data` contains them whole.

        Consume all of them before the next call. Raises ProtocolError for a size that is negative or above `largest`.
        """
        view, at = memoryview(data).cast("B"), 0
        while self.pending and at < len(view):
            missing = SIZE_BYTES - len(self.pending)
            if missing <= 0:
                missing = SIZE_BYTES + self._size(self.pending) - len(self.pending)
            taken = view[at : at + missing]
            self.pending += taken
            at += len(taken)
            if len(self.pending) >= SIZE_BYTES and len(self.pending) == SIZE_BYTES + self._size(self.pending):
                whole, self.pending = self.pending, bytearray()
                yield memoryview(whole)[SIZE_BYTES:]
        while len(view) - at >= SIZE_BYTES:
            end = at + SIZE_BYTES + self._size(view[at : at + SIZE_BYTES])
            if end > len(view):
                break
            yield view[at + SIZE_BYTES : end]
            at = end
        self.pending += view[at:]

    def room(self) -> memoryview | None:
        """Return the buffer for the rest of a frame, if at least `LONG` bytes of it are missing; else None.

        Reading into it saves a copy. Call `filled` for these bytes, and `feed` for no others meanwhile.
        """
        if self._long is None and len(self.pending) >= SIZE_BYTES:
            size = SIZE_BYTES + self._size(self.pending)
            if size - len(self.pending) >= LONG:
                self._long = self._place(size)
                self._long[: len(self.pending)] = self.pending
                self._filled, self.pending = len(self.pending), bytearray()
        return None if self._long is None else self._long[self._filled :]

    def filled(self, count: int) -> memoryview | None:
        """Mark the first `count` bytes of `room` as read; return the frame, without its size, if it is complete."""
        assert self._long is not None, "there was room"
        self._filled += count
        if self._filled < len(self._long):
            return None
        whole, self._long = self._long, None
        return whole[SIZE_BYTES:]

    def _place(self, size: int) -> memoryview:
        import numpy as np

        from magicbyte.engine.records.arrays import arena

        # Unlike a bytearray, neither is zeroed first.
        return memoryview(arena(size))[:size] if self._reused else np.empty(size, np.uint8).data

    def _size(self, data: bytearray | memoryview) -> int:
        return frame_size(data, self.largest)


class FramedRequest(Struct, frozen=True):
    """A request as received: its API, header and body."""

    api: Api
    header: RequestHeader
    message: Message


def api_of(key: int) -> Api:
    """Return the API with this key. Raises UnsupportedVersionError if there is none."""
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersionError(f"API {key}", None, known=range(0))
    return api


def write_request(request: Message, version: int, *, correlation_id: int, client_id: str | None) -> Writer:
    """Return the frame of a request, with its size: `buffers` of it is what to send. Raises what `write` does."""
    assert request.API_KEY is not None, "a request has a key"
    api = APIS[request.API_KEY]
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    out = Writer()
    out.buffer += bytes(SIZE_BYTES)
    header.write(out, api.request_header_version(version))
    request.write(out, version)
    _SIZE.pack_into(out.buffer, 0, len(out) - SIZE_BYTES)
    return out


def write_response(response: Message, version: int, *, correlation_id: int) -> Writer:
    """Return the frame of a response, with its size: `buffers` of it is what to send. Raises what `write` does."""
    assert response.API_KEY is not None, "a response has a key"
    out = Writer()
    buffer = out.buffer
    buffer += _RESPONSE_HEADS[APIS[response.API_KEY].response_header_version(version)].pack(0, correlation_id)
    response.write(out, version)
    _SIZE.pack_into(buffer, 0, len(buffer) + out.attached_bytes - SIZE_BYTES)
    return out


def read_request_header(frame: Buffer) -> tuple[Api, RequestHeader, int]:
    """Return the API, the header and the position of the body of a request's frame, without its size.

    The version may be unsupported, because brokers answer ApiVersions even then. Raises UnsupportedVersionError for an
    unknown API, and ProtocolError.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise ProtocolError("request header", expected=">= 4 bytes", found=len(frame), position=0)
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = api_of(key)
    head = frame if len(frame) <= LARGEST_HEADER else memoryview(frame)[:LARGEST_HEADER]
    header, at = RequestHeader.read_at(head, 0, api.request_header_version(version))
    return api, header, at


def read_request(frame: Buffer) -> FramedRequest:
    """Return the request in a frame, without its size. Raises UnsupportedVersionError and ProtocolError."""
    api, header, at = read_request_header(frame)
    api.check(header.request_api_version)
    return FramedRequest(api, header, api.request.read(memoryview(frame)[at:], header.request_api_version))


def read_response(
    frame: Buffer, api: Api, version: int, kind: type[Message] | None = None
) -> tuple[ResponseHeader, Message]:
    """Return header and response of a frame, without its size; `api` and `version` are those of the request.

    `kind`: the class to parse it as; None: the generated one. Raises UnsupportedVersionError and ProtocolError.
    """
    api.check(version)
    header, at = ResponseHeader.read_at(frame, 0, api.response_header_version(version))
    return header, (kind or api.response).read(memoryview(frame)[at:], version)
