"""Kills of our mirror and of the real brokers that it copies between; tests/tools/mirror/kills.py has what is done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magicbyte.engine.records.encode import Format
from tools.mirror import kills

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kills.Kafka, kills.Kafka]]:
    folder = tmp_path_factory.mktemp("kills")
    with kills.running(kills.Kafka(folder / "source", "2.8.2"), kills.Kafka(folder / "target", "3.9.1")) as pair:
        yield pair


@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.campaign), 4])
def test_between_real_brokers_nothing_is_lost_or_twice_and_groups_are_exact(
    brokers: tuple[kills.Kafka, kills.Kafka], tmp_path: Path, seed: int
) -> None:
    kills.check(kills.Run(seed, *brokers, tmp_path / "log", [Format.V2]).run())
