"""`metadata show`, `diff` and `export` of trees: in a broker's log directory, and in the data files of a ZooKeeper."""

import json
import shutil
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import KraftNode
from magicbyte.testing import Broker
from server.metadata.zookeeper_builders import CREATE, SESSION, created, files, log_of, put, transaction

TOPICS = '{"version":1,"partitions":{"0":[5]}}'
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


@pytest.mark.parametrize("inside", ["", "version-2"])
def test_the_data_directory_of_a_zookeeper_is_shown_compared_and_written_for_kraft(inside: str, tmp_path: Path) -> None:
    contents = files("3.9.1")
    data = put(tmp_path / "data", contents)
    shown = run("metadata", "show", data / inside)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "zeta-two         5PSOZBnkTreiHpJ-ASlrFQ          2       5" in shown.stdout
    assert "zeta-anna SCRAM-SHA-256 SCRAM-SHA-512" in shown.stdout
    older = put(tmp_path / "older", {name: contents[name] for name in ("snapshot.0", "log.1", "log.2d", "log.67")})
    compared = run("metadata", "diff", older, data / inside)
    assert compared.exit_code == 1
    assert "topic zeta-more-86807: new" in compared.stdout
    out = tmp_path / "out"
    done = run("metadata", "export", data / inside, "--to-kraft", out, "--node-id", 5, "--alone", "--release", "4.3")
    assert done.exit_code == 0, done.stderr
    assert "cluster SJzkctsiQ4iWgqboUzhN0Q: metadata.version 30 (4.3-IV0), 3 topics" in done.stdout
    assert {path.name: path.read_bytes() for path in (data / "version-2").iterdir()} == contents


def test_damage_in_a_zookeepers_files_is_said_with_file_and_position(tmp_path: Path) -> None:
    contents = dict(files("3.9.1"))
    contents["snapshot.cf"] = contents["snapshot.cf"][:-1]
    contents["log.d1"] = contents["log.d1"].rstrip(b"\0")[:-1]
    done = run("metadata", "show", put(tmp_path / "data", contents))
    assert done.exit_code == 0
    snapshot, log = done.stderr.splitlines()
    assert "version-2/snapshot.cf, position 15478: length: expected 0 to 0, found 1: the snapshot" in snapshot
    assert "version-2/log.d1, position " in log
    assert log.endswith(": the log ends before it")
    contents["log.a2"] = contents["log.a2"][:1000]
    broken = run("metadata", "show", put(tmp_path / "broken", contents))
    assert broken.exit_code == 1
    assert "version-2/log.a2, position " in broken.stderr
    alone = run("metadata", "show", put(tmp_path / "alone", {"snapshot.0": files("3.9.1")["snapshot.0"]}))
    assert alone.exit_code == 2
    assert "expected one cluster of Kafka, found none" in alone.stderr


def test_a_cluster_below_a_chroot_path_is_found_and_one_of_several_is_named(tmp_path: Path) -> None:
    def of(first: int, top: str) -> list[bytes]:
        paths = [top, f"{top}/brokers", f"{top}/brokers/topics", f"{top}/brokers/topics/of{top[1:]}"]
        made = [(path, TOPICS.encode() if path.endswith(top[1:]) and path != top else b"") for path in paths]
        return [transaction(first + at, CREATE, created(*each), SESSION) for at, each in enumerate(made)]

    one = put(tmp_path / "one", {"log.1": log_of(*of(1, "/a"))})
    shown = run("metadata", "show", one)
    assert shown.stderr == "magicbyte: note: the cluster is at /a\n"
    assert "of" in shown.stdout
    two = put(tmp_path / "two", {"log.1": log_of(*of(1, "/a"), *of(5, "/b"))})
    refused = run("metadata", "show", two)
    assert refused.exit_code == 2
    assert "expected one cluster of Kafka, found those at /a, /b: name one, such as PATH@/a" in refused.stderr
    named = run("metadata", "show", f"{two}@/b", "--json")
    assert [each["name"] for each in json.loads(named.stdout)["topics"]] == ["ofb"]
    wrong = run("metadata", "diff", f"{two}@/c", two)
    assert wrong.exit_code == 2
    assert "no cluster of Kafka at /c, found those at /a, /b" in wrong.stderr
    at = run("metadata", "show", one, "--at", "3")
    assert at.exit_code == 2
    assert "it has no history" in at.stderr


def test_logs_without_metadata_are_refused_with_the_command_that_makes_some(served: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(served, logs, ignore=shutil.ignore_patterns("*.sqlite*"))
    for words in (("show", logs), ("export", logs, "--to-kraft", tmp_path / "out"), ("diff", logs, served)):
        done = run("metadata", *words)
        assert done.exit_code == 2
        assert f"only logs of topics: `magicbyte rescue {logs} --to-kraft DIR` makes" in done.stderr
    assert not (tmp_path / "out").exists()
    assert run("rescue", logs, "--to-kraft", tmp_path / "out").exit_code == 0
    assert run("metadata", "check", tmp_path / "out").exit_code == 0
