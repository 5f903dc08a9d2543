"""Client settings by the names of Kafka and librdkafka: --config FILE and -X NAME=VALUE."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.log.files.properties import parse_properties

if TYPE_CHECKING:
    from magicbyte.cli.options import F

_META: Final = "magicbyte.client.settings"


def client_options(command: F) -> F:
    """Add --config and -X, for the clients created by `client_of`."""
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
    """Return NAME=VALUE texts by name. Raises BadParameter, without the values, which may be secrets."""
    values = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter("expected NAME=VALUE, such as -X security.protocol=SSL", param_hint="-X")
        values[name.strip()] = value
    return values


def settings_given() -> dict[str, Any]:
    """Return the arguments of `Client` for the running command. Raises InvalidConfigError."""
    given = raw_settings_given()
    if not given:
        return {}
    from magicbyte.client.settings import client_arguments

    return client_arguments(given)


def raw_settings_given() -> dict[str, str]:
    """Return the client settings of the running command, unparsed."""
    context = click.get_current_context(silent=True)
    found: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    return found
