"""Find requests in the bytes that a client sends over one connection, some of which may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import API_VERSIONS_WITH_SOFTWARE
from magicbyte.engine.protocol.framing import LARGEST_FRAME, LARGEST_HEADER, SIZE_BYTES, frame_size, read_request_header
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest

_MOST_SURPLUS: Final = 4
"""Bytes that a client may send after the end of a request, which brokers pass over: librdkafka before 1.0 sends an
empty array in ApiVersions 0, which has none."""
_LEAST: Final = 8
"""Bytes of the shortest request, which is a header."""
_MOST_TOKENS: Final = 16
"""Frames in a row that are no requests: SaslHandshake version 0 is followed by tokens without a header."""
_MOST_TRIES: Final = 64
"""Segments that do not begin with a request, before the connection counts as not Kafka's."""
"""The first version of ApiVersions in which a client names its library (KIP-511)."""


class SeenRequest(NamedTuple):
    """The fields of a request's header that are used."""

    client_id: str
    api_key: int
    version: int


class RequestStream:
    """Find requests in one direction of a connection.

    A stream counts as Kafka's after one complete request, or two headers in a row. The first header is held back until
    then, so that other protocols are not reported as old clients. `is_whole`: the bytes begin with the connection.
    After a loss, the next request is expected at the beginning of a segment.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self.software = self.software_version = ""
        self.is_encrypted = self.is_given_up = False
        self._pending = bytearray()  # the start of a frame, including its size
        self._skipped = 0  # remaining bytes of the current frame, which are not needed
        self._follows = is_whole
        self._is_kafka = False
        self._held: SeenRequest | None = None
        self._tries = self._tokens = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes held in memory."""
        return len(self._pending)

    @property
    def has_unconfirmed(self) -> bool:
        """Whether one header of a request was found, and nothing that confirms it."""
        return self._held is not None

    def lose(self) -> None:
        """Skip to the next segment, since the start of the next request is unknown."""
        self._pending.clear()
        self._skipped, self._follows, self._is_kafka, self._held = 0, False, False, None
        self._tries += 1
        self.is_given_up = self._tries > _MOST_TRIES

    def feed(self, data: bytes, missing: int = 0) -> Iterator[SeenRequest]:
        """Yield the requests that `data` completes. `missing`: bytes after it that were not captured."""
        if self.is_given_up:
            return
        if not self._is_kafka and not self._pending and data[:1] in (b"\x16", b"\x17") and data[1:2] == b"\x03":
            self.is_encrypted = self.is_given_up = True
            return
        self._follows = self._follows or bool(data)
        while data and self._follows:
            taken = min(self._skipped, len(data))
            self._skipped -= taken
            room = SIZE_BYTES + LARGEST_HEADER - len(self._pending)
            self._pending += data[taken : taken + room]
            data = data[taken + room :]
            yield from self._complete(no_more=bool(missing) and not data)
        if missing > self._skipped:
            self.lose()
        else:
            self._skipped -= missing

    def _complete(self, *, no_more: bool) -> Iterator[SeenRequest]:
        """Yield the requests in the pending bytes. `no_more`: the bytes after them are missing."""
        while len(self._pending) >= SIZE_BYTES:
            try:
                size = frame_size(self._pending, LARGEST_FRAME)
            except ProtocolError:
                size = 0
            if size < _LEAST:
                self.lose()
                return
            end = SIZE_BYTES + size
            frame = bytes(self._pending[SIZE_BYTES:end])
            is_whole = len(frame) == size
            is_all = no_more or len(frame) >= min(size, LARGEST_HEADER)
            found = self._request(frame, is_whole=is_whole, is_all=is_all)
            if found is not None:
                yield from self._confirmed(found)
            elif not is_all:
                return
            elif not self._is_token():
                self.lose()
                return
            self._skipped = max(end - len(self._pending), 0)
            del self._pending[:end]

    def _request(self, frame: bytes, *, is_whole: bool, is_all: bool) -> SeenRequest | None:
        """Return the request at the start of a frame, None for an invalid or incomplete one."""
        try:
            api, header, at = read_request_header(frame)
            version = header.request_api_version
            tells_software = api.key == ApiKey.API_VERSIONS and version >= API_VERSIONS_WITH_SOFTWARE
            if not is_all and (tells_software or not self._is_kafka):
                return None
            if version < 0 or not (self._is_kafka or version in api.versions):
                return None
            if is_whole and version in api.versions and (tells_software or not self._is_kafka):
                body, end = api.request.read_at(frame, at, version)
                if len(frame) - end > _MOST_SURPLUS:
                    return None
                self._is_kafka = True
                if isinstance(body, ApiVersionsRequest):
                    self.software, self.software_version = body.client_software_name, body.client_software_version
        except (ProtocolError, UnsupportedVersionError):
            return None
        return SeenRequest(header.client_id or "", api.key, version)

    def _confirmed(self, request: SeenRequest) -> Iterator[SeenRequest]:
        self._tries = self._tokens = 0
        before, self._held = self._held, None
        self._is_kafka = self._is_kafka or before is not None
        if not self._is_kafka:
            self._held = request
            return
        if before is not None:
            yield before
        yield request

    def _is_token(self) -> bool:
        self._tokens += 1
        return self._is_kafka and self._tokens <= _MOST_TOKENS
