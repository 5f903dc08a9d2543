"""A mirror's properties file: options of the command by their names, and settings of its clients."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Final

import click

from magicbyte.log.files.properties import parse_properties

CLIENT_SETTINGS: Final = {
    "client.id": "client_id",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "delivery.timeout.ms": "retry_ms",
    "retry.backoff.ms": "backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
"""Kafka's names of what a client takes."""
_META: Final = "magicbyte.mirror.clients"


def from_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    """Let the options of a properties file be the defaults of the command, and keep what is for its clients."""
    if path is None:
        return
    named = {option.lstrip("-"): each.name for each in context.command.params for option in each.opts}
    named.pop("config")
    clients: dict[str, dict[str, Any]] = {"source": {}, "target": {}}
    defaults: dict[str, str] = {}
    for key, value in parse_properties(path.read_bytes()).items():
        side, _, setting = key.partition(".")
        if side in clients and setting in CLIENT_SETTINGS:
            clients[side][CLIENT_SETTINGS[setting]] = _value(path, key, value)
        elif (name := named.get(key)) is not None:
            defaults[name] = value
        else:
            known = [*named, *(f"{each}.{setting}" for each in clients for setting in CLIENT_SETTINGS)]
            near = difflib.get_close_matches(key, known, 1)
            meant = f": is it {near[0]!r}?" if near else ""
            raise click.BadParameter(f"{path}: no option or client setting is called {key!r}{meant}")
    context.default_map = defaults
    context.meta[_META] = clients


def client_settings(context: click.Context, side: str) -> dict[str, Any]:
    """Return what `Client` is to be given for "source" or "target"."""
    found: dict[str, dict[str, Any]] = context.meta.get(_META, {})
    return found.get(side, {})


def _value(path: Path, key: str, value: str) -> str | int:
    if key.endswith(".client.id"):
        return value
    if not value.isdecimal():
        raise click.BadParameter(f"{path}: {key}: expected a number of milliseconds, found {value!r}")
    return int(value)
