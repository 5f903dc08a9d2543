"""Generated from GetTelemetrySubscriptionsRequest.json and GetTelemetrySubscriptionsResponse.json. Do not edit: the

schema compiler makes it.
GetTelemetrySubscriptionsRequest: version 0, flexible 0+.
GetTelemetrySubscriptionsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from msgspec import field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_array,
    read_numbers,
    read_string,
    read_unknown_tags,
    read_uuid,
    write_array,
    write_string,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_IIT = struct.Struct(">ii?")
_SHAPES_I_BIIT_COMPACT = Shapes("i[bii?", flexible=True)


class GetTelemetrySubscriptionsRequest(Message, gc=False, kw_only=True):
    """A client asks which of its metrics the operators want (KIP-714).

    client_instance_id: Id of this run of the client; all zeros at the first time, and the answer then has one.
    """

    API_KEY = 71
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    client_instance_id: UUID = NULL_UUID  # uuid, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_uuid(buffer, self.client_instance_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[GetTelemetrySubscriptionsRequest, int]:
        self = GetTelemetrySubscriptionsRequest()
        self.client_instance_id, at = read_uuid(data, at)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class GetTelemetrySubscriptionsResponse(Message, gc=False, kw_only=True):
    """The metrics to send, their interval and encoding.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    client_instance_id: Id of this run of the client, to be used from now on.
    subscription_id: Changes with the subscription; is part of every push, so that the broker recognizes outdated
        ones.
    accepted_compression_types: Codecs that the broker takes, best first: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    push_interval_ms: Milliseconds between two pushes.
    telemetry_max_bytes: Most bytes in one push.
    delta_temporality: True if counters are deltas since the last push, false if they are totals since the start.
    requested_metrics: Prefixes of the requested names; empty means none, one empty string means all.
    """

    API_KEY = 71
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    client_instance_id: UUID = NULL_UUID  # uuid, versions 0+
    subscription_id: int = 0  # int32, versions 0+
    accepted_compression_types: tuple[int, ...] = ()  # []int8, versions 0+
    push_interval_ms: int = 0  # int32, versions 0+
    telemetry_max_bytes: int = 0  # int32, versions 0+
    delta_temporality: bool = False  # bool, versions 0+
    requested_metrics: list[str] = field(default_factory=list)  # []string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        write_uuid(buffer, self.client_instance_id)
        lengths = (len(self.accepted_compression_types),)
        buffer += _SHAPES_I_BIIT_COMPACT[lengths](
            self.subscription_id,
            lengths[0] + 1,
            *self.accepted_compression_types,
            self.push_interval_ms,
            self.telemetry_max_bytes,
            self.delta_temporality,
        )
        write_array(buffer, self.requested_metrics, True, write_string, True, "requested_metrics")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[GetTelemetrySubscriptionsResponse, int]:
        self = GetTelemetrySubscriptionsResponse()
        self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
        at += 6
        self.client_instance_id, at = read_uuid(data, at)
        (self.subscription_id,) = _I.unpack_from(data, at)
        at += 4
        self.accepted_compression_types, at = read_numbers(data, at, True, "b", "accepted_compression_types")
        self.push_interval_ms, self.telemetry_max_bytes, self.delta_temporality = _IIT.unpack_from(data, at)
        at += 9
        self.requested_metrics, at = read_array(
            data,
            at,
            True,
            1,
            "requested_metrics",
            read_string,
            True,
            "requested_metrics",
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
