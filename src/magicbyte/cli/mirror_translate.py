"""`magicbyte mirror translate`: translate an offset, or the offsets of a group, from source to target."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import client_of
from magicbyte.cli.output import say
from magicbyte.cli.sides import side_arguments, side_setting_option
from magicbyte.engine.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.access.client import Client
    from magicbyte.tools.mirror.offset_map import Translation


@click.command(
    cls=Command,
    examples=("magicbyte mirror translate --from old:9092 --to new:9092 --group billing",),
)
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="Brokers of the target cluster.")
@click.option("--topic", metavar="NAME", help="Topic of the source, with --partition and --offset.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Its partition.")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="The next offset to read at the source.")
@click.option("--from", "source", metavar="HOST:PORT", help="Brokers of the source cluster, with --group.")
@click.option("--group", metavar="NAME", help="Consumer group of the source: all its offsets in mirrored topics.")
@click.option("--prefix", default="", metavar="TEXT", help="The mirror's --prefix.")
@side_setting_option
@click.option("--mirror-group", metavar="NAME", help="Group that stores the mirror's progress.  "
              "[default: magicbyte-mirror]")  # fmt: skip
def translate(
    target: str,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    source: str | None,
    group: str | None,
    prefix: str,
    mirror_group: str | None,
) -> None:
    """Show where a consumer of the source continues at the target without missing a record.

    The mirror need not run. Give either --topic, --partition and --offset, or --from and --group.
    """
    from magicbyte.tools.mirror.progress import DEFAULT_GROUP

    progress = mirror_group or DEFAULT_GROUP
    if topic is not None and partition is not None and offset is not None and group is None:
        lines = asyncio.run(_offset(target, progress, prefix, (topic, partition), offset))
    elif group is not None and source is not None and topic is None:
        lines = asyncio.run(_group(source, target, progress, prefix, group))
    else:
        raise click.UsageError("expected --topic, --partition and --offset, or --from and --group")
    for line in lines:
        say(line)


def _client(side: str, bootstrap: str) -> Client:
    option = "--to" if side == "target" else "--from"
    return client_of(bootstrap, settings=side_arguments(click.get_current_context(), side), option=option)


async def _offset(target: str, progress: str, prefix: str, partition: tuple[str, int], offset: int) -> Iterable[str]:
    from magicbyte.tools.mirror.group_sync import saved_reaches

    async with _client("target", target) as there:
        reaches = await saved_reaches(there, progress, prefix, [partition])
    name = f"{partition[0]}-{partition[1]}"
    if partition not in reaches:
        raise MirrorError(f"{name}: expected the progress and the offset map of group {progress}, found none")
    return [_line(f"{name}, offset {offset}", reaches[partition].target, reaches[partition].translate(offset))]


async def _group(source: str, target: str, progress: str, prefix: str, group: str) -> Iterable[str]:
    from magicbyte.tools.mirror.group_sync import saved_reaches, translate_groups

    async with _client("source", source) as here, _client("target", target) as there:
        topics = await here.topics()
        partitions = [(name, each) for name, topic in sorted(topics.items()) for each in sorted(topic.partitions)]
        reaches = await saved_reaches(there, progress, prefix, partitions)
        found = await translate_groups(here, reaches, [group])
    if not found:
        raise MirrorError(f"group {group}: expected offsets in mirrored topics of the source, found none")
    return [
        _line(f"{group}: {each.source[0]}-{each.source[1]}, offset {each.offset}", each.target, each.translation)
        for each in found
    ]


def _line(what: str, target: tuple[str, int], found: Translation) -> str:
    notes = "" if found.exact else "; some records come again" if found.copied else ""
    notes += "" if found.copied else "; nothing after it is copied yet"
    return f"{what}: {target[0]}-{target[1]}, offset {found.offset}{notes}"
