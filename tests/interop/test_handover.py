"""A log directory changes hands: from our broker to a real one by way of ZooKeeper, and back."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import run
from interop import kafka_oracle
from interop.handed_over import Seen, fill, look
from magicbyte.testing import Broker
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

START = 1_700_000_000_000
SETTINGS = {"retention.ms": "-1", "segment.bytes": "100000"}
SECONDS = 240


@pytest.fixture
def zookeeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A ZooKeeper of the release that the test is about."""
    folder, port = tmp_path / "zookeeper", free_port()
    folder.mkdir()
    pid = kafka_oracle.start_zookeeper(request.getfixturevalue("version"), folder, port, SECONDS)
    yield f"127.0.0.1:{port}"
    kafka_oracle.stop_process(pid, str(folder), 15)


def real(version: str, folder: Path, data: Path, zookeeper: str) -> Seen:
    """What a real broker over a log directory answers, and what it takes."""
    launcher = [sys.executable, str(Path(kafka_oracle.__file__))]
    command = [*launcher, "start", version, "--dir", folder, "--port", str(free_port()), "--join-zk", zookeeper]
    subprocess.run([*command, "--prop", f"log.dirs={data}"], check=True, timeout=SECONDS)
    try:
        bootstrap = json.loads((folder / "oracle.json").read_text())["bootstrap"]
        seen = asyncio.run(asyncio.wait_for(look(bootstrap, SETTINGS), SECONDS))
        asyncio.run(asyncio.wait_for(fill(bootstrap, 1000, START), SECONDS))
        return seen
    finally:
        subprocess.run([*launcher, "stop", folder], check=True, timeout=SECONDS)


@pytest.mark.parametrize("version", ["0.10.2.2", "2.8.2"])
def test_a_directory_goes_to_a_real_broker_and_back_with_all_that_is_known(
    version: str, zookeeper: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    ours = {
        "inter.broker.protocol.version": "0.10.2",
        "log.message.format.version": "0.10.2",
        "offsets.topic.num.partitions": "3",
    }
    with Broker(ours, directory=data) as broker:
        asyncio.run(fill(broker.bootstrap_servers, 0, START, creates={**SETTINGS, "message.format.version": "0.10.2"}))
        before = asyncio.run(look(broker.bootstrap_servers, SETTINGS))
    assert before.committed == 7
    done = run("metadata", "export", "--dir", data, "--zookeeper", zookeeper)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("exported 2 topics, ")

    seen = real(version, tmp_path / "kafka", data, zookeeper)
    assert seen.records == before.records
    assert seen.committed == before.committed
    assert seen.settings == (SETTINGS if version != "0.10.2.2" else {})

    (data / "magicbyte-metadata.sqlite").unlink()
    done = run("metadata", "import", "--dir", data, "--zookeeper", zookeeper)
    assert (done.exit_code, done.stderr) == (0, "")
    with Broker(ours, directory=data) as broker:
        after = asyncio.run(look(broker.bootstrap_servers, SETTINGS))
    assert after.settings == SETTINGS
    assert after.committed == 1007
    assert [part[:50] for part in after.records] == before.records
    assert [[value for _, _, value in part[50:]] for part in after.records] == [
        [b"value %d" % (1000 + at) for at in range(50)] for _ in range(2)
    ]
