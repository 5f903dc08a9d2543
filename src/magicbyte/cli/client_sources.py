"""Sources of facts about clients: --request-log, --capture, --metrics, and credentials for pages over HTTPS."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from magicbyte.access.net.scrape import PageAccess
    from magicbyte.cli.options import F
    from magicbyte.tools.migration.evidence import ClientSource
    from magicbyte.tools.migration.sightings import Sightings

_ACCESS = {
    "--metrics-ca": "For --metrics with https: certificates to trust, in PEM.  [default: the system's]",
    "--metrics-cert": "For --metrics with https: the certificate to show, with its key, in PEM.",
    "--metrics-token": "For --metrics with https: a file with the bearer token to send.",
}
_ACCESS_KEY = "magicbyte.migrate.access"


def _keep(context: click.Context, option: click.Parameter, given: Path | None) -> None:
    if given is not None:
        from magicbyte.engine.log.files.filesystem import read_regular

        read_regular(given)  # the TLS library would wait for a FIFO, and read without end
        context.meta.setdefault(_ACCESS_KEY, {})[option.name] = given


def access_options(command: F) -> F:
    """Add the options for pages over HTTPS; `page_access` returns their values."""
    for name, what in reversed(_ACCESS.items()):
        command = click.option(name, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
                               help=what, expose_value=False, callback=_keep)(command)  # fmt: skip
    return command


def page_access() -> PageAccess | None:
    """Return the credentials for pages over HTTPS, None if none were given. Raises InvalidConfigError."""
    from magicbyte.access.net.scrape import PageAccess
    from magicbyte.access.security.settings import token_in

    files = click.get_current_context().meta.get(_ACCESS_KEY)
    if files is None:
        return None
    authority, certificate, token = (files.get(f"metrics_{each}") for each in ("ca", "cert", "token"))
    return PageAccess(authority, certificate, "" if token is None else token_in(str(token)))


@dataclass(frozen=True, slots=True)
class ClientSources:
    """The sources of facts about clients on a command line."""

    pages: tuple[str, ...]
    request_logs: tuple[Path, ...]
    captures: tuple[Path, ...]

    def __bool__(self) -> bool:
        return bool(self.pages or self.request_logs or self.captures)

    @property
    def files(self) -> list[Path]:
        """All files to read."""
        access = click.get_current_context().meta.get(_ACCESS_KEY, {})
        return [*self.request_logs, *self.captures, *access.values()]

    def read_files(self, into: Sightings) -> list[ClientSource]:
        """Add the requests in request logs and captures. Return what each of them told.

        Called without an event loop: Ctrl-C and SIGTERM end it, which they would not in a thread.
        """
        from magicbyte.tools.migration import look

        return [
            *(look.look_at_request_logs(path, into) for path in self.request_logs),
            *(look.look_at_capture(path, into) for path in self.captures),
        ]

    async def look_at_pages(self, into: Sightings, own: Iterable[str]) -> list[ClientSource]:
        """Add the requests counted on metrics pages. Return what each of them told.

        `own`: pages named by brokers; no token is sent to them.
        """
        from magicbyte.tools.migration import look

        pages = dict.fromkeys(own) | dict.fromkeys(self.pages, page_access())
        return [await look.look_at_numbers(page, into, access) for page, access in pages.items()]


def clients_options(command: F) -> F:
    """Add the sources of facts about clients, which the command receives as `sources`."""

    @functools.wraps(command)
    def with_sources(
        *args: Any, pages: tuple[str, ...], request_logs: tuple[Path, ...], captures: tuple[Path, ...], **given: Any
    ) -> Any:
        return command(*args, sources=ClientSources(pages, request_logs, captures), **given)

    with_options: Any = access_options(with_sources)
    for option in (
        click.option("--capture", "captures", multiple=True, metavar="FILE",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="A packet capture of a broker's port, pcap or pcapng. Can be given several times."),
        click.option("--request-log", "request_logs", multiple=True, metavar="PATH",
                     type=click.Path(exists=True, path_type=Path),
                     help="A broker's request log, or the folder of its kafka-request.log*. "
                     "Can be given several times."),
        click.option("--metrics", "pages", multiple=True, metavar="URL",
                     help="Metrics of a broker: http://HOST:PORT/metrics. Can be given several times."),
    ):  # fmt: skip
        with_options = option(with_options)
    return cast("F", with_options)
