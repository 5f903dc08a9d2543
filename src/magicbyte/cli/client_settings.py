"""Client settings by the names of Kafka and librdkafka: --config FILE and -X NAME=VALUE."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.engine.log.files.filesystem import read_regular
from magicbyte.engine.log.files.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from magicbyte.cli.options import F

    Store: TypeAlias = Callable[[click.Context, dict[str, str], Path | None], None]

_META: Final = "magicbyte.access.client.settings"


def client_options(command: F) -> F:
    """Add --config and -X, for the clients created by `client_of`."""

    def store(context: click.Context, settings: dict[str, str], _path: Path | None) -> None:
        context.meta.setdefault(_META, {}).update(settings)

    help_of_file = "A properties file with settings of the client, such as security.protocol, ssl.* and sasl.*."
    help_of_one = (
        "A setting of the client; it overrides the file. ${env:NAME} reads it from the environment, for secrets."
    )
    return config_option(store, help_of_file)(setting_option(store, "NAME=VALUE", help_of_one)(command))


def config_option(store: Store, text: str) -> Callable[[F], F]:
    """Add --config FILE with `text` as its help. `store` gets the file's properties, before other options are read."""

    def read(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
        if path is not None:
            store(context, parse_properties(read_regular(path)), path)

    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        is_eager=True,
        callback=read,
        metavar="FILE",
        help=text,
    )


def setting_option(store: Store, metavar: str, text: str) -> Callable[[F], F]:
    """Add -X, any number of times, with `text` as its help. `store` gets all of them, without a path."""

    def take(context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> None:
        store(context, named_values(given), None)

    return click.option(
        "-X", "x_settings", multiple=True, expose_value=False, callback=take, metavar=metavar, help=text
    )


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
    from magicbyte.access.client.settings import client_arguments

    return client_arguments(given)


def raw_settings_given() -> dict[str, str]:
    """Return the client settings of the running command, unparsed."""
    context = click.get_current_context(silent=True)
    found: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    return found
