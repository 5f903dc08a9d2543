"""A served broker is killed in the midst of admin requests: all that it had confirmed is there at the next start."""

import asyncio
import re
import signal
import sys
from pathlib import Path

from builders import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.admin import ConfigResource, NewTopic

LISTENS = re.compile(rb"127\.0\.0\.1:([0-9]+)")


class Process:
    """`magicbyte serve` in a process of its own, while the block lasts; it is killed at the end of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> "Process":
        arguments = ["-m", "magicbyte", "serve", "--dir", str(self.folder), "--listen", "127.0.0.1:0"]
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe)
        assert self.process.stdout is not None
        while (found := LISTENS.search(line := await self.process.stdout.readline())) is None:
            assert line, "the broker did not start"
        self.address = found[0].decode()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


def test_what_was_confirmed_before_a_kill_is_so_afterwards(folder: Path) -> None:
    sizes: dict[str, int] = {}
    gone: set[str] = set()

    async def change_until_it_dies(client: Client, first: int) -> None:
        for number in range(first, first + 1000):
            name = f"t{number}"
            await admin.create_topic(client, NewTopic(name, 1 + number % 3))
            sizes[name] = 1 << 30
            await admin.alter_configs(client, ConfigResource.TOPIC, name, {"segment.bytes": str(5000 + number)})
            sizes[name] = 5000 + number
            if number % 4 == 0:
                gone.add(name)  # from the request on: its outcome is unknown
                await admin.delete_topic(client, name)
                del sizes[name]
                gone.discard(name)

    async def one_life(first: int, kill_after: int) -> None:
        async with Process(folder) as broker, Client(broker.address) as client:
            await check(client)
            changing = asyncio.create_task(change_until_it_dies(client, first))
            while len(sizes) < kill_after:
                assert not changing.done(), changing.exception()
                await asyncio.sleep(0)
            broker.process.send_signal(signal.SIGKILL)
            await broker.process.wait()
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)

    async def check(client: Client) -> None:
        found = await client.topics()
        assert set(sizes) - gone <= set(found)
        assert len(set(found) - set(sizes)) <= 2  # one of each life was perhaps made without an answer
        for name in set(sizes) - gone:
            assert len(found[name].partitions) == 1 + int(name[1:]) % 3
            told = await admin.describe_configs(client, ConfigResource.TOPIC, name)
            assert told["segment.bytes"].value in {str(sizes[name]), str(5000 + int(name[1:]))}

    async def work() -> None:
        for first, kill_after in ((0, 5), (1000, 12)):
            await one_life(first, kill_after)
        async with Process(folder) as broker, Client(broker.address) as client:
            await check(client)

    run(work(), 300)
