"""The tour: computed from the logs it is shown, bundled or not."""

import re
from pathlib import Path

import pytest

import golden_data
from cli.command import run


@pytest.fixture
def other_logs(tmp_path: Path) -> Path:
    """A log directory that is not bundled: two partitions, one of them damaged."""
    for case_id, name in (("0.11.0.3/txn-lz4", "orders-0"), ("2.8.2/crash-flip.crashed", "clicks-3")):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        for file, content in golden_data.log_case(case_id).partition_files().items():
            (folder / file).write_bytes(content)
    return tmp_path / "data"


def test_the_bundled_logs_are_toured() -> None:
    result = run("tour")
    assert result.exit_code == 0
    assert "crash-flip" in result.stdout
    assert "59 batches recovered" in result.stdout  # the damaged log, salvaged
    assert "--to v2 --codec zstd --out newer" in result.stdout
    assert re.search(r"position \d+,\s+offsets\s+\d+\.\.\d+:\s+crc", result.stdout)


def test_other_logs_are_toured_with_their_own_numbers(other_logs: Path) -> None:
    result = run("tour", other_logs)
    assert result.exit_code == 0
    assert "orders-0" in result.stdout
    assert "clicks-3" in result.stdout
    case = golden_data.log_case("0.11.0.3/txn-lz4")
    uncommitted, committed = (len(list(case.records())), len(list(case.committed())))
    assert re.search(rf"^{uncommitted}$", result.stdout, re.MULTILINE)
    assert re.search(rf"^{committed}$", result.stdout, re.MULTILINE)
    assert "basic-zstd" not in result.stdout


def test_the_logs_it_unpacks_can_be_read(tmp_path: Path) -> None:
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    listed = run("inventory", tmp_path / "tour/logs")
    assert "13 partitions" in listed.stdout
    assert listed.exit_code == 0  # from the headers alone: the damage in one of them is inside


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    result = run("tour", "--keep", tmp_path)
    assert (result.exit_code, "new or empty" in result.stderr) == (2, True)


def test_a_path_without_logs_is_refused(tmp_path: Path) -> None:
    result = run("tour", tmp_path)
    assert result.exit_code == 2
    assert "found no log" in result.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_it_ends_with_a_spark_query(other_logs: Path) -> None:
    result = run("tour", "--spark", other_logs)
    assert result.exit_code == 0
    assert re.search(r"\|orders\s*\|2\s*\|", result.stdout)
