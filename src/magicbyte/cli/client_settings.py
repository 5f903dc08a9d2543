"""Settings of clients by the names of Kafka and librdkafka: --config FILE and -X NAME=VALUE."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.errors import InvalidConfigError
from magicbyte.log.files.properties import parse_properties

if TYPE_CHECKING:
    from magicbyte.cli.options import F

CLIENT_SETTINGS: Final = {
    "client.id": "client_id",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "delivery.timeout.ms": "retry_ms",
    "retry.backoff.ms": "backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
"""Kafka's names of what a client takes, beside those of security."""
_META: Final = "magicbyte.client.settings"


def client_options(command: F) -> F:
    """Add --config and -X: for the clients that `client_of` makes."""
    config = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        is_eager=True,
        callback=_from_file,
        metavar="FILE",
        help="A properties file with settings of the client, such as security.protocol, ssl.* and sasl.*.",
    )
    single = click.option(
        "-X",
        "x_settings",
        multiple=True,
        expose_value=False,
        callback=_from_options,
        metavar="NAME=VALUE",
        help="A setting of the client; it overrides the file. ${env:NAME} reads it from the environment, for secrets.",
    )
    return config(single(command))


def _from_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta.setdefault(_META, {}).update(parse_properties(path.read_bytes()))


def _from_options(context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> None:
    context.meta.setdefault(_META, {}).update(named_values(given))


def named_values(given: tuple[str, ...]) -> dict[str, str]:
    """Return NAME=VALUE texts by name. Raises BadParameter, which shows no value."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter("expected NAME=VALUE, such as -X security.protocol=SSL", param_hint="-X")
        found[name.strip()] = value
    return found


def settings_given() -> dict[str, Any]:
    """Return what `Client` is to be given for the command that runs. Raises InvalidConfigError."""
    context = click.get_current_context(silent=True)
    return {} if context is None else client_arguments(context.meta.get(_META, {}))


def client_arguments(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what `Client` is to be given for settings. Raises InvalidConfigError."""
    if not settings:
        return {}
    from magicbyte.security.settings import SETTINGS, ClientSecurity, unknown

    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name in SETTINGS:
            continue
        if name not in CLIENT_SETTINGS:
            raise InvalidConfigError(unknown(name, SETTINGS | CLIENT_SETTINGS.keys()))
        if name != "client.id" and not value.isdecimal():
            raise InvalidConfigError(f"{name}: expected a number of milliseconds, found {value!r}")
        found[CLIENT_SETTINGS[name]] = value if name == "client.id" else int(value)
    secured = {name: value for name, value in settings.items() if name in SETTINGS}
    if secured:
        found["security"] = ClientSecurity.of(secured)
    return found
