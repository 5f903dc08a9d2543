"""`metadata show` and `diff` of the tree in a broker's log directory: the same image by another source."""

import json
import shutil
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import KraftNode
from magicbyte.testing import Broker

SETTINGS = {"auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a stopped broker with topic `orders`."""
    folder = tmp_path_factory.mktemp("served") / "logs"
    with Broker(SETTINGS, directory=folder) as broker:
        words = ("orders", "retention.ms=5000", "--partitions", "2")
        created = run("topics", "create", "-b", broker.bootstrap_servers, *words)
        assert created.exit_code == 0, created.stderr
    return folder


def test_the_tree_of_a_stopped_broker_is_shown_and_stays_as_it_was(served: Path) -> None:
    before = {path: path.read_bytes() for path in served.iterdir() if path.is_file()}
    text, printed = run("metadata", "show", served), run("metadata", "show", served, "--json")
    assert (text.exit_code, printed.exit_code) == (0, 0), text.stderr
    found = json.loads(printed.stdout)
    assert [topic["name"] for topic in found["topics"]] == ["orders"]
    assert [partition["replicas"] for partition in found["topics"][0]["partitions"]] == [[0], [0]]
    assert (found["endOffset"], found["snapshot"]) == (None, None)
    assert "topics orders retention.ms=5000" in text.stdout
    assert {path: path.read_bytes() for path in served.iterdir() if path.is_file()} == before


def test_a_tree_and_a_metadata_log_are_compared(served: Path, tmp_path: Path) -> None:
    kraft = KraftNode("4.3.1/clean-a", "node").unpacked(tmp_path)
    done = run("metadata", "diff", served, kraft)
    assert done.exit_code == 1
    assert "topic orders: removed" in done.stdout
    assert "topic alpha-one: new: id " in done.stdout
    assert run("metadata", "diff", served, served).exit_code == 0


def test_a_tree_has_no_history(served: Path) -> None:
    for words in (["show", served, "--at", "5"], ["history", served]):
        done = run("metadata", *words)
        assert done.exit_code == 2
        assert "no history" in done.stderr or "no metadata log" in done.stderr


def test_the_directory_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    with Broker(SETTINGS, directory=tmp_path / "logs"):
        done = run("metadata", "show", tmp_path / "logs")
    assert done.exit_code == 2
    assert "a running broker has it" in done.stderr


def test_a_damaged_tree_is_shown_as_far_as_it_can_be_read(served: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(served, copy)
    path = copy / "magicbyte-metadata.sqlite"
    data = bytearray(path.read_bytes())
    data[3858] ^= 1  # in the name of a column
    path.write_bytes(data)
    done = run("metadata", "show", copy)
    assert done.exit_code == 0
    assert "is damaged" in done.stderr
    assert "orders" in done.stdout
    assert path.read_bytes() == data
