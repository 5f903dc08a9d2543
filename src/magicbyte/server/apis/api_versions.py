"""ApiVersions: the supported versions, and the client's software name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import API_VERSIONS_WITH_SOFTWARE
from magicbyte.engine.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, KIB, Route
from magicbyte.server.serving.shared_answers import SharedAnswer
from magicbyte.server.settings.offer import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from magicbyte.server.settings.versions import versions_response

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.settings.offer import Offer

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_LEVEL_0: Final = 4
_FIRST_WITH_CLUSTER: Final = 5


async def api_versions(broker: BrokerParts, request: Request[ApiVersionsRequest]) -> Message:
    """Return the supported versions, and record the client's software."""
    if request.version >= API_VERSIONS_WITH_SOFTWARE:
        name, version = request.message.client_software_name, request.message.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if request.version >= _FIRST_WITH_CLUSTER and (code := _wrong_broker(broker, request.message)):
            return ApiVersionsResponse(error_code=code)
        request.connection.software_name, request.connection.software_version = name, version
    offer, answers = broker.runtime.offer, broker.shared_answers
    if broker.runtime.quotas.is_limiting:
        return _offered(offer, request.version)
    image, key = broker.cluster_store.image, (ApiKey.API_VERSIONS, request.version)
    answer = answers.find(image, key)
    if answer is None:
        answer = SharedAnswer(_offered(offer, request.version), request.version)
        answers.put(image, key, answer, len(offer.listed))
    return answer


def _wrong_broker(broker: BrokerParts, message: ApiVersionsRequest) -> ErrorCode:
    """Return the error of a client that means to reach another cluster, or another broker of it (KIP-1242)."""
    if (message.cluster_id is None) != (message.node_id == NO_BROKER):
        return ErrorCode.INVALID_REQUEST
    meant = message.cluster_id, message.node_id
    if meant in ((None, NO_BROKER), (broker.cluster_id, broker.runtime.node_id)):
        return ErrorCode.NONE
    return ErrorCode.REBOOTSTRAP_REQUIRED


def _offered(offer: Offer, version: int) -> ApiVersionsResponse:
    response = versions_response(offer.listed)
    features = (
        (GROUP_VERSION, offer.group_version),
        (SHARE_VERSION, offer.share_version),
        (TRANSACTION_VERSION, offer.transaction_version),
    )
    levels = [(name, level) for name, level in features if level]
    if version >= _FIRST_WITH_LEVEL_0:  # earlier clients could not parse a 0
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in levels
        ]
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level) for name, level in levels
    ]
    if offer.has_features:
        response.finalized_features_epoch = 0
    return response


ROUTES: Final = (
    Route(
        ApiKey.API_VERSIONS,
        range(6),
        api_versions,
        most_bytes=64 * KIB,
        most_elements=FEW,
    ),
)
