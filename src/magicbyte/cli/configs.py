"""`magicbyte configs`: show, set and unset the settings of topics and brokers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.options import format_option, key_values
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import table_lines
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.access.client.admin import ConfigResource, SettingInForce
    from magicbyte.cli.options import F

Json = dict[str, Any]

TOO_OLD: Final = "brokers from 0.11 on can do it; for older ones there are the tools of their release, by ZooKeeper"


@dataclass(frozen=True, slots=True)
class Whose:
    """The resource: a topic, a broker (by its id), or with neither the default of all brokers."""

    topic: str | None
    broker: int | None

    @property
    def name(self) -> str:
        """Its name in requests."""
        if self.topic is not None:
            return self.topic
        return "" if self.broker is None else str(self.broker)

    @property
    def resource(self) -> ConfigResource:
        """Its type in requests."""
        from magicbyte.access.client.admin import ConfigResource

        return ConfigResource.BROKER if self.topic is None else ConfigResource.TOPIC

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "all brokers" if self.broker is None else f"broker {self.broker}"


@click.group(cls=CommandGroup)
def configs() -> None:
    """Describe, set and unset the settings of topics and brokers. Needs brokers of 0.11 to 4.x."""


# ---- describe


_all_brokers_option = click.option(
    "--entity-default", "for_all", is_flag=True,
    help="The dynamic defaults of all brokers. Needs brokers from 1.1 on.",
)  # fmt: skip


@configs.command(examples=("magicbyte configs describe -b localhost:9092 -t orders --all",))
@bootstrap_option
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Of this topic. Can be given several times."
)
@click.option("--broker", "brokers", type=click.IntRange(0), multiple=True, metavar="ID",
              help="Of the broker with this id. Can be given several times.")  # fmt: skip
@_all_brokers_option
@click.option("--all", "everything", is_flag=True, help="Also settings of the broker, and defaults.")
@format_option
def describe(
    bootstrap: str, topics: tuple[str, ...], brokers: tuple[int, ...], for_all: bool, everything: bool, form: str
) -> None:
    """Show the settings of a topic, or the dynamic ones of a broker; with --all, those in force.

    Values of sensitive settings are never shown.
    """
    wanted = [*(Whose(each, None) for each in topics), *(Whose(None, broker) for broker in brokers)]
    wanted += [Whose(None, None)] if for_all else []
    if not wanted:
        raise click.UsageError("expected -t TOPIC, --broker ID or --entity-default")
    found = asyncio.run(_described(bootstrap, wanted, everything=everything))
    if form == "json":
        say_json(found)
        return
    rows = [["of", "setting", "value", "set for"]]
    for each in found:
        of = each["topic"] or ("all brokers" if each["broker"] is None else f"broker {each['broker']}")
        rows += [[of, one["name"], _value(one), one["source"] or "-"] for one in each["settings"]]
    say(*table_lines(rows, left={0, 1, 2, 3}))


def _value(setting: Json) -> str:
    if setting["sensitive"]:
        return "(hidden)"
    value: str | None = setting["value"]
    return "-" if value is None else value or '""'


async def _described(bootstrap: str, wanted: list[Whose], *, everything: bool) -> list[Json]:
    with explained("describe settings", TOO_OLD):
        async with client_of(bootstrap) as client:
            return [
                {
                    "topic": whose.topic,
                    "broker": whose.broker,
                    "settings": [
                        each.to_json()
                        for _, each in sorted((await _settings(client, whose)).items())
                        if everything or each.is_own
                    ],
                }
                for whose in wanted
            ]


async def _settings(client: Client, whose: Whose) -> dict[str, SettingInForce]:
    from magicbyte.access.client.admin import describe_configs

    await _check(client, whose)
    return await describe_configs(client, whose.resource, whose.name)


async def _check(client: Client, whose: Whose) -> None:
    """Raise UnknownTopicError for a missing topic or broker, UnsupportedVersionError for old brokers."""
    from magicbyte.access.client.admin import describe_cluster
    from magicbyte.engine.protocol import APIS

    connection = await client.any_connection()
    connection.versions.choose(APIS[ApiKey.DESCRIBE_CONFIGS], None, connection.name)
    if whose.topic is not None:
        await client.existing_topic(whose.topic)
    elif whose.broker is None:
        await describe_cluster(client)
    elif whose.broker not in (known := (await describe_cluster(client)).brokers):
        there = ", ".join(map(str, sorted(known)))
        raise UnknownTopicError(f"broker {whose.broker}: expected one of {there}")


# ---- set, unset


def _one_resource(command: F) -> F:
    """Add -t, --broker and --entity-default, exactly one of which must be given, and --dry-run."""
    for option in (
        _all_brokers_option,
        click.option("--dry-run", is_flag=True, help="Let the broker check the change, without making it."),
        click.option("--broker", type=click.IntRange(0), metavar="ID", help="Of the broker with this id."),
        click.option("-t", "--topic", metavar="TOPIC", help="Of this topic."),
    ):
        command = option(command)
    return command


@configs.command("set", examples=("magicbyte configs set -b localhost:9092 -t orders retention.ms=86400000",))
@bootstrap_option
@_one_resource
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_(
    bootstrap: str, topic: str | None, broker: int | None, for_all: bool, dry_run: bool, settings: tuple[str, ...]
) -> None:
    """Set settings of a topic or a broker, by Kafka's names. Its other settings are kept."""
    asyncio.run(_change(bootstrap, _whose(topic, broker, for_all), key_values(settings), dry_run=dry_run))


@configs.command(examples=("magicbyte configs unset -b localhost:9092 -t orders retention.ms",))
@bootstrap_option
@_one_resource
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def unset(
    bootstrap: str, topic: str | None, broker: int | None, for_all: bool, dry_run: bool, names: tuple[str, ...]
) -> None:
    """Remove settings of a topic or a broker, so that the broker's own or the default values apply."""
    for name in names:
        if "=" in name:
            raise click.BadParameter(f"{name!r}: expected the name of a setting alone", param_hint="KEY")
    asyncio.run(_change(bootstrap, _whose(topic, broker, for_all), dict.fromkeys(names), dry_run=dry_run))


def _whose(topic: str | None, broker: int | None, for_all: bool) -> Whose:
    if (topic is not None) + (broker is not None) + for_all != 1:
        raise click.UsageError("expected one of -t TOPIC, --broker ID, --entity-default")
    return Whose(topic, broker)


async def _change(bootstrap: str, whose: Whose, changes: dict[str, Any], *, dry_run: bool) -> None:
    from magicbyte.access.client.admin import alter_configs, alters_one_by_one

    with explained(f"change settings of {whose}", TOO_OLD):
        async with client_of(bootstrap) as client:
            one_by_one = await alters_one_by_one(client)
            await _check(client, whose)
            if not one_by_one:
                complain(
                    "warning: brokers before 2.3 replace all settings at once: the others were read and are sent "
                    "again; a concurrent change by another client is lost"
                )
            await alter_configs(client, whose.resource, whose.name, changes, validate_only=dry_run)
