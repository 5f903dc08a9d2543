"""The served APIs, as far as a broker must know them before it imports their handlers; `served.py` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)


class Served(NamedTuple):
    """The module of a route, and what it says about versions and cost (`serving/routes.py`)."""

    module: str
    versions: range
    most_bytes: int | None
    most_elements: int


def versions_response(listed: Mapping[int, range], error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    """Return the response with the versions of APIs by their keys."""
    keys = [
        ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1]) for key, versions in listed.items()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=keys)
