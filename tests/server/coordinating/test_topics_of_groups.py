"""The topics of the cluster as consumer groups see them."""

import uuid
from dataclasses import dataclass, field
from typing import cast

from msgspec.structs import replace

from magicbyte.engine.cluster.brokers import RegisteredBroker, Registration
from magicbyte.engine.cluster.image import ClusterImage, PartitionImage, TopicImage
from magicbyte.engine.groups.consumer.topics import metadata_hash
from magicbyte.server.coordinating.groups import TopicsOfGroups
from magicbyte.server.stores.topics import Topics

IDS = [uuid.UUID(int=number) for number in range(1, 5)]


def topic(name: str, number: int, partitions: int = 2) -> TopicImage:
    return TopicImage(name, IDS[number], (PartitionImage((1, 2)),) * partitions)


def broker(number: int, rack: str | None) -> RegisteredBroker:
    return RegisteredBroker(number, 1, Registration(endpoints=(), rack=rack))


@dataclass
class Served:
    """Stands for the broker's topics."""

    image: ClusterImage = field(default_factory=ClusterImage)

    def set(self, *topics: TopicImage, brokers: dict[int, RegisteredBroker] | None = None) -> None:
        kept = self.image.brokers if brokers is None else brokers
        self.image = replace(self.image, topics={each.name: each for each in topics}, brokers=kept)


def test_a_topic_is_the_same_object_until_its_id_its_partitions_or_their_racks_change() -> None:
    served = Served()
    topics = TopicsOfGroups(cast("Topics", served))
    served.set(topic("a", 0), topic("b", 1))
    first, other = topics.find("a"), topics.find("b")
    assert first is not None
    served.set(topic("a", 0)._replace(partitions=(PartitionImage((2, 1)), PartitionImage((1, 2)))), topic("b", 1))
    assert topics.find("a") is first, "nothing that groups see has changed"
    served.set(topic("a", 2), topic("b", 1))
    second = topics.find("a")
    assert second is not None
    assert (second.id, second.partitions) == (IDS[2], 2)
    served.set(topic("a", 2, 3), topic("b", 1))
    third = topics.find("a")
    assert third is not None
    assert third.partitions == 3
    served.set(topic("a", 2, 3), topic("b", 1), brokers={1: broker(1, "x"), 2: broker(2, "y")})
    fourth = topics.find("a")
    assert fourth is not None
    assert fourth.racks == (("x", "y"),) * 3
    assert topics.find("b") is not other
    assert len({each.hash for each in (first, second, third, fourth)}) == 4


def test_a_topic_that_is_deleted_or_without_an_id_is_not_there() -> None:
    served = Served()
    topics = TopicsOfGroups(cast("Topics", served))
    served.set(topic("a", 0), topic("old", 1)._replace(id=None))
    assert topics.find("old") is None
    assert topics.find("a") is not None
    served.image = replace(served.image, deletions=frozenset(["a"]))
    assert topics.find("a") is None
    served.set()
    assert topics.find("a") is None
    assert metadata_hash(topics, ["a", "old"]) == 0


def test_topics_that_were_deleted_are_not_remembered_for_ever() -> None:
    served = Served()
    topics = TopicsOfGroups(cast("Topics", served))
    for number in range(100):
        served.set(topic(f"topic-{number}", 0))
        assert topics.find(f"topic-{number}") is not None
    assert len(topics._found) <= 3
