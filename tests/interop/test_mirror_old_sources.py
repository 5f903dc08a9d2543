"""Mirrors of real brokers before 0.10.1: their groups without members are found, and they may be started again."""

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.command import run as command
from interop import jvm
from magicbyte.access.client import Client
from magicbyte.access.client.groups import committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker
from magicbyte.tools.mirror import mirror as mirror_of_groups
from magicbyte.tools.mirror import rounds
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

START = 1_700_000_000_000
VERSIONS = ("0.9.0.1", pytest.param("0.10.0.1", marks=pytest.mark.campaign))


async def fill(client: Client, first: int, count: int) -> None:
    await client.topics(["t"])  # created by this request
    await send(
        client, "t", 0, [Record(at, START + at, 0, None, b"value %d" % at) for at in range(first, first + count)]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_without_members_are_copied(version: str, tmp_path: Path) -> None:
    async def prepare(address: str) -> None:
        async with Client(address) as client:
            await fill(client, 0, 350)

    async def committed(address: str) -> int:
        async with Client(address) as client:
            return (await committed_offsets(client, "left", [("t", 0)]))[("t", 0)].offset

    with jvm.broker(version, tmp_path) as state, Broker() as target:
        address = state["bootstrap"]
        asyncio.run(prepare(address))
        jvm.run("ConsumeGroup", address, "t", "left", "300", version=version)
        ends = ["--from", address, "--to", target.bootstrap_servers, "--topics", "t"]
        done = command("mirror", *ends, "--sync-groups", "--until-caught-up", "--yes")
        assert done.exit_code == 0, done.stderr
        assert "left out" not in done.stdout
        assert asyncio.run(committed(target.bootstrap_servers)) == 300


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirror_outlives_the_restart_of_its_source(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    monkeypatch.setattr(mirror_of_groups, "GROUP_SECONDS", 0.0)

    async def arrived(client: Client, count: int, mirroring: asyncio.Task[None]) -> None:
        while "t" not in await client.topics() or (await bounds(client, "t", 0))[1] < count:
            assert not mirroring.done(), mirroring.exception()
            await asyncio.sleep(0.1)

    async def work(source: ExitStack, target: str) -> None:
        state = source.enter_context(jvm.broker(version, tmp_path, port=port))
        address = state["bootstrap"]
        async with Client(address, retry_ms=200_000) as here, Client(target) as there:
            await fill(here, 0, 50)
            mirror = Mirror(here, there, Choice(re.compile("t"), sync_groups=True))
            mirroring = asyncio.create_task(mirror.run())
            await arrived(there, 50, mirroring)
            for lap in (1, 2):
                await asyncio.to_thread(source.close)
                assert not mirroring.done(), mirroring.exception()
                await asyncio.to_thread(source.enter_context, jvm.broker(version, tmp_path, port=port))
                await fill(here, 50 * lap, 50)
                await arrived(there, 50 * (lap + 1), mirroring)
            mirror.stop.set()
            await mirroring

    with ExitStack() as source, Broker() as target:
        asyncio.run(asyncio.wait_for(work(source, target.bootstrap_servers), 400))
