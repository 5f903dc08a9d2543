"""Control messages of the enriched dialect, which none of our commands writes."""

import struct

from magicbyte.engine.records.enriched import (
    EnrichedControl,
    LeaderEpochPayload,
    TransactionPayload,
    build_enriched_message,
)


def build_enriched_control(
    offset: int,
    control_type: EnrichedControl,
    payload: LeaderEpochPayload | TransactionPayload,
    *,
    seconds: int = -1,
    tags: bytes = b"",
) -> bytes:
    """Return one control message."""
    value = struct.pack(">ii" if control_type is EnrichedControl.LEADER_EPOCH else ">qi", *payload)
    return build_enriched_message(offset, None, value, seconds=seconds, tags=tags, control_type=control_type)
