"""Settings of the two clients of a command, at its source and its target: --config FILE and -X SIDE.NAME=VALUE."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.access.client.settings import CLIENT_SETTINGS, client_arguments
from magicbyte.access.security.settings import SETTINGS
from magicbyte.cli.client_settings import config_option, setting_option
from magicbyte.engine.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magicbyte.cli.options import F

SIDES: Final = ("source", "target")
_KNOWN: Final = SETTINGS | CLIENT_SETTINGS.keys()
_META: Final = "magicbyte.clients.of.sides"


def side_options(example: str) -> Callable[[F], F]:
    """Add --config and -X. `example`: an option of the command, as it is written in the file."""
    config = config_option(
        _use_file,
        f"Options in a properties file, by their names: {example}; the command line overrides them. "
        "Also settings of the clients: source.request.timeout.ms, target.security.protocol.",
    )
    return lambda command: config(side_setting_option(command))


def side_setting_option(command: F) -> F:
    """Add -X: a setting of one side's client."""
    text = "A setting of the client at source or target, such as source.security.protocol=SSL."
    return setting_option(_use_options, "SIDE.NAME=VALUE", text)(command)


def _use_file(context: click.Context, properties: dict[str, str], path: Path | None) -> None:
    """Use the options in a properties file as the command's defaults, and store the settings of its clients."""
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    named = {option.lstrip("-"): each.name for each in options for option in each.opts}
    for name in ("config", "X"):
        named.pop(name)
    defaults: dict[str, str] = {}
    for key, value in properties.items():
        if key in named:
            defaults[str(named[key])] = value
        else:
            _keep(context, key, value, f"{path}: no option or client setting", [*named])
    context.default_map = defaults


def _use_options(context: click.Context, settings: dict[str, str], _path: Path | None) -> None:
    """Store the client settings in -X, which override the file's, and check those of both."""
    for key, value in settings.items():
        _keep(context, key, value, "no client setting", [])
    for side in SIDES:
        try:
            side_arguments(context, side)
        except InvalidConfigError as error:
            raise click.BadParameter(f"{side}.{error}", param_hint="--config, -X") from None


def side_settings(context: click.Context, side: str) -> Mapping[str, str]:
    """Return the client settings of "source" or "target", unparsed."""
    found: dict[str, dict[str, str]] = context.meta.get(_META, {})
    return found.get(side, {})


def side_arguments(context: click.Context, side: str) -> dict[str, Any]:
    """Return the arguments of `Client` for "source" or "target". Raises InvalidConfigError."""
    return client_arguments(side_settings(context, side))


def _keep(context: click.Context, key: str, value: str, what: str, others: list[str]) -> None:
    side, _, setting = key.partition(".")
    if side not in SIDES or setting not in _KNOWN:
        known = [*others, *(f"{each}.{setting}" for each in SIDES for setting in sorted(_KNOWN))]
        near = difflib.get_close_matches(key, known, 1)
        meant = f": is it {near[0]!r}?" if near else ""
        raise click.BadParameter(f"{what} is called {key!r}{meant}")
    context.meta.setdefault(_META, {}).setdefault(side, {})[setting] = value
