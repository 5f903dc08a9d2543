"""Listings of a store: a driver that plans asks for many folders at a time."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem

import magicbyte
from magicbyte.access.workers import REQUESTS, requests_at_once
from magicbyte.engine.log.files.directory import discover
from magicbyte.spark import plan
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.units import find
from spark.logs import options_of

PARTITIONS = REQUESTS + 7
LOG = "00000000000000000000.log"
WAIT_SECONDS = 30


class Waiting(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store of empty logs. The listings of the first REQUESTS folders end when all of them have begun."""

    protocol = "waiting"
    cachable = False
    begun = threading.Barrier(REQUESTS)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[dict[str, Any]]:
        path = self._strip_protocol(path).rstrip("/")
        above, _, name = path.rpartition("/")
        if name == "logs":
            return [{"name": f"{path}/t-{number}", "type": "directory", "size": 0} for number in range(PARTITIONS)]
        if above.endswith("logs"):
            if int(name.removeprefix("t-")) < REQUESTS:
                self.begun.wait(WAIT_SECONDS)
            if name == "t-3" and "broken" in above:
                raise PermissionError(13, "Permission denied", path)
            return [{"name": f"{path}/{LOG}", "type": "file", "size": 10}]
        return []

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path).rstrip("/")
        if path.endswith("checkpoint"):
            raise FileNotFoundError(path)
        return {"name": path, "type": "file" if path.endswith(".log") else "directory", "size": 10}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return bytes(10)[start:end]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waiting, "begun", threading.Barrier(REQUESTS))
    fsspec.register_implementation("waiting", Waiting, clobber=True)


def pipeline(folder: Path) -> list[str]:
    (folder / "p.toml").write_text('[source]\npath = "waiting://logs"\n[[stage]]\ndo = "verify"\n')
    return [unit.name for unit in find(load(folder / "p.toml"), 0)]


def source(folder: Path) -> list[str]:
    found = plan.chosen_partitions(options_of("waiting://logs"))  # type: ignore[arg-type]
    return [each.name for each in found]


def opened(folder: Path) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in magicbyte.open_log("waiting://logs").partitions]


@pytest.mark.parametrize("listed", [pipeline, source, opened])
def test_folders_of_a_store_are_listed_many_at_a_time(listed: Callable[[Path], list[str]], tmp_path: Path) -> None:
    assert sorted(listed(tmp_path)) == sorted(f"t-{number}" for number in range(PARTITIONS))


def test_partitions_come_in_the_order_in_which_one_listing_at_a_time_finds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with requests_at_once() as many:
        found = discover(["waiting://logs"], many=many)
    monkeypatch.setattr(Waiting, "begun", threading.Barrier(1))
    assert found == discover(["waiting://logs"])


def test_a_listing_that_fails_is_raised() -> None:
    with requests_at_once() as many, pytest.raises(magicbyte.LogDirectoryError, match="Permission denied"):
        discover(["waiting://broken/logs"], many=many)
