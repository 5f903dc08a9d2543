"""`magicbyte metadata export --to-kraft`: the command line, and the tree of a broker of magicbyte."""

from pathlib import Path

import pytest

from cli.command import run
from kraft_data import KraftNode
from magicbyte.engine.log.files.checkpoints import parse_partition_metadata
from magicbyte.testing import Broker
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum_check import check_node


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a stopped broker with topics, one of them with a setting that Kafka does not have."""
    folder = tmp_path_factory.mktemp("served") / "logs"
    with Broker({"auto.create.topics.enable": "false"}, directory=folder) as broker:
        for words in (("orders", "retention.ms=5000", "--partitions", "2"), ("bills", "log.flush.policy=group-commit")):
            created = run("topics", "create", "-b", broker.bootstrap_servers, *words)
            assert created.exit_code == 0, created.stderr
    return folder


def test_a_tree_becomes_the_directory_of_a_node_with_its_logs(served: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("metadata", "export", served, "--to-kraft", out, "--logs", served, "--alone", "--release", "4.3")
    assert done.exit_code == 0, done.stderr
    assert "left out: settings of topic bills: log.flush.policy" in done.stderr
    assert "metadata.version 30 (4.3-IV0), 2 topics, 3 copied logs" in done.stdout
    assert check_node([str(out)]).is_sound
    image = read_metadata(str(out)).image
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"orders": 2, "bills": 1}
    assert [dict(each) for each in image.settings.values()] == [{"retention.ms": "5000"}]
    for name, topic in image.topics.items():
        for number in range(len(topic.partitions)):
            stored = (out / f"{name}-{number}" / "partition.metadata").read_bytes()
            assert parse_partition_metadata(stored).topic_id == topic.id


def test_an_earlier_offset_of_a_metadata_log_is_written(tmp_path: Path) -> None:
    source = KraftNode("4.3.1/clean-a", "node").unpacked(tmp_path / "node")
    done = run("metadata", "export", f"{source}@90", "--to-kraft", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert run("metadata", "diff", f"{source}@90", tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{served}"], "expected --dir DIR with --zookeeper"),
        (["--to-kraft", "{out}"], "expected SOURCE"),
        (["{served}", "--to-kraft", "{out}", "--zookeeper", "localhost:2181"], "expected SOURCE, and neither"),
        (["{served}", "--to-kraft", "{out}", "--metadata-version", "5"], "expected a level from 7"),
        (["{served}", "--to-kraft", "{out}", "--standalone", "localhost:9093"], "expected LISTENER://"),
        (["{served}", "--to-kraft", "{out}", "--release", "3.9", "--metadata-version", "30"], "up to 21"),
        (["{served}", "--to-kraft", "{out}", "--cluster-id", "x"], "expected an id of 22"),
        (["{served}", "--to-kraft", "{served}/new"], "which is an input"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(words: list[str], message: str, served: Path, tmp_path: Path) -> None:
    done = run("metadata", "export", *(each.format(served=served, out=tmp_path / "out") for each in words))
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_refused_export_leaves_an_empty_folder_where_it_was(served: Path, tmp_path: Path) -> None:
    out, logs = tmp_path / "out", tmp_path / "logs"
    out.mkdir()
    (logs / "others-0").mkdir(parents=True)
    (logs / "others-0" / f"{0:020}.log").write_bytes(b"")
    done = run("metadata", "export", served, "--to-kraft", out, "--logs", logs)
    assert done.exit_code == 2, done.stdout
    assert "rename its folder to -stray" in done.stderr
    assert list(out.iterdir()) == []
    assert run("metadata", "export", served, "--to-kraft", out).exit_code == 0
    assert (out / "meta.properties").exists()
