"""Pipelines from and to our clusters with SASL_SSL; a password is in no file, message, plan or process list."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.cli.main import main
from magicbyte.engine.errors import InvalidConfigError, SecurityError
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.records.columns import Record
from magicbyte.spark.pipeline.config import PipelineError, load
from magicbyte.spark.pipeline.driver import plan, run
from magicbyte.testing import Broker
from spark.builders import below
from spark.in_process import InProcess
from spark.logs import some_records

SECRETS: Final = {"source": "s0urce-S3same-zq", "target": "t4rget-S3same-zq"}
WRONG: Final = "wr0ng-S3same-zq"
RECORDS: Final = some_records(40)


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, Broker]]:
    """Two clusters whose user has different passwords; the source has topics."""
    source = Broker(security="SASL_SSL", users={"alice": SECRETS["source"]})
    target = Broker(security="SASL_SSL", users={"alice": SECRETS["target"]})
    with source, target:

        async def prepare() -> None:
            async with client(source) as to:
                for topic in ("orders", "clicks", "payments"):
                    await admin.create_topic(to, admin.NewTopic(topic, 2))
                    for number in range(2):
                        await send(to, topic, number, RECORDS)

        asyncio.run(prepare())
        yield {"source": source, "target": target}


def client(broker: Broker) -> Client:
    assert broker.security is not None
    return Client(broker.bootstrap_servers, security=broker.security.client())


def settings(broker: Broker, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """Return client settings, the password among them as it is."""
    assert broker.security is not None
    return broker.security.librdkafka(mechanism=mechanism)


def held(broker: Broker, topic: str, partition: int) -> list[Record]:
    async def work() -> list[Record]:
        async with client(broker) as to:
            ends = await bounds(to, topic, partition)
            return [each async for part in read_records(to, topic, partition, *ends) for each in part]

    return asyncio.run(work())


def files_with(folder: Path, *secrets: str) -> list[Path]:
    """Return the files below a folder that contain one of the secrets."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files
    return [each for each in files if any(secret.encode() in each.read_bytes() for secret in secrets)]


def between(
    brokers: dict[str, Broker], folder: Path, sink: str | None = None, stages: str = "", topic: str = "orders"
) -> Path:
    """Write a pipeline of one topic from the source cluster, into the target cluster unless there is another sink."""
    sink = sink or f'bootstrap = "{brokers["target"].bootstrap_servers}"\ngroup = "{folder.name}"'
    path = folder / "pipeline.toml"
    source = f'[source]\nbootstrap = "{brokers["source"].bootstrap_servers}"\ntopics = ["{topic}"]\n'
    path.write_text(f"{source}{stages}[sink]\n{sink}\n")
    return path


def test_a_secured_cluster_is_read_and_another_is_written_and_no_output_has_a_password(
    brokers: dict[str, Broker], tmp_path: Path
) -> None:
    stages = '[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"\n'
    copied = run(
        load(between(brokers, tmp_path, 'path = "copy"', stages), source_client=settings(brokers["source"])),
        context=InProcess(),
    )
    assert copied.status == 0, copied.units
    for each in discover([str(tmp_path / "copy")]):
        assert [record for columns in SegmentReader(each).records() for record in columns] == RECORDS
    path = tmp_path / "into.toml"
    path.write_text(f'[source]\npath = "copy"\n[sink]\nbootstrap = "{brokers["target"].bootstrap_servers}"\n')
    sent = run(load(path, target_client=settings(brokers["target"])), context=InProcess())
    assert sent.status == 0, sent.units
    assert [held(brokers["target"], "orders", number) for number in range(2)] == [RECORDS, RECORDS]
    assert files_with(tmp_path, *SECRETS.values()) == []


def test_each_cluster_gets_the_settings_of_its_side_and_no_object_shows_them(
    brokers: dict[str, Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}
    for side, secret in SECRETS.items():
        monkeypatch.setenv(f"PIPELINE_{side.upper()}", secret)
        given[side] = settings(brokers[side]) | {"sasl.password": f"${{env:PIPELINE_{side.upper()}}}"}
    pipeline = load(
        between(brokers, tmp_path, topic="clicks"), source_client=given["source"], target_client=given["target"]
    )
    done = run(pipeline, context=InProcess())
    assert done.status == 0, done.units
    assert {each["unit"] for each in done.units} == {"clicks-0", "clicks-1"}
    as_they_are = load(
        between(brokers, tmp_path, topic="clicks"),
        source_client=settings(brokers["source"]),
        target_client=settings(brokers["target"]),
    )
    due = plan(as_they_are)
    shown = f"{as_they_are!r} {due!r} {json.dumps(due.to_json())} {done!r}"
    assert "clicks-0" in shown
    assert [secret for secret in SECRETS.values() if secret in shown] == []


def test_a_wrong_password_is_refused_and_not_shown(brokers: dict[str, Broker], tmp_path: Path) -> None:
    wrong = settings(brokers["source"]) | {"sasl.password": WRONG}
    pipeline = load(between(brokers, tmp_path), source_client=wrong, target_client=settings(brokers["target"]))
    with pytest.raises(SecurityError, match="refused") as error:
        run(pipeline, context=InProcess())
    assert WRONG not in str(error.value)


def test_settings_are_checked_before_anything_runs(brokers: dict[str, Broker], tmp_path: Path) -> None:
    path = between(brokers, tmp_path, 'path = "copy"')
    with pytest.raises(PipelineError, match=r"target\.security\.protocol: expected a \[sink\] with a bootstrap"):
        load(path, target_client={"security.protocol": "SSL"})
    with pytest.raises(InvalidConfigError, match=r"^source\.security\.protocol: expected") as error:
        load(path, source_client={"security.protocol": "SASL", "sasl.password": WRONG})
    assert WRONG not in str(error.value)
    with pytest.raises(InvalidConfigError, match=r"did you mean 'security\.protocol'"):
        load(path, source_client={"security.protocoll": "SSL"})
    assert not (tmp_path / "copy").exists()


def test_the_command_takes_settings_from_a_file_and_options_of_which_the_options_win(
    brokers: dict[str, Broker], tmp_path: Path
) -> None:
    path = between(brokers, tmp_path)
    (tmp_path / "secrets").mkdir()
    config = tmp_path / "secrets/clients.properties"
    named = {f"{side}.{name}": text for side in SECRETS for name, text in settings(brokers[side]).items()}
    config.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
    arguments = ["pipeline", "run", str(path), "--config", str(config), "--dry-run"]
    planned = CliRunner().invoke(main, arguments)
    assert planned.exit_code == 0, planned.output
    assert "2 partitions" in planned.output
    refused = CliRunner().invoke(main, [*arguments, "-X", f"source.sasl.password={WRONG}"])
    assert refused.exit_code == 2
    assert "refused" in refused.output
    for text in (planned.output, refused.output):
        assert not any(secret in text for secret in (*SECRETS.values(), WRONG))


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_on_spark_leaves_no_password_in_files_output_or_command_lines(
    brokers: dict[str, Broker], tmp_path: Path
) -> None:
    for name in ("events", "local", "secrets", "tmp"):
        (tmp_path / name).mkdir()
    stages = (
        f'[[stage]]\ndo = "verify"\n[spark]\n"spark.eventLog.enabled" = "true"\n'
        f'"spark.eventLog.dir" = "file://{tmp_path / "events"}"\n"spark.local.dir" = "{tmp_path / "local"}"\n'
    )
    path = between(brokers, tmp_path, stages=stages, topic="payments")
    config = tmp_path / "secrets/clients.properties"
    named = {f"{side}.{name}": text for side in SECRETS for name, text in settings(brokers[side]).items()}
    named |= {f"{side}.sasl.password": f"${{env:PIPELINE_{side.upper()}}}" for side in SECRETS}
    config.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
    arguments = ["-m", "magicbyte", "pipeline", "run", str(path), "--master", "local[1]", "--config", str(config)]
    environment = {f"PIPELINE_{side.upper()}": secret for side, secret in SECRETS.items()}
    running = subprocess.Popen(
        [sys.executable, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | environment | {"TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    seen: set[str] = set()
    while running.poll() is None:
        seen |= set(below(running.pid).values())
        try:
            running.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    assert running.stdout is not None
    said = running.stdout.read()
    running.stdout.close()
    assert running.returncode == 0, said
    assert any("org.apache.spark" in line for line in seen), "the JVM was not seen"
    shown = "\n".join([said, *seen])
    assert not any(secret in shown for secret in SECRETS.values())
    assert any(each.stat().st_size for each in (tmp_path / "events").rglob("*") if each.is_file())
    assert files_with(tmp_path, *SECRETS.values()) == []
