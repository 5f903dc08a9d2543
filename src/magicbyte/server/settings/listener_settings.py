"""The names of settings that secure a listener. `listener_security.py` parses them at the broker's start."""

from __future__ import annotations

import re
from typing import Final

from magicbyte.access.security.settings import KEYSTORE, TRUSTSTORE

_OWN: Final = re.compile(
    r"listener\.name\.[a-z0-9_.-]+?\.((?:ssl|sasl)\..*|[a-z0-9-]+\.(?:sasl\.jaas\.config|connections\.max\.reauth\.ms))"
)
TLS: Final = (*TRUSTSTORE, *KEYSTORE, "ssl.enabled.protocols", "ssl.cipher.suites")
OF_CLIENTS: Final = (*TLS, "ssl.endpoint.identification.algorithm")
REAUTHENTICATION: Final = "connections.max.reauth.ms"
JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
SKEW: Final = "sasl.oauthbearer.clock.skew.seconds"
PRINCIPAL_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
_TOKENS: Final = (JWKS, AUDIENCE, ISSUER, SKEW, PRINCIPAL_CLAIM)
MAPPING: Final = "ssl.principal.mapping.rules"
OF_LISTENERS: Final = (*OF_CLIENTS, *_TOKENS, "ssl.client.auth", "sasl.enabled.mechanisms", MAPPING)
"""Settings of all listeners, or with the prefix `listener.name.NAME.` of one."""


def is_of_security(name: str) -> bool:
    """Return whether a setting is parsed there, for all listeners or for one. Users belong to one listener."""
    own = _OWN.fullmatch(name)
    if own is not None and own[1].endswith((".sasl.jaas.config", f".{REAUTHENTICATION}")):
        return True
    return (name if own is None else own[1]) in OF_LISTENERS
