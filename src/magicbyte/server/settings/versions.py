"""The served APIs: their versions, and the module of each handler.

The lowest version is always 0: librdkafka deduces features from it, and old clients do not ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)


class Served(NamedTuple):
    """The module with the handler, the versions, and the cost limits of one request.

    `most_bytes`: of a frame, None: the broker's `socket.request.max.bytes`, which is the upper bound for all.
    `most_elements`: of all its arrays and tagged fields. Both allow requests about 10,000 topics with names of 249
    bytes, or about 40,000 partitions, if an API can have that many.
    """

    module: str
    versions: range
    most_bytes: int | None
    most_elements: int


_KIB, _MIB = 1 << 10, 1 << 20
_ONE: Final = 256 * _KIB  # bytes for a request with one name: each string may have 32 KiB
_FEW, _MANY = 1_000, 50_000
ALL_PARTITIONS: Final = 500_000
"""Elements of a controller's request about a whole cluster: some ten for each of its partitions."""
OTHERS_MOST_BYTES: Final = _ONE
"""The largest frame of an unserved API: enough to parse its header, and refuse it."""

SERVED: Final[Mapping[int, Served]] = {
    0: Served("produce", range(13), None, _MANY),  # later ones identify topics by id
    1: Served("fetch", range(13), 8 * _MIB, _MANY),  # later ones identify topics by id
    2: Served("offsets", range(11), 8 * _MIB, _MANY),
    3: Served("metadata", range(13), 4 * _MIB, _MANY),
    4: Served("cluster_requests", range(8), 64 * _MIB, ALL_PARTITIONS),
    5: Served("cluster_requests", range(5), 64 * _MIB, ALL_PARTITIONS),
    6: Served("cluster_requests", range(9), 64 * _MIB, ALL_PARTITIONS),
    7: Served("controller_requests", range(4), _ONE, _FEW),
    8: Served("group_requests", range(10), 16 * _MIB, _MANY),  # later ones identify topics by id
    9: Served("group_requests", range(10), 8 * _MIB, _MANY),
    10: Served("find_coordinator", range(7), 4 * _MIB, _MANY),
    11: Served("group_requests", range(10), 8 * _MIB, _FEW),
    12: Served("group_requests", range(5), _ONE, _FEW),
    13: Served("group_requests", range(6), 4 * _MIB, _MANY),
    14: Served("group_requests", range(6), 16 * _MIB, _MANY),
    15: Served("group_requests", range(7), 4 * _MIB, _MANY),
    16: Served("group_requests", range(6), _ONE, _FEW),
    18: Served("api_versions", range(5), 64 * _KIB, _FEW),
    19: Served("admin_topics", range(8), 16 * _MIB, _MANY),
    20: Served("admin_topics", range(7), 4 * _MIB, _MANY),
    21: Served("admin_topics", range(3), 8 * _MIB, _MANY),
    22: Served("producers", range(6), _ONE, _FEW),
    23: Served("offsets", range(5), 8 * _MIB, _MANY),
    24: Served("transaction_requests", range(6), 8 * _MIB, _MANY),
    25: Served("transaction_requests", range(5), _ONE, _FEW),
    26: Served("transaction_requests", range(6), _ONE, _FEW),
    27: Served("transaction_requests", range(2), 8 * _MIB, _MANY),
    28: Served("group_requests", range(6), 16 * _MIB, _MANY),
    29: Served("admin_acls", range(4), _ONE, _FEW),
    30: Served("admin_acls", range(4), 4 * _MIB, _MANY),
    31: Served("admin_acls", range(4), 4 * _MIB, _MANY),
    17: Served("login_requests", range(2), _ONE, _FEW),
    36: Served("login_requests", range(3), 512 * _KIB, _FEW),
    48: Served("admin_quotas", range(2), _ONE, _FEW),
    49: Served("admin_quotas", range(2), 4 * _MIB, _MANY),
    50: Served("admin_scram", range(1), 4 * _MIB, _MANY),
    51: Served("admin_scram", range(1), 4 * _MIB, _MANY),
    42: Served("group_requests", range(3), 4 * _MIB, _MANY),
    47: Served("group_requests", range(1), 8 * _MIB, _MANY),
    32: Served("admin_configs", range(5), 4 * _MIB, _MANY),
    33: Served("admin_configs", range(3), 16 * _MIB, _MANY),
    34: Served("admin_cluster", range(3), 8 * _MIB, _MANY),
    35: Served("admin_cluster", range(5), 8 * _MIB, _MANY),
    37: Served("admin_topics", range(4), 16 * _MIB, _MANY),
    43: Served("controller_requests", range(3), 4 * _MIB, _MANY),
    44: Served("admin_configs", range(2), 16 * _MIB, _MANY),
    45: Served("controller_requests", range(2), 8 * _MIB, _MANY),
    46: Served("controller_requests", range(1), 4 * _MIB, _MANY),
    56: Served("controller_requests", range(2), 8 * _MIB, _MANY),  # later ones identify topics by id
    60: Served("admin_cluster", range(3), _ONE, _FEW),
    61: Served("admin_cluster", range(1), 8 * _MIB, _MANY),
    65: Served("transaction_requests", range(1), 4 * _MIB, _MANY),
    67: Served("controller_requests", range(1), _ONE, _FEW),
    66: Served("transaction_requests", range(2), _ONE, _FEW),  # later ones have patterns
}
"""By API key."""


def versions_response(listed: Mapping[int, range], error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    """Return the response with the versions of APIs by their keys."""
    keys = [
        ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1]) for key, versions in listed.items()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=keys)
