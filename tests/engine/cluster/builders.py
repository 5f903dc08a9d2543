"""Clusters and random changes of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from magicbyte.engine.cluster import changes as of
from magicbyte.engine.cluster.acls import AccessControlEntry, AclOperation, Pattern, Permission
from magicbyte.engine.cluster.acls import ResourcePattern as Resource
from magicbyte.engine.cluster.acls import ResourceType as Type
from magicbyte.engine.cluster.changes import ClusterChange, ProposedChange, apply
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind, PartitionImage, TopicImage
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quotas import NO_NAME, QuotaEntity
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import OngoingMove
from magicbyte.engine.replication.state import NEW_NODE, KnownState, PartitionState

TOPICS: Final = ("orders", "a.b", "__consumer_offsets")
NAMES: Final = ("alice", "CN=a b,O=c/d~%", "ünï")
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BROKERS: Final = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple)
TEXTS: Final = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), st.sampled_from(["1", "compact"]))
LIMITS: Final = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage"]), st.sampled_from([0.5, 1024.0, 2.0**63]), max_size=2
)
CREDENTIAL: Final = Credential(b"salt", b"stored", b"server", 4096)
ENTRIES: Final = st.frozensets(
    st.builds(
        AccessControlEntry,
        st.sampled_from([Principal("User", "alice"), Principal("User", "CN=a,O=b")]),
        st.sampled_from(Permission),
        st.sampled_from([AclOperation.READ, AclOperation.IDEMPOTENT_WRITE]),
        st.sampled_from(["*", "10.0.0.1"]),
    ),
    max_size=2,
)
RESOURCES: Final = (
    Resource(Type.TOPIC, "orders"),
    Resource(Type.TRANSACTIONAL_ID, "*"),
    Resource(Type.GROUP, "g", Pattern.PREFIXED),
)


def partition(replicas: tuple[int, ...] = (1, 2, 3), epoch: int = 0, version: int = 0) -> PartitionImage:
    """A partition that its first replica leads."""
    state = PartitionState(replicas[0], epoch, replicas, 1)
    return PartitionImage(replicas, known=KnownState(state, version))


def topic(name: str, partitions: int, number: int = 1) -> TopicImage:
    """A topic with an id made of `number`."""
    return TopicImage(name, uuid.UUID(int=number), (partition(),) * partitions)


@st.composite
def proposals(draw: st.DrawFn, image: ClusterImage) -> ProposedChange:
    """A change that is possible in a cluster."""
    kinds = [_settings, _quotas, _rate, _acls, _credential, _feature, _producer_ids, _reassignments, _elections]
    if len(image.topics) < len(TOPICS):
        kinds += [_created, _created]
    if image.topics:
        kinds += [_deleted, _grown, _moved, _state, _state, _deletion]
        if any(each.id is None for each in image.topics.values()):
            kinds.append(_id)
    return draw(draw(st.sampled_from(kinds))(image))


@st.composite
def batches(draw: st.DrawFn, image: ClusterImage) -> list[ProposedChange]:
    """Changes of which each is possible after those before it."""
    batch = list[ProposedChange]()
    for _ in range(draw(st.integers(1, 4))):
        batch.append(draw(proposals(image)))
        image = apply(image, batch[-1])
    return batch


@st.composite
def _created(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    name = draw(st.sampled_from([each for each in TOPICS if each not in image.topics]))
    taken = {each.int for each in image.topic_names}
    number = draw(st.integers(1, 99).filter(lambda each: each not in taken))
    partitions = draw(st.lists(_partitions(), min_size=1, max_size=3).map(tuple))
    return of.TopicCreated(TopicImage(name, draw(st.sampled_from([None, uuid.UUID(int=number)])), partitions))


@st.composite
def _partitions(draw: st.DrawFn) -> PartitionImage:
    replicas, adding = draw(BROKERS), draw(st.booleans())
    known = KnownState(PartitionState(draw(st.integers(-1, 4)), 0, replicas, 1), 0) if draw(st.booleans()) else None
    return PartitionImage(replicas, OngoingMove(replicas[:1] if adding else ()), known)


@st.composite
def _key(draw: st.DrawFn, image: ClusterImage) -> TopicPartition:
    name = draw(st.sampled_from(sorted(image.topics)))
    return TopicPartition(name, draw(st.integers(0, len(image.topics[name].partitions) - 1)))


@st.composite
def _deleted(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    return of.TopicDeleted(draw(st.sampled_from(sorted(image.topics))))


@st.composite
def _id(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    taken = {each.int for each in image.topic_names}
    name = draw(st.sampled_from(sorted(each.name for each in image.topics.values() if each.id is None)))
    return of.TopicIdAssigned(name, uuid.UUID(int=draw(st.integers(1, 99).filter(lambda each: each not in taken))))


@st.composite
def _grown(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    name = draw(st.sampled_from(sorted(image.topics)))
    return of.PartitionsCreated(name, draw(st.lists(_partitions(), min_size=1, max_size=2).map(tuple)))


@st.composite
def _moved(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    move = OngoingMove(*draw(st.sampled_from([((), ()), ((4,), ()), ((4,), (1,)), ((), (2, 3))])))
    return of.ReplicasChanged(draw(_key(image)), draw(BROKERS), move)


@st.composite
def _state(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    key = draw(_key(image))
    now = image.partition(key)
    assert now is not None
    version = NEW_NODE if now.known is None else now.known.version
    state = PartitionState(draw(st.integers(-1, 4)), draw(st.integers(0, 9)), draw(BROKERS), draw(st.integers(1, 3)))
    return of.PartitionStateChanged(key, KnownState(state, version + 1))


_OWNERS: Final[Mapping[EntityKind, list[str | None]]] = {  # client metrics are in metadata logs only
    EntityKind.TOPIC: ["orders", "a.b"],
    EntityKind.BROKER: ["1", None],
    EntityKind.GROUP: ["g", "a/b ~é", "..", "<default>"],
}


@st.composite
def _settings(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    kind = draw(st.sampled_from(list(_OWNERS)))
    name = draw(st.sampled_from(_OWNERS[kind]))
    return of.SettingsChanged(ConfigEntity(kind, name), draw(st.none() | TEXTS))


@st.composite
def _quotas(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    names = st.sampled_from([*NAMES, None, NO_NAME])
    entity = draw(st.builds(QuotaEntity, names, names).filter(lambda each: each != QuotaEntity()))
    return of.QuotasChanged(entity, draw(LIMITS))


@st.composite
def _rate(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    return of.ConnectionRateChanged(
        draw(st.sampled_from(["10.0.0.1", "::1", None])), draw(st.sampled_from([5.0, None]))
    )


@st.composite
def _acls(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    return of.AclsChanged(draw(st.sampled_from(RESOURCES)), draw(ENTRIES))


@st.composite
def _credential(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    values = draw(st.sampled_from([None, CREDENTIAL]))
    return of.ScramCredentialChanged(draw(st.sampled_from(NAMES)), draw(st.sampled_from(MECHANISMS)), values)


@st.composite
def _feature(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    return of.FeatureChanged(draw(st.sampled_from(["transaction.version", "x"])), draw(st.sampled_from([None, 1, 2])))


@st.composite
def _producer_ids(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    return of.ProducerIdsAllocated(draw(st.integers(0, 4)), (image.next_producer_id or 0) + 1000)


@st.composite
def _deletion(draw: st.DrawFn, image: ClusterImage) -> ClusterChange:
    name = draw(st.sampled_from(sorted(image.topics)))
    return of.DeletionEnded(name) if name in image.deletions else of.DeletionRequested(name)


@st.composite
def _reassignments(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    keys = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2))
    return of.ReassignmentsRequested(draw(st.dictionaries(keys, BROKERS, max_size=2)))


@st.composite
def _elections(draw: st.DrawFn, _image: ClusterImage) -> ClusterChange:
    keys = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2))
    return of.PreferredElectionsRequested(draw(st.none() | st.frozensets(keys, max_size=2)))
