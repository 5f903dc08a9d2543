"""One Spark session for all tests, and the golden logs laid out as one log directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import golden_data
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN
from spark.logs import some_records, write_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEANLY = '{"version":0,"brokerEpoch":-1}'
"""What a broker writes into CLEAN_SHUTDOWN as it ends."""


@dataclass(frozen=True)
class GoldenLogs:
    """A log directory with a topic for each golden case of one kind."""

    path: Path
    cases: dict[str, golden_data.Case]  # by topic

    def partition(self, topic: str) -> Path:
        return self.path / f"{topic}-0"


def topic_of(case: golden_data.Case) -> str:
    return "g" + case.id.replace("/", ".").replace("_", "-")


def lay_out(folder: Path, cases: list[golden_data.Case]) -> GoldenLogs:
    """Write the cases into a log directory; of a trimmed log, its checkpoint says where it starts."""
    by_topic = {topic_of(case): case for case in cases}
    trimmed = [f"{topic} 0 77\n" for topic, case in by_topic.items() if case.topic == "trimmed-none"]
    for topic, case in by_topic.items():
        (folder / f"{topic}-0").mkdir(parents=True)
        for name, content in case.partition_files().items():
            (folder / f"{topic}-0" / name).write_bytes(content)
    (folder / "log-start-offset-checkpoint").write_text(f"0\n{len(trimmed)}\n{''.join(trimmed)}")
    return GoldenLogs(folder, by_topic)


def lay_out_closed(folder: Path, cases: list[golden_data.Case]) -> None:
    """Write the cases into a log directory of a broker that was shut down as it should be."""
    lay_out(folder, cases)
    (folder / CLEAN_SHUTDOWN).write_text(CLEANLY)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenLogs:
    """All logs whose records a consumer saw."""
    return lay_out(tmp_path_factory.mktemp("golden"), [case for case in golden_data.log_cases() if case.has_records])


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> GoldenLogs:
    """The logs of brokers that were killed, some of them damaged or torn."""
    cases = [case for case in golden_data.log_cases() if not case.has_records]
    return lay_out(tmp_path_factory.mktemp("crashed"), cases)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from magicbyte.spark import local_session

    session = local_session("local[2]", name="tests", conf={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A folder with three partitions in `logs`."""
    for number, count in enumerate((300, 20, 100)):
        write_partition(tmp_path / "logs", f"orders-{number}", some_records(count))
    return tmp_path
