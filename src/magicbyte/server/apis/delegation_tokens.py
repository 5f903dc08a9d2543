"""Delegation tokens (KIP-48), which are off here, as in Kafka without `delegation.token.secret.key`.

Source: Kafka's KafkaApis: requests for tokens need an authenticated connection, and are refused if there are no tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.cluster.principal import ANONYMOUS
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from magicbyte.engine.protocol.messages.describe_delegation_token import DescribeDelegationTokenResponse
from magicbyte.engine.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from magicbyte.engine.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from magicbyte.server.serving.routes import FEW, ONE_NAME, Route

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import ClientConnection, Request

_NONE_MS: Final = -1
_FIRST_WITH_REQUESTER: Final = 3


def _refusal(connection: ClientConnection) -> ErrorCode:
    protocol = connection.listener.security_protocol
    if protocol == "PLAINTEXT" or (protocol == "SSL" and connection.principal == ANONYMOUS):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def create_token(
    _broker: BrokerParts, request: Request[CreateDelegationTokenRequest]
) -> CreateDelegationTokenResponse:
    """Refuse to make a token."""
    message, requester = request.message, request.connection.principal
    return CreateDelegationTokenResponse(
        error_code=_refusal(request.connection),
        principal_type=message.owner_principal_type or requester.type,
        principal_name=message.owner_principal_name or requester.name,
        token_requester_principal_type=requester.type if request.version >= _FIRST_WITH_REQUESTER else "",
        token_requester_principal_name=requester.name if request.version >= _FIRST_WITH_REQUESTER else "",
        issue_timestamp_ms=_NONE_MS,
        expiry_timestamp_ms=_NONE_MS,
        max_timestamp_ms=_NONE_MS,
    )


async def renew_token(_broker: BrokerParts, request: Request[Any]) -> RenewDelegationTokenResponse:
    """Refuse to renew a token."""
    return RenewDelegationTokenResponse(error_code=_refusal(request.connection), expiry_timestamp_ms=_NONE_MS)


async def expire_token(_broker: BrokerParts, request: Request[Any]) -> ExpireDelegationTokenResponse:
    """Refuse to end a token."""
    return ExpireDelegationTokenResponse(error_code=_refusal(request.connection), expiry_timestamp_ms=_NONE_MS)


async def describe_tokens(_broker: BrokerParts, request: Request[Any]) -> DescribeDelegationTokenResponse:
    """Refuse to describe tokens."""
    return DescribeDelegationTokenResponse(error_code=_refusal(request.connection))


ROUTES: Final = (
    Route(
        ApiKey.CREATE_DELEGATION_TOKEN,
        range(4),
        create_token,
        most_bytes=ONE_NAME,
        most_elements=FEW,
    ),
    Route(
        ApiKey.RENEW_DELEGATION_TOKEN,
        range(3),
        renew_token,
        most_bytes=ONE_NAME,
        most_elements=FEW,
    ),
    Route(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        range(3),
        expire_token,
        most_bytes=ONE_NAME,
        most_elements=FEW,
    ),
    Route(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        range(4),
        describe_tokens,
        most_bytes=ONE_NAME,
        most_elements=FEW,
    ),
)
