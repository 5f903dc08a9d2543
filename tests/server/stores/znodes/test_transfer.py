"""The tree from keeper to keeper: transferred nodes, omitted ones, and refusals."""

import uuid
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.engine.errors import MetadataError
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.transfer import transfer
from server.broker.serving import Clock

OURS = {"log.head.truncation"}


def store(*, cluster: str = "AAAAAAAAAAAAAAAAAAAAAQ", **nodes: dict[str, object]) -> MemoryStore:
    """A tree with topics and their settings."""
    made = MemoryStore(Clock())
    made.create(layout.CLUSTER_ID, layout.dump_cluster_id(cluster), parents=True)
    made.create("/config/changes", parents=True)
    for topic, settings in nodes.items():
        made.create(layout.topic_path(topic), b'{"version":2,"partitions":{"0":[0]}}', parents=True)
        texts = {name: str(value) for name, value in settings.items()}
        made.create(layout.config_path("topics", topic), layout.dump_config(texts), parents=True)
    return made


def settings_of(tree: MemoryStore, topic: str) -> dict[str, str]:
    return layout.load_config(topic, tree.get(layout.config_path("topics", topic)).data)


def test_topics_and_settings_go_along_and_running_brokers_stay_behind() -> None:
    source, target = store(orders={"retention.ms": 5}), MemoryStore(Clock())
    source.create("/brokers/ids/0", b"{}", ephemeral=True, parents=True)
    source.create("/controller", b"{}", ephemeral=True)
    source.create("/config/changes/config_change_", b"{}", sequence=True)
    source.create(layout.directory_path(0), b"{}", parents=True)
    done = transfer(source, target)
    assert (done.topics, done.left_out) == (1, {})
    assert settings_of(target, "orders") == {"retention.ms": "5"}
    assert target.get(layout.topic_path("orders")).data == source.get(layout.topic_path("orders")).data
    assert target.children("/brokers/ids") == []
    assert target.children("/config/changes") == []
    assert target.exists("/controller") is None
    assert target.exists(layout.OURS) is None


@pytest.mark.parametrize(("magic", "release"), [("0", "0.9.0"), ("1", "0.10.0"), ("2", "0.11.0"), ("2.8", "2.8")])
def test_for_kafka_formats_have_names_of_releases_and_our_settings_stay_behind(magic: str, release: str) -> None:
    source, target = store(t={"message.format.version": magic, "log.head.truncation": "true"}), MemoryStore(Clock())
    assert transfer(source, target, ours=OURS).left_out == {"t": ("log.head.truncation",)}
    assert settings_of(target, "t") == {"message.format.version": release}


def test_a_transfer_can_be_made_again_and_brings_what_is_new() -> None:
    source, target = store(t={"retention.ms": 5}), MemoryStore(Clock())
    transfer(source, target)
    source.set(layout.config_path("topics", "t"), layout.dump_config({"retention.ms": "6"}))
    more = b'{"version":2,"partitions":{"0":[0],"1":[0]}}'
    source.set(layout.topic_path("t"), more)
    transfer(source, target)
    assert settings_of(target, "t") == {"retention.ms": "6"}
    assert target.get(layout.topic_path("t")).data == more


def test_a_topic_is_never_in_the_target_without_its_settings() -> None:
    class Watched(MemoryStore):
        def create(self, path: str, *arguments: bytes, **options: bool) -> str:
            made = super().create(path, *arguments, **options)
            topics = self.children(layout.TOPICS) if self.exists(layout.TOPICS) else []
            assert all(self.exists(layout.config_path("topics", each)) for each in topics)
            return made

    transfer(store(a={"retention.ms": "1"}, b={}), Watched(Clock()))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (store(cluster="AAAAAAAAAAAAAAAAAAAAAg"), "of cluster AAAAAAAAAAAAAAAAAAAAAg, the source of"),
        (store(other={}), "but the source does not"),
    ],
)
def test_another_cluster_is_refused_and_left_unchanged(target: MemoryStore, why: str) -> None:
    with pytest.raises(MetadataError, match=why):
        transfer(store(t={}), target)
    assert target.exists(layout.topic_path("t")) is None


def test_a_recreated_topic_is_another_one() -> None:
    found = []
    for number in (1, 2):
        tree = store()
        topic = layout.TopicNode({0: [0]}, topic_id=uuid.UUID(int=number))
        tree.create(layout.topic_path("t"), topic.dump(), parents=True)
        found.append(tree)
    with pytest.raises(MetadataError, match="another topic of this name"):
        transfer(*found)


def test_topics_of_enriched_sets_are_refused_for_kafka() -> None:
    source = store(t={"message.format.version": "enriched"})
    with pytest.raises(MetadataError, match="enriched sets"):
        transfer(source, MemoryStore(Clock()), ours=OURS)
    assert transfer(source, MemoryStore(Clock())).topics == 1


def test_settings_left_out_for_kafka_are_those_that_the_table_of_settings_calls_ours() -> None:
    from magicbyte.cli.metadata import OURS as LEFT_OUT
    from magicbyte.server.settings.topic_config import TOPIC_SETTINGS

    assert TOPIC_SETTINGS.keys() >= LEFT_OUT


def test_a_directory_in_use_or_without_metadata_is_one_line(tmp_path: Path) -> None:
    done = run("metadata", "export", "--dir", tmp_path, "--zookeeper", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "magicbyte has not served it" in done.stderr
