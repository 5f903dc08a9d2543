"""SaslHandshake and SaslAuthenticate on connections that expect no (further) authentication."""

from __future__ import annotations

from typing import Final

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from magicbyte.engine.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, KIB, ONE_NAME, Route


async def sasl_handshake(_services: object, _request: Request[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    """Refuse it; the connection stays open."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def sasl_authenticate(_services: object, _request: Request[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    """Refuse it; the connection stays open."""
    why = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=why)


ROUTES: Final = (
    Route(
        ApiKey.SASL_HANDSHAKE,
        range(2),
        sasl_handshake,
        most_bytes=ONE_NAME,
        most_elements=FEW,
    ),
    Route(
        ApiKey.SASL_AUTHENTICATE,
        range(3),
        sasl_authenticate,
        most_bytes=512 * KIB,
        most_elements=FEW,
    ),
)
