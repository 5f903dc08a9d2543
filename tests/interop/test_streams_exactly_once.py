"""Kafka Streams, exactly once: Kafka's StreamsSmokeTest with our brokers, while brokers and the application die.

The driver of the smoke test writes 20,000 records in 90 seconds, and judges what the application made of them: each is
counted once, in all of its tables and windows. With `exactly_once` a record too many is a failure as one too few is.
The driver's producer takes the defaults of its release: before 3.0 it is not idempotent, and writes a record twice when
the broker dies between append and response. So the driver is that of 3.9.1 or later.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import kafka_oracle
from interop.bounced import Bounced, make_topics, running
from interop.processes import DIES_WITH_US

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
TOPICS = (
    "data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt", "avg",
    "tagg", "fk",
)  # fmt: skip
IDEMPOTENT = "3.9.1"  # a release whose producers are idempotent by default
PARTITIONS = 5
DRIVER_S = 900
FAULTS = ("kill broker", "kill application", "stop broker", "kill broker", "kill application")
BETWEEN_S = 12


def jars(version: str) -> Path:
    """Return the folder of Kafka Streams with its tests."""
    kafka = "org.apache.kafka"
    wanted = [
        (kafka, "kafka-streams", version), (kafka, "kafka-streams", version, "test"),
        (kafka, "kafka-clients", version), (kafka, "kafka-clients", version, "test"),
        ("junit", "junit", "4.13.2"), ("org.hamcrest", "hamcrest", "2.2"), ("org.slf4j", "slf4j-nop", "1.7.36"),
    ]  # fmt: skip
    return Path(kafka_oracle.resolve(version, "streams", wanted))


class Application:
    """The smoke test's application, or its driver: one process after the other."""

    def __init__(self, version: str, properties: Path, command: str) -> None:
        self._command = [
            *DIES_WITH_US, kafka_oracle.jdk_program("java"), "-Xmx512m", "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1", "-cp", f"{jars(version)}/*", SMOKE_TEST, str(properties), command,
        ]  # fmt: skip
        self.log = properties.with_name(f"{command}.log")
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def smoke_test(
    version: str, guarantee: str, brokers: Bounced, folder: Path, replicas: int
) -> Iterator[tuple[Application, Application]]:
    """Run the application and the driver inside the block."""
    properties = folder / "streams.properties"
    settings = {
        "bootstrap.servers": brokers.bootstrap,
        "processing.guarantee": guarantee,
        "state.dir": folder / "state",
        "commit.interval.ms": 300,
        "replication.factor": replicas,
        "transaction.timeout.ms": 10_000,
        "session.timeout.ms": 10_000,
        "acks": "all",
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    programs = list[Application]()
    try:
        programs.append(Application(version, properties, "process"))
        programs.append(Application(max(version, IDEMPOTENT), properties, "run"))
        yield programs[0], programs[1]
    finally:
        for program in programs:
            program.kill()


@pytest.mark.parametrize(
    ("version", "guarantee", "size", "as_version"),
    [
        pytest.param("2.8.2", "exactly_once", "one", "2.8", marks=pytest.mark.campaign),
        pytest.param("3.9.1", "exactly_once_v2", "one", "3.9", marks=pytest.mark.campaign),
        ("4.3.1", "exactly_once_v2", "one", "4.1"),
        pytest.param("2.8.2", "exactly_once", "three", "2.8", marks=pytest.mark.campaign),
        pytest.param("3.9.1", "exactly_once_v2", "three", "3.9", marks=pytest.mark.campaign),
    ],
)
def test_streams_counts_each_record_once_while_brokers_and_the_application_are_killed(
    version: str, guarantee: str, size: str, as_version: str, tmp_path: Path
) -> None:
    with running(size, tmp_path, as_version=as_version, num_partitions=str(PARTITIONS)) as brokers:
        make_topics(brokers.bootstrap, PARTITIONS, *TOPICS)
        with smoke_test(version, guarantee, brokers, tmp_path, 3 if size == "three" else 1) as (application, driver):
            end = time.monotonic() + DRIVER_S
            for fault in FAULTS:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    driver.process.wait(BETWEEN_S)
                if fault == "kill application":
                    application.kill()
                    application.start()
                else:
                    brokers.bounce(hard=fault == "kill broker")
            driver.process.wait(end - time.monotonic())
            judged = driver.said.partition("Result Verification")[2]
            assert "ALL-RECORDS-DELIVERED" in judged, driver.said[-3000:]
            assert judged.rstrip().endswith("SUCCESS"), judged[-3000:]
            assert application.process.poll() is None, application.said[-3000:]
