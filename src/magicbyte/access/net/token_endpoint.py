"""Bearer tokens from a token endpoint, by OAuth's client-credentials flow (RFC 6749, section 4.4).

One request over HTTP or HTTPS, bounded in time and bytes. Redirects are not followed, so that no secret goes elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlencode

from magicbyte.access.net.timed_http import timed_handlers
from magicbyte.access.security.settings import TokenEndpoint, checked_token
from magicbyte.engine.errors import InvalidConfigError, NetworkError, SecurityError

PATIENCE_S: Final = 10.0
_MOST_BYTES: Final = 1 << 18
_ERRORS: Final = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope",
    }
)  # fmt: skip
"""The error codes of endpoints (RFC 6749, section 5.2) that are shown; any other text is not."""


async def fetch_token(endpoint: TokenEndpoint, *, patience_s: float = PATIENCE_S) -> str:
    """Return a new token, which must come within `patience_s`.

    Raises SecurityError if the endpoint refuses, InvalidConfigError for an invalid response or `ca_file`, NetworkError.
    """
    return await asyncio.to_thread(_fetch, endpoint, patience_s)


def _fetch(endpoint: TokenEndpoint, patience_s: float) -> str:
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    basic = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    request = urllib.request.Request(endpoint.url, urlencode(form).encode(), headers)
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except OSError as error:
        why = f"https.ca.location: {endpoint.ca_file}: expected certificates as PEM: {error.strerror}"
        raise InvalidConfigError(why) from None
    try:
        with _opener(context, patience_s).open(request, timeout=patience_s) as response:
            data = response.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise SecurityError(f"{endpoint.url}: no token for client {endpoint.client_id}: {_reason(error)}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NetworkError(f"{endpoint.url}: no answer to a request for a token: {reason}") from None
    found = _object(data) if len(data) <= _MOST_BYTES else {}
    return checked_token(endpoint.url, str(found.get("access_token", "")))


def _opener(context: ssl.SSLContext, patience_s: float) -> urllib.request.OpenerDirector:
    """Return an opener with the necessary handlers of urllib, without the one for redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        *timed_handlers(patience_s, context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        said = _object(error.read(_MOST_BYTES)).get("error")
    except (OSError, http.client.HTTPException):
        said = None
    return f"{error.code} {said}" if said in _ERRORS else f"status {error.code}"


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
