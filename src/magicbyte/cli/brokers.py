"""Shared by the commands that connect to brokers: addresses, clients, and messages of failures."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from magicbyte.cli.client_settings import client_options, raw_settings_given, settings_given
from magicbyte.public.sources import is_topic, open_sources

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.cli.options import F
    from magicbyte.engine.log.files.directory import DirectoryFiles
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.sources import Source

T = TypeVar("T")

_WITH_VALUES: Final = frozenset({"-s", "-r", "-F", "-G", "-d", "-c"})  # kcat's options with a value


def bootstrap_option(command: F) -> F:
    """Add -b, --bootstrap, a str, and the client settings."""
    return client_options(
        click.option(
            "-b",
            "--bootstrap",
            "--bootstrap-server",
            "bootstrap",
            required=True,
            envvar="MAGICBYTE_BOOTSTRAP",
            show_envvar=True,
            metavar="HOST:PORT[,…]",
            help="One or more brokers of the cluster; one that answers is enough.",
        )(command)
    )


def client_of(
    bootstrap: str,
    *,
    client_id: str = "magicbyte",
    settings: Mapping[str, Any] | None = None,
    option: str = "-b",
) -> Client:
    """Return a client of these brokers. The caller closes it. `settings`: by default those of the running command.

    `option`: where the brokers were given.

    Raises BadParameter, InvalidConfigError.
    """
    from magicbyte.access.client import Client

    try:
        return Client(bootstrap, **{"client_id": client_id, **(settings_given() if settings is None else settings)})
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    """Yield a client with a connection: if no broker answers, it fails at once, and is not tried again for a while.

    Raises BadParameter, InvalidConfigError, NetworkError.
    """
    async with client_of(bootstrap) as client:
        await client.any_connection()
        yield client


@contextlib.contextmanager
def sources_at(
    paths: Iterable[str],
    as_: TopicPartition | None = None,
    dialect: Dialect | None = None,
    directories: list[DirectoryFiles] | None = None,
) -> Iterator[list[Source]]:
    """Yield the partitions at `paths`. Arguments as in `open_sources`; raises as it does, and BadParameter."""
    paths, settings = list(paths), raw_settings_given()
    if settings and not any(map(is_topic, paths)):
        raise click.UsageError("--config and -X are settings of a client: expected a PATH kafka://HOST:PORT/TOPIC")
    with contextlib.ExitStack() as stack:
        try:
            opened = open_sources(paths, as_=as_, dialect=dialect, settings=settings, directories=directories)
            found = stack.enter_context(opened)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        yield found


def kcat_options(reasons: Mapping[str, str], ignored: str) -> Callable[[F], F]:
    """Add unsupported options of kcat, each with an alternative in its error, and letters without effect."""

    def refuse(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
        def callback(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
            if value is not None:
                raise click.UsageError(f"{name} does not exist here: {reasons[name]}", context)

        return callback

    def add(command: F) -> F:
        for name in reasons:
            flag = name not in _WITH_VALUES
            command = click.option(
                name,
                f"kcat_{name[1:]}",
                is_flag=flag,
                flag_value="" if flag else None,
                default=None,
                hidden=True,
                expose_value=False,
                callback=refuse(name),
            )(command)
        for letter in ignored:
            command = click.option(f"-{letter}", f"kcat_{letter}", hidden=True, expose_value=False, is_flag=True)(
                command
            )
        return command

    return add


def parsed(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """Return an option callback that converts a ValueError of `parse` to BadParameter."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: str | None) -> T | None:
        try:
            return None if value is None else parse(value)
        except (ValueError, OverflowError) as error:
            raise click.BadParameter(str(error)) from error

    return callback
