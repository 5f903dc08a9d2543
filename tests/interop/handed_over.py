"""A topic with records, settings and the offset of a group, for tests in which a log directory changes hands."""

from collections.abc import Mapping
from typing import NamedTuple

from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, create_topic, describe_configs
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.columns import Record

PLACE = ("orders", 1)


class Seen(NamedTuple):
    """What a client sees of a broker's topic: records by partition, the settings, and a group's offset."""

    records: list[list[tuple[int, bytes | None, bytes | None]]]
    settings: dict[str, str | None]
    committed: int


async def fill(bootstrap: str, first: int, start_ms: int, *, creates: Mapping[str, str] | None = None) -> None:
    """Produce 50 records to each partition, and commit the offset of a group.

    `creates`: the settings of the topic, which is created.
    """
    async with Client(bootstrap) as client:
        if creates is not None:
            await create_topic(client, NewTopic("orders", 2, 1, creates))
        for partition in range(2):
            rows = [Record(at, start_ms + at, 0, b"key %d" % at, b"value %d" % (first + at)) for at in range(50)]
            await send(client, "orders", partition, rows, ProduceOptions(codec=Codec.GZIP))
        await commit_offsets(client, "group", {PLACE: Committed(first + 7, "")})


async def look(bootstrap: str, settings: Mapping[str, str]) -> Seen:
    """Read everything; of the topic these settings."""
    async with Client(bootstrap) as client:
        found = []
        for partition in range(2):
            columns = [each async for each in read_records(client, "orders", partition, 0, 1 << 40, FetchOptions())]
            found.append([(each.offset, each.key, each.value) for part in columns for each in part])
        committed = (await committed_offsets(client, "group", [PLACE]))[PLACE]
        return Seen(found, await described(client, settings), committed.offset)


async def described(client: Client, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings that were given; brokers before 0.11 do not tell."""
    if (await client.any_connection()).versions.latest(APIS[ApiKey.DESCRIBE_CONFIGS]) is None:
        return {}
    found = await describe_configs(client, ConfigResource.TOPIC, "orders")
    return {name: found[name].value for name in settings}
