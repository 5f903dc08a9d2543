"""The folders of a log directory that hold no log of a user's topic."""

from pathlib import Path

import pytest

from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.left_out import QUORUMS_OWN, in_use, is_quorums_own, left_out

UUID = "0123456789abcdef0123456789abcdef"
EVERY = ("orders-0", f"orders-0.{UUID}-stray", f"bills-0.{UUID}-stray", f"bills-1.{UUID}-future",
         f"gone-0.{UUID}-delete", "__cluster_metadata-0")  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in EVERY:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(b"")
    return tmp_path


def test_only_the_users_logs_are_in_use(directory: Path) -> None:
    assert [each.name for each in in_use(discover(directory))] == ["orders-0"]
    assert [each.name for each in in_use(discover(directory), quorum=True)] == ["__cluster_metadata-0", "orders-0"]


def test_the_quorums_own_log_is_in_use_when_it_is_named(directory: Path) -> None:
    assert "__cluster_metadata-0" in [each.name for each in in_use(discover(directory), ["__cluster_metadata"])]
    (given,) = in_use(discover(directory / "__cluster_metadata-0"))
    assert is_quorums_own(given.topic)


def test_every_folder_that_is_left_out_has_a_reason_and_the_only_copies_are_known(directory: Path) -> None:
    found = {Path(each.partition.path).name: each for each in left_out(discover(directory))}
    assert found.keys() == set(EVERY) - {"orders-0"}
    assert found["__cluster_metadata-0"].why == QUORUMS_OWN
    assert {name for name, each in found.items() if each.is_only_copy} == {EVERY[2], EVERY[3]}
    assert {each.partition.topic for each in left_out(discover(directory), ["bills"])} == {"bills"}
