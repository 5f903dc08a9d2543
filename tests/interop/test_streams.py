"""Kafka Streams against our cluster, whose brokers go down and come back.

The four scenarios of Kafka's StreamsBrokerDownResilienceTest, one after the other: all brokers are down when instances
start; they go down while they run; they are down while instances end; they are down while one is killed and another
starts. Each record of the source arrives in the target.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from interop import kafka_oracle
from interop.processes import DIES_WITH_US
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from ports import free_port
from server.broker.clusters import Members, until, values

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSION = "3.9.1"
SOURCE = Path(__file__).parent / "java" / "StreamsPass.java"
PARTITIONS, RECORDS = 3, 60
PATIENCE_S = 300
BROKERS = (1, 2, 3)


def jars() -> Path:
    """Return a folder with the jars of Kafka Streams, by Maven when they are first needed."""
    folder: Path = kafka_oracle.cache_home() / f"streams-{VERSION}"
    if not folder.is_dir():
        build = folder.with_name(f"{folder.name}.{os.getpid()}")
        build.mkdir(parents=True)
        dependency = (
            f"<groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>"
        )
        (build / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>oracle</groupId><artifactId>streams</artifactId>"
            f"<version>1</version><dependencies><dependency>{dependency}</dependency></dependencies></project>\n"
        )
        command = [
            "mvn",
            "-q",
            "-B",
            kafka_oracle.DEPENDENCY_PLUGIN,
            "-DoutputDirectory=jars",
            "-DincludeScope=runtime",
        ]
        subprocess.run(command, cwd=build, check=True)
        (build / "jars").rename(folder)
        shutil.rmtree(build)
    return folder


def compiled(folder: Path) -> Path:
    javac = [kafka_oracle.jdk_program("javac"), "-nowarn", "-proc:none", "-cp", f"{jars()}/*", "-d", str(folder)]
    subprocess.run([*javac, str(SOURCE)], check=True)
    return folder


class Instance:
    """One process of the application."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.states: list[str] = []
        self._reads = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, classes: Path, bootstrap: str, folder: Path) -> Instance:
        java = [kafka_oracle.jdk_program("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        arguments = ["-cp", f"{classes}:{jars()}/*", "StreamsPass", bootstrap, "source", "target", str(folder)]
        process = await asyncio.create_subprocess_exec(
            *DIES_WITH_US, *java, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(b"state "):
                self.states.append(line.split()[1].decode())

    async def end(self) -> None:
        """End it as its user does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()
        await self._reads

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reads


class Scene:
    """The cluster, at fixed addresses, the instances, and the records sent."""

    def __init__(self, members: Members, classes: Path, folder: Path) -> None:
        self.members, self._classes, self._folder = members, classes, folder
        self._ports = {number: free_port() for number in BROKERS}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self.instances: list[Instance] = []
        self._sent = list[bytes]()
        self._number = 0

    async def brokers_up(self) -> None:
        for number, port in self._ports.items():
            await self.members.start(number, listeners=f"PLAINTEXT://127.0.0.1:{port}")

    async def brokers_down(self) -> None:
        for number in BROKERS:
            await self.members.kill(number)

    async def begin(self) -> None:
        self._number += 1
        folder = self._folder / str(self._number)
        self.instances.append(await Instance.start(self._classes, self.bootstrap, folder))

    async def passes(self) -> None:
        """Send records, and wait until all that were ever sent are in the target."""
        async with Client(self.bootstrap, retry_ms=60_000) as client:
            for _ in range(RECORDS):
                self._sent.append(b"%d" % len(self._sent))
                await send(client, "source", len(self._sent) % PARTITIONS, [Record(0, -1, 0, None, self._sent[-1])])
            async with asyncio.timeout(PATIENCE_S):
                while not set(self._sent) <= await self._arrived(client):
                    assert all(each.process.returncode is None for each in self.instances), "an instance ended"
                    await asyncio.sleep(0.5)

    async def _arrived(self, client: Client) -> set[bytes | None]:
        return {each for index in range(PARTITIONS) for each in await values(client, "target", index)}


def test_streams_continues_when_its_brokers_come_back(tmp_path: Path) -> None:
    classes = compiled(tmp_path)

    async def work() -> None:
        members = Members(tmp_path / "logs", {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"})
        scene = Scene(members, classes, tmp_path / "state")
        try:
            await scene.brokers_up()
            async with Client(scene.bootstrap) as client:
                for name in ("source", "target"):
                    await create_topic(client, NewTopic(name, PARTITIONS, 3))
                    await until(lambda name=name: all(len(members.leaders(name, at)) == 1 for at in range(PARTITIONS)))
            await scene.brokers_down()
            for _ in range(3):
                await scene.begin()
            await asyncio.sleep(5)  # they send requests without an answer
            await scene.brokers_up()
            await scene.passes()
            assert all("ERROR" not in each.states for each in scene.instances)

            await scene.brokers_down()
            await asyncio.sleep(8)  # longer than their sessions
            await scene.brokers_up()
            await scene.passes()

            await scene.brokers_down()
            await asyncio.gather(*(scene.instances.pop().end() for _ in range(2)))
            await scene.brokers_up()
            await scene.passes()

            await scene.begin()
            await scene.passes()
            await scene.brokers_down()
            await scene.instances.pop(0).kill()
            await scene.begin()
            await scene.brokers_up()
            await scene.passes()
            assert all("ERROR" not in each.states for each in scene.instances)
        finally:
            for each in scene.instances:
                await each.kill()
            for broker in list(members.brokers.values()):
                await broker.abort()

    asyncio.run(work())
