"""What the commands that speak to brokers share: where they are, and how a failure is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from magicbyte.errors import BrokerError, ErrorCode, NetworkError, UnsupportedVersionError

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.client import Client
    from magicbyte.client.client import Topic

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics of brokers themselves, which those before 0.10 do not mark as such."""


def bootstrap_option(command: F) -> F:
    """Add -b, --bootstrap: a str."""
    return click.option(
        "-b",
        "--bootstrap",
        required=True,
        envvar="MAGICBYTE_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT[,…]",
        help="One or more brokers of the cluster; one that answers is enough.",
    )(command)


def client_of(bootstrap: str) -> Client:
    """Return a client of these brokers, which is to be closed. Raises BadParameter."""
    from magicbyte.client import Client

    try:
        return Client(bootstrap)
    except ValueError as error:
        raise click.BadParameter(f"{error}: expected HOST:PORT, such as localhost:9092", param_hint="-b") from error


@contextlib.contextmanager
def explained(task: str, since: str) -> Iterator[None]:
    """Inside the block a silent cluster, and a broker without a request for `task`, are said with what to do.

    `since`: the first release whose brokers have the request.
    """
    try:
        yield
    except NetworkError as error:
        hint = "is a broker running there? `magicbyte serve` starts one"
        raise NetworkError(f"{error} ({hint})" if str(error).startswith("no broker answers") else str(error)) from error
    except UnsupportedVersionError as error:
        why = f"brokers from {since} on can do it; for older ones there are the tools of their release"
        raise BrokerError(task, ErrorCode.UNSUPPORTED_VERSION, broker="the cluster", detail=why) from error


def is_internal(topic: Topic) -> bool:
    """Whether a topic is of the brokers themselves."""
    return topic.is_internal or topic.name in INTERNAL
