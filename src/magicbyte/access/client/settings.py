"""Convert client settings, by the names of Kafka and librdkafka, to the arguments of `Client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from magicbyte.engine.errors import InvalidConfigError

CLIENT_SETTINGS: Final = {
    "client.id": "client_id",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "delivery.timeout.ms": "retry_ms",
    "retry.backoff.ms": "backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
"""Kafka's names of the client's arguments, besides those of security."""


def client_arguments(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `Client` for settings. Raises InvalidConfigError."""
    if not settings:
        return {}
    from magicbyte.access.security.settings import SETTINGS, ClientSecurity, unknown

    arguments: dict[str, Any] = {}
    for name, value in settings.items():
        if name in SETTINGS:
            continue
        if name not in CLIENT_SETTINGS:
            raise InvalidConfigError(unknown(name, SETTINGS | CLIENT_SETTINGS.keys()))
        if name != "client.id" and not value.isdecimal():
            raise InvalidConfigError(f"{name}: expected a number of milliseconds, found {value!r}")
        arguments[CLIENT_SETTINGS[name]] = value if name == "client.id" else int(value)
    secured = {name: value for name, value in settings.items() if name in SETTINGS}
    if secured:
        arguments["security"] = ClientSecurity.of(secured)
    return arguments
