"""`magicbyte plan` of real brokers: settings, groups and stored formats by what their protocol tells."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from interop import jvm
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.client.fetch import fetch_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

START = 1_700_000_000_000


async def produce(client: Client, topic: str) -> None:
    for _ in range(3):
        rows = [Record(at, START + at, 0, b"key", b"value" * 20) for at in range(50)]
        await send(client, topic, 0, rows, ProduceOptions(codec=Codec.GZIP))


def planned(bootstrap: str, *arguments: str, topic: str = "topic") -> tuple[dict[str, Any], list[str]]:
    done = run("plan", "-b", bootstrap, "--topic", topic, "--format", "json", *arguments)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    return found["topics"][0], found["notes"]


@pytest.mark.parametrize(("version", "form"), [("0.8.2.2", "0"), ("0.10.2.2", "1"), ("4.3.1", "2")])
def test_the_stored_formats_of_a_broker_are_reported_whatever_its_release(
    version: str, form: str, tmp_path: Path
) -> None:
    async def fill(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            if not version.startswith("0.8"):
                await create_topic(client, NewTopic("topic", 1, 1))
                await create_topic(client, NewTopic("empty", 1, 1))
            await produce(client, "topic")

    settings = [] if form == "0" else ["log.retention.ms=-1"]  # the records are from 2023
    with jvm.broker(version, tmp_path / "broker", *settings) as state:
        asyncio.run(fill(state["bootstrap"]))
        topic, notes = planned(state["bootstrap"])
        if form == "1":
            empty, _ = planned(state["bootstrap"], topic="empty")
            assert (empty["phase"], empty["next"]) == ("not known", "see which message.format.version it has")
            given, _ = planned(state["bootstrap"], "message.format.version=0.10.2", topic="empty")
            assert (given["format"], given["phase"]) == ("1", "phase 1")
            status = run("migrate", "status", "-b", state["bootstrap"], "--topic", "empty", "--to", "1", "--json")
            found = json.loads(status.stdout)
            assert (found["phase"], found["next"]) == (
                "not known",
                "see which inter.broker.protocol.version the brokers have",
            )
            applied = run("migrate", "apply", "-b", state["bootstrap"], "--topic", "topic", "--to", "1")
            assert (applied.exit_code, "kafka-configs.sh" in applied.stderr) == (1, True)
    assert [(each["format"], each["codec"]) for each in topic["stored"]] == [(form, "gzip")]
    assert (topic["format"], topic["sampled"]) == (form, True)
    assert topic["formatIsKnown"] == (form == "2")
    assert topic["next"] == (
        "see that no client uses an older format" if form == "2" else "see that consumers read the format"
    )
    assert any("no broker returns its settings" in note for note in notes) == version.startswith("0.")


def test_a_topic_whose_format_was_changed_is_in_phase_2(tmp_path: Path) -> None:
    async def fill(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await create_topic(client, NewTopic("topic", 1, 1, configs={"message.format.version": "0.10.2"}))
            await produce(client, "topic")
            await alter_configs(client, ConfigResource.TOPIC, "topic", {"message.format.version": "2.8"})
            magic = 1
            while magic < 2:  # a broker is notified of the change, and takes its time
                await produce(client, "topic")
                _, end = await bounds(client, "topic", 0)
                magic = (await fetch_sets(client, "topic", 0, end - 1)).table.magic[-1]

    with jvm.broker("2.8.2", tmp_path / "broker", "log.retention.ms=-1") as state:
        asyncio.run(fill(state["bootstrap"]))
        told, _ = planned(state["bootstrap"])
        exact, _ = planned(state["bootstrap"], "--dir", str(tmp_path / "broker/data"))
    for topic in (told, exact):
        assert {each["format"] for each in topic["stored"]} == {"1", "2"}
        assert (topic["format"], topic["phase"]) == ("2", "phase 2")
    assert sum(each["entries"] for each in exact["stored"]) % 3 == 0
    assert exact["next"] == "convert the stored records"  # retention.ms is -1
