"""Which requests are answered, in which versions, and by which file; ApiVersions, which says so.

No lower end is ever above 0: librdkafka takes features from the lowest versions, and old clients do not ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.broker.request import Handler, Request
from magicbyte.errors import ErrorCode
from magicbyte.protocol.api import API_VERSIONS
from magicbyte.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.releases import Release


class Served(NamedTuple):
    """The file of this folder that has the handler, and the versions."""

    module: str
    versions: range


SERVED: Final[Mapping[int, Served]] = {
    0: Served("produce", range(12)),
    1: Served("fetch", range(13)),  # later ones name topics by their ids
    2: Served("offsets", range(11)),
    3: Served("metadata", range(13)),
    8: Served("groups", range(10)),  # later ones name topics by their ids
    9: Served("groups", range(10)),
    10: Served("groups", range(7)),
    11: Served("groups", range(10)),
    12: Served("groups", range(5)),
    13: Served("groups", range(6)),
    14: Served("groups", range(6)),
    15: Served("groups", range(7)),
    16: Served("groups", range(6)),
    18: Served("versions", range(5)),
    19: Served("admin_topics", range(8)),
    20: Served("admin_topics", range(7)),
    21: Served("admin_topics", range(3)),
    22: Served("producers", range(5)),  # the next one is about transactions
    23: Served("offsets", range(5)),
    29: Served("admin_acls", range(4)),
    30: Served("admin_acls", range(4)),
    31: Served("admin_acls", range(4)),
    42: Served("groups", range(3)),
    47: Served("groups", range(1)),
    32: Served("admin_configs", range(5)),
    33: Served("admin_configs", range(3)),
    35: Served("admin_cluster", range(5)),
    37: Served("admin_topics", range(4)),
    44: Served("admin_configs", range(2)),
    60: Served("admin_cluster", range(3)),
    61: Served("admin_cluster", range(1)),
}
"""By API key."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3


def versions_response(listed: Mapping[int, range], error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    """Return which versions of which APIs, by their keys, there are."""
    keys = [
        ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1]) for key, versions in listed.items()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def unsupported_versions(release: Release) -> ApiVersionsResponse:
    """Return the answer, in version 0, to ApiVersions in a version that is too new (KIP-511)."""
    listed = {API_VERSIONS: release.listed[API_VERSIONS]} if release.tells_range else {}
    return versions_response(listed, ErrorCode.UNSUPPORTED_VERSION)


async def api_versions(broker: Broker, request: Request[ApiVersionsRequest]) -> ApiVersionsResponse:
    """Say which versions are served, and note what the client is."""
    if request.version >= _FIRST_WITH_SOFTWARE:
        name, version = request.message.client_software_name, request.message.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.connection.software_name, request.connection.software_version = name, version
    return versions_response(broker.release.listed)


HANDLERS: Final[Mapping[type, Handler]] = {ApiVersionsRequest: api_versions}
