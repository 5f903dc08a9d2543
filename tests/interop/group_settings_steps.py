"""Settings of groups: a conversation with a broker, as plain values, without texts of errors."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from magicbyte.engine.protocol.messages.incremental_alter_configs import AlterableConfig as Change
from magicbyte.engine.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from magicbyte.engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from magicbyte.engine.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from server.broker.serving import Peer

GROUP: Final = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
HEARD_S: Final = 0.5  # until a broker knows a change

VALUES: Final = {
    SESSION: ("50000", "1000", "70000", "x", "-1", "", None, " 47000 "),
    HEARTBEAT: ("6000", "4000", "16000", "60000"),
    INTERVAL: ("0", "15000", "15001", "-1"),
    "consumer.assignor.offload.enable": ("false", "x"),
    "nope": ("1",),
    "share.record.lock.duration.ms": ("20000", "1"),
    "share.auto.offset.reset": ("by_duration:PT1H", "by_duration:P1DT0.5S", "x", "by_duration:P", "by_duration:PT"),
    "share.isolation.level": ("read_committed", "x"),
    "share.delivery.count.limit": ("1", "3", "11"),
    "share.partition.max.record.locks": ("50", "4001", "100"),
    "share.renew.acknowledge.enable": ("no", "false"),
    "share.session.timeout.ms": ("50000", "1"),
    "streams.num.standby.replicas": ("3", "1"),
    "streams.initial.rebalance.delay.ms": ("-1", "5"),
    "streams.heartbeat.interval.ms": ("5001",),
    "errors.deadletterqueue.topic.name": ("t",),
    "consumer.migration.policy": ("disabled",),
}

Said = tuple[str, Any]


class Settings:
    """Asks a broker about settings of groups, and notes what it answers."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.said = peer, list[Said]()

    async def change(self, *changes: tuple[str, int, str | None], group: str = "g", validate: bool = False) -> None:
        rows = [Change(name=name, config_operation=operation, value=value) for name, operation, value in changes]
        request = IncrementalAlterConfigsRequest(
            resources=[ChangedResource(resource_type=GROUP, resource_name=group, configs=rows)], validate_only=validate
        )
        response = await self.peer.ask(request, 1, IncrementalAlterConfigsResponse)
        codes = [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]
        self.said.append((f"change {changes}", codes))

    async def replace(self, *settings: tuple[str, str | None], group: str = "g") -> None:
        rows = [AlterableConfig(name=name, value=value) for name, value in settings]
        request = AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=rows)]
        )
        response = await self.peer.ask(request, 2, AlterConfigsResponse)
        self.said.append((f"replace {settings}", [each.error_code for each in response.responses]))

    async def describe(self, what: str, group: str = "g", *names: str) -> None:
        await asyncio.sleep(HEARD_S)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=GROUP, resource_name=group, configuration_keys=list(names) or None
                )
            ],
            include_synonyms=True,
        )
        (answer,) = (await self.peer.ask(request, 4, DescribeConfigsResponse)).results
        rows = [
            (
                each.name, each.value, each.config_source, each.read_only, each.is_sensitive, each.config_type,
                tuple((one.name, one.value, one.source) for one in each.synonyms),
            )
            for each in answer.configs
        ]  # fmt: skip
        self.said.append((what, (answer.error_code, sorted(rows))))

    async def list_all(self, what: str) -> None:
        await asyncio.sleep(HEARD_S)
        request = ListConfigResourcesRequest(resource_types=[GROUP])
        response = await self.peer.ask(request, 1, ListConfigResourcesResponse)
        self.said.append((what, sorted((each.resource_name, each.resource_type) for each in response.config_resources)))


async def converse(script: Settings) -> None:
    change = script.change
    await script.describe("without settings")
    await script.describe("no name", "")
    for name, values in VALUES.items():
        for value in values:
            await change((name, SET, value))
    for operation in (DELETE, APPEND, SUBTRACT):
        await change((SESSION, operation, None if operation == DELETE else "46000"))
    await change(("nope", DELETE, None))
    await change((SESSION, SET, "46000"), (SESSION, SET, "47000"))
    await change((SESSION, SET, "46000"), ("nope", SET, "47000"))
    await change((HEARTBEAT, SET, "15000"), (SESSION, SET, "45000"), group="h")
    await change(group="none")
    await change((SESSION, SET, "50000"), group="")
    await change((SESSION, SET, "50000"), group="x" * 300)
    await change((SESSION, SET, "50000"), group="a/b ~é")
    await change((SESSION, SET, "50000"), group="..")
    await change((SESSION, SET, "50001"), group="v", validate=True)
    await script.describe("with settings")
    await script.describe("some", "g", HEARTBEAT, "nope")
    await script.describe("validated only", "v", SESSION)
    await script.describe("any name", "a/b ~é", SESSION)
    await script.list_all("several groups")
    await script.replace((SESSION, "49000"))
    await script.describe("replaced", "g", SESSION, HEARTBEAT)
    await script.replace((SESSION, None))
    await script.replace(("nope", "1"))
    await script.replace((SESSION, "1"))
    await script.replace((SESSION, "50000"), group="")
    await script.replace()
    await change((HEARTBEAT, DELETE, None), (SESSION, DELETE, None), group="h")
    await script.list_all("fewer groups")


def settings_conversation(address: str) -> list[Said]:
    """Have the conversation with a broker."""

    async def work() -> list[Said]:
        host, _, port = address.rpartition(":")
        script = Settings(Peer(await SocketStream.connect(host, int(port))))
        await converse(script)
        script.peer.close()
        return script.said

    return asyncio.run(asyncio.wait_for(work(), 120))
