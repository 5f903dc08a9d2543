"""Generated from PushTelemetryRequest.json and PushTelemetryResponse.json. Do not edit: the schema compiler makes it.

PushTelemetryRequest: version 0, flexible 0+.
PushTelemetryResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_unknown_tags,
    read_uuid,
    read_view,
    write_records,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Records, Tags, Writer

_IH = struct.Struct(">ih")
_ITB = struct.Struct(">i?b")


class PushTelemetryRequest(Message, gc=False, kw_only=True):
    """A client sends its metrics to a broker, for the operators (KIP-714).

    client_instance_id: Id of this run of the client.
    subscription_id: Subscription that these metrics answer, as given by GetTelemetrySubscriptions.
    terminating: True with the last push before the client ends, which may come early.
    compression_type: Codec of the metrics: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    metrics: The metrics in OTLP protobuf form, compressed.
    """

    API_KEY = 72
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    client_instance_id: UUID = NULL_UUID  # uuid, versions 0+
    subscription_id: int = 0  # int32, versions 0+
    terminating: bool = False  # bool, versions 0+
    compression_type: int = 0  # int8, versions 0+
    metrics: Records = b""  # bytes, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_uuid(buffer, self.client_instance_id)
        buffer += _ITB.pack(self.subscription_id, self.terminating, self.compression_type)
        write_records(out, self.metrics, True, "metrics")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[PushTelemetryRequest, int]:
        self = PushTelemetryRequest()
        self.client_instance_id, at = read_uuid(data, at)
        self.subscription_id, self.terminating, self.compression_type = _ITB.unpack_from(data, at)
        at += 6
        self.metrics, at = read_view(data, at, True, "metrics")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class PushTelemetryResponse(Message, gc=False, kw_only=True):
    """Whether the metrics were taken.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error; 0 means taken. 117 says that the subscription has changed, 118 that there were too many bytes,
        89 that the push came too early.
    """

    API_KEY = 72
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[PushTelemetryResponse, int]:
        self = PushTelemetryResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
