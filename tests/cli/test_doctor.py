"""`magicbyte doctor`: what it prints, its options and its exit status."""

import json
from pathlib import Path

import pytest

from cli.command import run
from engine.log.appended import batch_of


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batch_of(0, 1, 3))
    return folder


def test_a_sound_partition_has_nothing(orders: Path) -> None:
    result = run("doctor", orders)
    assert result.exit_code == 0
    assert result.stdout == "1 partition: nothing found\n"


def test_notes_do_not_change_the_exit_status(orders: Path) -> None:
    (orders / "notes.txt").write_bytes(b"x")
    result = run("doctor", orders)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "1 partition: 0 errors, 0 warnings, 1 note",
        "",
        "note: foreign files: orders-0 (1 B)",
        "  files that are not Kafka's",
        "  evidence: 1 files, such as notes.txt",
        "  do: move them elsewhere: they take space",
    ]


def test_an_error_has_its_position_and_remedy_and_status_1(orders: Path) -> None:
    log = orders / f"{0:020}.log"
    log.write_bytes(log.read_bytes() + bytes(100))
    result = run("doctor", orders)
    assert result.exit_code == 1
    assert "error: damage: orders-0" in result.stdout
    assert f"position {len(batch_of(0, 1, 3))}" in result.stdout
    assert "magicbyte salvage" in result.stdout


def test_json_has_the_same_diagnoses(orders: Path) -> None:
    (orders / "notes.txt").write_bytes(b"x")
    result = run("doctor", orders, "--json")
    (only,) = json.loads(result.stdout)["diagnoses"]
    assert (only["severity"], only["kind"], only["where"], only["bytes"]) == ("note", "foreign files", "orders-0", 1)


def test_a_topic_is_chosen_by_name(orders: Path) -> None:
    other = orders.parent / "bills-0"
    other.mkdir()
    (other / f"{0:020}.log").write_bytes(batch_of(0, 1) + bytes(100))
    assert run("doctor", orders.parent, "--topic", "orders").exit_code == 0
    assert run("doctor", orders.parent, "--topic", "bills").exit_code == 1
    assert run("doctor", orders.parent, "--topic", "gone").exit_code == 2


def test_a_path_without_logs_is_refused(tmp_path: Path) -> None:
    result = run("doctor", tmp_path)
    assert result.exit_code == 2
    assert "found no log in it" in result.stderr
