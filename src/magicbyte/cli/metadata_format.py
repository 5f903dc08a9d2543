"""`magicbyte metadata format`: a fresh log directory for a node of a KRaft cluster."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import parsed
from magicbyte.cli.output import say
from magicbyte.engine.addresses import host_and_port
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.releases import LINES, release_meant, release_of_level

if TYPE_CHECKING:
    from magicbyte.engine.cluster.scram import Credential
    from magicbyte.engine.releases import Release

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MOST_PASSWORD_BYTES: Final = 1 << 20
_SALT_BYTES: Final = 24
_ITERATIONS: Final = (4096, 16384)  # Kafka takes no others
_LISTENER: Final = re.compile(r"([A-Za-z0-9_.-]+)://(.+)")
Listener = tuple[str, str, int]
"""The name of a listener, its host and its port."""


def listener_of(text: str) -> Listener:
    """Return the name of a listener, its host and its port. Raises ValueError."""
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: expected LISTENER://HOST:PORT, such as CONTROLLER://localhost:9093")
    return match[1], *host_and_port(match[2], example="localhost:9093")


@click.command(
    cls=Command,
    examples=(
        "magicbyte metadata format data --node-id 1 --standalone CONTROLLER://host:9093",
        "magicbyte metadata format data --node-id 2 --roles broker --release 4.3",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--node-id", required=True, type=click.IntRange(0), metavar="N", help="The node.id.")
@click.option("--cluster-id", metavar="ID", help="The id of the cluster, the same for all its nodes: 22 characters.  "
              "[default: a random one]")  # fmt: skip
@click.option("--roles", default="broker,controller", show_default=True,
              type=click.Choice(["broker,controller", "controller", "broker"]), help="The process.roles.")  # fmt: skip
@click.option("--controller-quorum-voters", "static", metavar="ID@HOST:PORT[,…]",
              help="A static quorum: its controllers, as in the setting of this name.")  # fmt: skip
@click.option("--standalone", metavar="LISTENER://HOST:PORT", callback=parsed(listener_of),
              help="A dynamic quorum that begins with this controller, which listens there. Controllers can be added "
              "and removed later.")  # fmt: skip
@click.option("--no-initial-controllers", "joins", is_flag=True, help="A controller that joins a dynamic quorum later.")
@click.option("--release", metavar="RELEASE", callback=parsed(release_meant),
              help=f"The release of Kafka that starts on it, 3.3 to {LINES[-1]}.  [default: {LINES[-1]}, or the "
              "first with the level]")  # fmt: skip
@click.option("--metadata-version", "level", metavar="LEVEL",
              help="The level of metadata.version, such as 30 or 4.3-IV0.  [default: the release's]")  # fmt: skip
@click.option("--feature", "features", multiple=True, metavar="NAME=LEVEL",
              help="The level of another feature, 0 for none. Can be repeated.  [default: what a new cluster of this "
              "level has]")  # fmt: skip
@click.option("--add-scram", "users", multiple=True, metavar="MECHANISM=USER",
              help="A SCRAM user, such as SCRAM-SHA-256=alice. Its password is asked for. Repeatable.")  # fmt: skip
@click.option("--iterations", type=click.IntRange(*_ITERATIONS), default=_ITERATIONS[0], show_default=True,
              help="Of the passwords of SCRAM users.")  # fmt: skip
@click.option("--password-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Lines USER=PASSWORD, instead of asking.")  # fmt: skip
def format_(
    directory: Path,
    node_id: int,
    cluster_id: str | None,
    roles: str,
    static: str | None,
    standalone: Listener | None,
    joins: bool,
    release: Release | None,
    level: str | None,
    features: tuple[str, ...],
    users: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
) -> None:
    """Make the log directory DIR for a new node of a KRaft cluster, as `kafka-storage format` of that release does.

    DIR is new or empty. All nodes of a cluster need the same --cluster-id. Passwords are never arguments, because other
    users of the machine can see those.
    """
    from magicbyte.access.clock import SystemClock
    from magicbyte.engine.cluster.features import LEVEL_NAMES, METADATA_VERSION, initial_levels
    from magicbyte.engine.cluster.metadata_batches import QuorumVoter
    from magicbyte.engine.log.files.outputs import refuse_overlap
    from magicbyte.engine.protocol.fields import id_text
    from magicbyte.tools.offline.quorum_format import CONTROLLER, NodeFormat, format_directory, new_id, parse_id

    if password_file is not None:
        refuse_overlap(directory, [password_file])
    has_controller, own_directory = CONTROLLER in roles, new_id()
    _check_quorum(node_id, static, standalone, joins=joins, has_controller=has_controller)
    try:
        release, number = _release_and_level(release, level)
        wanted = NodeFormat(
            node_id=node_id,
            cluster_id=new_id() if cluster_id is None else parse_id(cluster_id),
            directory_id=own_directory,
            release=release,
            roles=frozenset(roles.split(",")),
            levels=initial_levels(number, release, _levels(features)),
            voters=() if standalone is None else [QuorumVoter(node_id, own_directory, *standalone)],
            users=_credentials(users, password_file, iterations),
        )
        written = format_directory(directory, wanted, SystemClock().now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    say(
        f"formatted {directory} for node {node_id} of cluster {id_text(wanted.cluster_id)}: Kafka {release.version}, "
        f"{METADATA_VERSION} {number} ({LEVEL_NAMES[number]})",
        *(f"{name}: {each}" for name, each in wanted.levels.items() if name != METADATA_VERSION),
        f"written: {', '.join(written)}",
    )


def _check_quorum(
    node_id: int, static: str | None, standalone: Listener | None, *, joins: bool, has_controller: bool
) -> None:
    given = [each for each in (static, standalone, joins) if each]
    if len(given) > 1 or (has_controller and not given):
        raise click.UsageError(
            "expected one of --controller-quorum-voters, --standalone and --no-initial-controllers for a controller"
        )
    if not has_controller and (standalone or joins):
        raise click.UsageError("a broker is no controller: expected --controller-quorum-voters, or nothing")
    if static is None:
        return
    voters = set[int]()
    for voter in static.split(","):
        number, _, address = voter.strip().partition("@")
        try:
            host_and_port(address, example="localhost:9093", free=True)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--controller-quorum-voters") from error
        if not re.fullmatch(r"[0-9]{1,10}", number):
            raise click.BadParameter(f"{voter!r}: expected ID@HOST:PORT", param_hint="--controller-quorum-voters")
        voters.add(int(number))
    if (node_id in voters) != has_controller:
        what = "is a controller, and not" if has_controller else "is no controller, but"
        raise click.BadParameter(f"node {node_id} {what} among the voters", param_hint="--controller-quorum-voters")


def _release_and_level(release: Release | None, level: str | None) -> tuple[Release, int]:
    """Return both by what is given. Raises ValueError."""
    from magicbyte.engine.cluster.features import level_of
    from magicbyte.engine.releases import Release

    if level is not None:
        number = level_of(level)
        return release or release_of_level(number), number
    release = release or Release.of(LINES[-1])
    if release.metadata_version is None:
        raise ValueError(
            f"Kafka {release.version}: expected a release from 3.3 on: earlier ones have other directories"
        )
    return release, release.metadata_version


def _levels(features: Sequence[str]) -> dict[str, int]:
    levels = {}
    for text in features:
        name, _, level = text.partition("=")
        if not re.fullmatch(r"[0-9]{1,4}", level):
            raise ValueError(f"{text!r}: expected NAME=LEVEL, such as group.version=1")
        levels[name] = int(level)
    return levels


def _credentials(
    users: Sequence[str], password_file: Path | None, iterations: int
) -> dict[str, Mapping[str, Credential]]:
    """Return the credentials of users by mechanism. Raises ValueError."""
    from magicbyte.access.security.server import credential_of_password

    passwords = {} if password_file is None else _passwords(password_file)
    credentials: dict[str, dict[str, Credential]] = {}
    for text in users:
        mechanism, _, user = text.partition("=")
        if mechanism not in _MECHANISMS or not user:
            raise ValueError(f"{text!r}: expected MECHANISM=USER, such as SCRAM-SHA-256=alice")
        if password_file is None:
            password: str = click.prompt(
                f"Password of {user} for {mechanism}", hide_input=True, confirmation_prompt=True
            )
        elif user in passwords:
            password = passwords[user]
        else:
            raise ValueError(f"{password_file}: no line has the password of {user}")
        salt = secrets.token_urlsafe(_SALT_BYTES).encode()
        credentials.setdefault(user, {})[mechanism] = credential_of_password(mechanism, password, salt, iterations)
    return dict(credentials)


def _passwords(path: Path) -> dict[str, str]:
    from magicbyte.engine.log.files.filesystem import read_regular

    lines = read_regular(path, most=_MOST_PASSWORD_BYTES).decode("utf-8", "strict").splitlines()
    found = dict(line.partition("=")[::2] for line in lines if "=" in line)
    if not found:
        raise LogDirectoryError(f"{path}: expected lines USER=PASSWORD")
    return found
