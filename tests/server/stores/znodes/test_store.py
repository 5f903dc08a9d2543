"""The image that readers and proposers have: of changes by others, overtaken and lost proposals, lost sessions."""

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from builders import hurried
from builders import run as run_on_loop
from engine.cluster.builders import CREDENTIAL
from magicbyte.engine.cluster.acls import (
    DENY_ALL,
    AccessControlEntry,
    AclOperation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.brokers import RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    BrokerRegistered,
    ClusterChange,
    ConnectionRateChanged,
    ControllerChanged,
    DeletionRequested,
    PartitionsCreated,
    ProposedChange,
    QuotasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TopicCreated,
    apply_all,
)
from magicbyte.engine.cluster.image import (
    ClusterImage,
    ConfigEntity,
    EntityKind,
    Limits,
    PartitionImage,
    TopicImage,
    settings_part,
)
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.cluster.store import change
from magicbyte.engine.errors import (
    MetadataError,
    NetworkError,
    SessionExpiredError,
    StaleProposalError,
    TopicExistsError,
    UnknownOutcomeError,
)
from magicbyte.engine.ports import NodeChange, TopicPartition
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.server.metadata.current import CurrentStore
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.tree import Session
from magicbyte.server.serving.threads import SystemThreads
from magicbyte.server.stores.orders import MetadataUpdate
from magicbyte.server.stores.znodes import acl_nodes, layout
from magicbyte.server.stores.znodes.member_store import MemberStore
from magicbyte.server.stores.znodes.writing import WritingTerms
from server.broker.serving import Clock

ALICE = QuotaEntity("alice")
PRODUCE, FETCH, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


class Broken(Session):
    """A session whose connection breaks before or after the next transaction, or at the next reading.

    `overtake` is called before each transaction: another broker is faster.
    """

    breaks_before = breaks_after = is_away = False
    overtake: Callable[[], None] | None = None
    is_waiting: threading.Event | None = None

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        if self.overtake is not None:
            self.overtake()
        if self.breaks_before:
            raise UnknownOutcomeError("the connection was lost")
        made = super().transaction(changes)
        if self.breaks_after:
            raise UnknownOutcomeError("the connection was lost")
        return made

    def get_many(self, *arguments: object) -> list:
        if self.is_away:
            raise NetworkError("no connection")
        if self.is_waiting is not None:
            self.is_waiting.wait()
        return super().get_many(*arguments)


class Cluster:
    """A tree, the store of one broker over `session`, and the session of another broker."""

    def __init__(self) -> None:
        self.tree = MemoryTree(Clock())
        self.other = self.tree.session()
        for path in layout.ALWAYS_THERE:
            self.other.create(path, parents=True)
        self.metadata = CurrentStore()
        self.tasks = set[asyncio.Task[None]]()
        self.session: Broken
        self.loop_store: LoopStore
        self.protocol: tuple[int, ...] | None = None
        self.renew()
        self.threads = SystemThreads("test", 1)
        self.store = MemberStore(
            self.metadata,
            lambda: self.loop_store,
            self.threads,
            self.threads,
            lambda work: self.tasks.add(asyncio.create_task(work)),
            lambda: WritingTerms(1_700_000_000_000, self.protocol),
        )
        self.published: list[Sequence[ClusterChange]] = []
        self.folded = ClusterImage()

    def renew(self) -> None:
        """Begin a new session, as after the expiration of one."""
        self.session = Broken(self.tree, self.tree.session().session_id)
        self.metadata.renew(self.session)
        self.loop_store = LoopStore(self.session)

    def follow(self, image: ClusterImage, changes: Sequence[ClusterChange]) -> None:
        self.published.append(changes)
        self.folded = apply_all(self.folded, changes, image.position)
        assert self.folded == image

    def set_others_quota(self, limits: dict[str, str], path: str = "/config/users/alice") -> None:
        """Change a quota as another broker does, whose notification has not arrived."""
        data = layout.dump_config(limits)
        if self.other.exists(path) is None:
            self.other.create(path, data)
        else:
            self.other.set(path, data)

    def stored(self, path: str = "/config/users/alice") -> dict[str, str]:
        return layout.load_config(path, self.other.get(path).data)


async def within(work: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run `work` on a cluster whose store has been started and is followed by a subscriber."""
    cluster = Cluster()
    try:
        await cluster.store.start()
        cluster.store.subscribe(cluster.follow)
        await work(cluster)
        assert replace(cluster.folded, position=cluster.store.image.position) == cluster.store.image
    finally:
        for task in cluster.tasks:
            task.cancel()
        await asyncio.gather(*cluster.tasks, return_exceptions=True)
        cluster.threads.close()


def run(work: Callable[[Cluster], Awaitable[None]]) -> None:
    run_on_loop(within(work))


def raised(limits: Limits) -> Callable[[ClusterImage], list[ProposedChange]]:
    """Decide on these limits, beside those that there are."""
    return lambda image: [QuotasChanged(ALICE, {**image.quotas.get(ALICE, {}), **limits})]


def test_a_subscriber_gets_the_image_so_far_as_changes_and_then_each_change() -> None:
    async def work(cluster: Cluster) -> None:
        credential = ScramCredentialChanged("alice", "SCRAM-SHA-256", CREDENTIAL)
        await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 1.0}), credential], cluster.store.image)
        await cluster.store.propose([ConnectionRateChanged(None, 5.0)], cluster.store.image)
        seen = list[Sequence[ClusterChange]]()
        cluster.store.subscribe(lambda _image, changes: seen.append(changes))
        assert [type(each) for each in seen[0]] == [QuotasChanged, ConnectionRateChanged, ScramCredentialChanged]
        await cluster.store.propose([ConnectionRateChanged(None, None)], cluster.store.image)
        assert seen[1:] == [[ConnectionRateChanged(None, None)]]

    run(work)


def test_a_change_of_another_broker_is_seen_when_its_notification_arrives() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "7"})
        assert cluster.store.image.quotas == {}
        await cluster.store.reread([("topics", "alice")])
        assert cluster.store.image.quotas == {}
        await cluster.store.reread([("users", "alice")])
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 7.0}}
        cluster.other.delete("/config/users/alice")
        await cluster.store.reread([("users", "alice")])
        assert cluster.store.image.quotas == {}

    run(work)


def test_a_proposal_decided_by_an_old_image_is_refused_and_the_image_is_the_new_one_then() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "7"})
        seen = cluster.store.image
        with pytest.raises(StaleProposalError, match="/config/users/alice: another broker has changed it"):
            await cluster.store.propose([QuotasChanged(ALICE, {FETCH: 1.0})], seen)
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 7.0}}
        assert cluster.stored() == {PRODUCE: "7"}
        await cluster.store.propose([ConnectionRateChanged(None, 5.0)], seen)  # of another part, which is as it was

    run(work)


def test_a_decision_is_made_again_so_that_no_change_of_two_brokers_is_lost() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "7"})
        image = await change(cluster.store, raised({FETCH: 1.0}))
        assert image.quotas == {ALICE: {PRODUCE: 7.0, FETCH: 1.0}}
        assert cluster.stored() == {PRODUCE: "7", FETCH: "1"}

    run(work)


def test_a_broker_that_is_faster_between_reading_and_writing_wins() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "7"})
        await cluster.store.reread([("users", "alice")])
        times = 0

        def overtake() -> None:
            nonlocal times
            times += 1
            if times <= 2:
                cluster.set_others_quota({PRODUCE: str(times)})

        cluster.session.overtake = overtake
        with pytest.raises(StaleProposalError):
            await cluster.store.propose([QuotasChanged(ALICE, {FETCH: 1.0})], cluster.store.image)
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 1.0}}
        image = await change(cluster.store, raised({FETCH: 1.0}))
        assert image.quotas == {ALICE: {PRODUCE: 2.0, FETCH: 1.0}}
        assert times == 3

    run(work)


def test_after_ten_attempts_a_decision_is_given_up() -> None:
    async def work(cluster: Cluster) -> None:
        attempts = 0

        def decide(image: ClusterImage) -> list[ProposedChange]:
            nonlocal attempts
            attempts += 1
            cluster.set_others_quota({PRODUCE: str(attempts)})
            return raised({FETCH: 1.0})(image)

        with pytest.raises(StaleProposalError):
            await change(cluster.store, decide)
        assert attempts == 10

    run(work)


def test_two_proposals_at_once_are_both_made() -> None:
    async def work(cluster: Cluster) -> None:
        limits = [{PRODUCE: 1.0}, {FETCH: 2.0}, {TIME: 3.0}]
        await asyncio.gather(*(change(cluster.store, raised(each)) for each in limits))
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 1.0, FETCH: 2.0, TIME: 3.0}}

    run(work)


def test_a_proposal_whose_answer_is_lost_has_been_made_if_the_tree_has_it() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.session.breaks_after = True
        image = await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 1.0})], cluster.store.image)
        assert image.quotas == cluster.store.image.quotas == {ALICE: {PRODUCE: 1.0}}

    run(work)


def test_a_proposal_that_is_lost_raises_and_changes_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.session.breaks_before = True
        with pytest.raises(UnknownOutcomeError):
            await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 1.0})], cluster.store.image)
        assert cluster.store.image.quotas == {}
        cluster.session.breaks_before = False
        await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 2.0})], cluster.store.image)
        assert cluster.stored() == {PRODUCE: "2"}

    run(work)


def test_while_the_tree_is_away_the_last_image_is_used() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 1.0})], cluster.store.image)
        cluster.session.is_away = True
        cluster.set_others_quota({PRODUCE: "7"})
        with pytest.raises(NetworkError):
            await cluster.store.reread([("users", "alice")])
        with pytest.raises(NetworkError):
            await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 3.0})], cluster.store.image)
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 1.0}}
        cluster.session.is_away = False
        await cluster.store.reread([("users", "alice")])
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 7.0}}

    run(work)


def test_after_the_expiration_of_a_session_the_store_continues_in_the_next_one() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 1.0})], cluster.store.image)
        cluster.session.close()
        with pytest.raises(SessionExpiredError):
            await cluster.store.propose([QuotasChanged(ALICE, {PRODUCE: 3.0})], cluster.store.image)
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 1.0}}
        cluster.set_others_quota({PRODUCE: "7"})
        cluster.renew()
        await cluster.store.reread([("users", "alice")])  # the notification that was missed is still in the tree
        assert cluster.store.image.quotas == {ALICE: {PRODUCE: 7.0}}

    run(work)


def test_damage_is_logged_once_and_the_other_quotas_apply(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "many", FETCH: "2"})
        for _ in range(2):
            await cluster.store.reread([("users", "alice")])
        assert cluster.store.image.quotas == {ALICE: {FETCH: 2.0}}
        cluster.set_others_quota({FETCH: "2"})
        await cluster.store.start()
        assert cluster.store.image.damage == {}

    run(work)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "the metadata has a damaged part, which is ignored: users/alice: producer_byte_rate is ignored: "
        "expected a number, found 'many'"
    ]


# ---- settings

ORDERS_SETTINGS = ConfigEntity(EntityKind.TOPIC, "orders")
OF_ALL = ConfigEntity(EntityKind.BROKER, None)
TOPIC_PATH = "/config/topics/orders"
WITHIN_MS, FOR_AN_HOUR = {"retention.ms": "1"}, {"retention.ms": "3600000"}


def set_others_settings(cluster: Cluster, settings: dict[str, str], kind: str = "topics", name: str = "orders") -> None:
    """Change settings as another broker does, and notify all brokers."""
    cluster.set_others_quota(settings, layout.config_path(kind, name))
    cluster.other.create(layout.CONFIG_CHANGE, layout.dump_config_change(kind, name), sequence=True)


def retention(cluster: Cluster) -> Mapping[str, str] | None:
    return cluster.store.image.settings.get(ORDERS_SETTINGS)


def test_settings_and_quotas_of_other_brokers_are_followed_by_their_notifications() -> None:
    async def work(cluster: Cluster) -> None:
        set_others_settings(cluster, WITHIN_MS)
        set_others_settings(cluster, {"log.retention.ms": "5"}, "brokers", layout.DEFAULT_ENTITY)
        set_others_settings(cluster, {PRODUCE: "7"}, "users", "alice")
        await until(lambda: bool(cluster.store.image.quotas))
        image = cluster.store.image
        assert image.settings == {ORDERS_SETTINGS: WITHIN_MS, OF_ALL: {"log.retention.ms": "5"}}
        assert image.quotas == {ALICE: {PRODUCE: 7.0}}
        set_others_settings(cluster, FOR_AN_HOUR)
        await until(lambda: retention(cluster) == FOR_AN_HOUR)

    run(work)


def test_settings_whose_reading_was_cancelled_are_read_by_the_next() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.session.is_away = True
        set_others_settings(cluster, WITHIN_MS)
        await until(lambda: bool(cluster.tasks))
        for task in cluster.tasks:
            task.cancel()
        await asyncio.gather(*cluster.tasks, return_exceptions=True)
        cluster.session.is_away = False
        assert retention(cluster) is None
        cluster.store.session_renewed()
        await until(lambda: retention(cluster) == WITHIN_MS)

    run(work)


def test_settings_that_a_lost_connection_kept_from_being_read_are_read_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(cluster: Cluster) -> None:
        cluster.session.is_away = True
        for name in ("orders", "more"):
            set_others_settings(cluster, WITHIN_MS, name=name)
        await until(lambda: bool(caplog.records))
        await asyncio.sleep(0.05)
        assert retention(cluster) is None
        cluster.session.is_away = False
        await hurried(until(lambda: len(cluster.store.image.settings) == 2), 3)

    run(work)
    assert len(caplog.records) == 1, "an outage is logged once, however long it lasts"
    assert "changed settings cannot be read yet, the former ones apply" in caplog.text


def test_settings_that_changed_without_a_session_are_read_in_the_next() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.session.close()
        set_others_settings(cluster, WITHIN_MS)
        cluster.renew()
        assert retention(cluster) is None
        cluster.store.session_renewed()
        await until(lambda: retention(cluster) == WITHIN_MS)
        set_others_settings(cluster, FOR_AN_HOUR)
        await until(lambda: retention(cluster) == FOR_AN_HOUR)

    run(work)


def test_an_unreadable_notification_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: Cluster) -> None:
        cluster.other.create(layout.CONFIG_CHANGE, b"no JSON", sequence=True)
        set_others_settings(cluster, WITHIN_MS)
        await until(lambda: retention(cluster) == WITHIN_MS)

    run(work)
    assert "a change of settings is ignored" in caplog.text


def test_damaged_settings_are_damage_until_they_are_replaced() -> None:
    async def work(cluster: Cluster) -> None:
        set_others_settings(cluster, WITHIN_MS)
        await until(lambda: retention(cluster) == WITHIN_MS)
        cluster.other.set(TOPIC_PATH, b"no JSON")
        await cluster.store.reread([("topics", "orders")])
        assert retention(cluster) is None
        assert settings_part(ORDERS_SETTINGS) in cluster.store.image.damage
        await cluster.store.propose([SettingsChanged(ORDERS_SETTINGS, FOR_AN_HOUR)], cluster.store.image)
        assert (retention(cluster), cluster.store.image.damage) == (FOR_AN_HOUR, {})
        assert cluster.stored(TOPIC_PATH) == FOR_AN_HOUR

    run(work)


def test_settings_that_two_brokers_change_at_once_have_both_changes() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({"retention.ms": "1"}, TOPIC_PATH)
        image = await change(
            cluster.store,
            lambda seen: [
                SettingsChanged(ORDERS_SETTINGS, {**seen.settings.get(ORDERS_SETTINGS, {}), "segment.bytes": "5000"})
            ],
        )
        assert image.settings == {ORDERS_SETTINGS: {"retention.ms": "1", "segment.bytes": "5000"}}
        notes = cluster.other.children(layout.CONFIG_CHANGES)
        assert [cluster.other.get(f"{layout.CONFIG_CHANGES}/{each}").data for each in notes] == [
            layout.dump_config_change("topics", "orders")
        ]

    run(work)


# ---- topics

TOPIC = TopicImage("orders", uuid.UUID(int=7), (PartitionImage((1,)), PartitionImage((2,))))


def create_others_topic(cluster: Cluster, partitions: int = 1) -> None:
    replicas = {index: [1] for index in range(partitions)}
    cluster.other.create(layout.topic_path("orders"), layout.TopicNode(replicas, TOPIC.id).dump())


def test_topics_are_read_when_a_controller_announces_them_and_forgotten_when_it_deletes_them() -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster)
        cluster.set_others_quota(WITHIN_MS, TOPIC_PATH)
        assert cluster.store.image.topics == {}
        await cluster.store.announced(["orders", "unknown"])
        image = cluster.store.image
        assert image.topics == {"orders": TopicImage("orders", TOPIC.id, (PartitionImage((1,)),))}
        assert (image.topic_names, image.settings) == ({TOPIC.id: "orders"}, {ORDERS_SETTINGS: WITHIN_MS})
        cluster.other.delete(layout.topic_path("orders"))
        await cluster.store.announced(["orders"])
        assert cluster.store.image.topics, "only the controller says that it is deleted"
        await cluster.store.updated(MetadataUpdate({}, {}, ["orders", "unknown"]))
        assert (cluster.store.image.topics, cluster.store.image.settings) == ({}, {})

    run(work)


def led_by(leader: int, epoch: int = 0) -> PartitionImage:
    return PartitionImage((1, 2), known=KnownState(PartitionState(leader, epoch, (1, 2), 1), epoch))


THIS = RegisteredBroker(1, -1, Registration((), None))


def test_an_update_of_a_new_topic_reads_its_settings_and_has_its_states() -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster)
        cluster.set_others_quota(WITHIN_MS, TOPIC_PATH)
        update = MetadataUpdate({1: THIS}, {TopicPartition("orders", 0): led_by(1)}, [])
        await cluster.store.updated(update)
        image = cluster.store.image
        assert image.topics == {"orders": TopicImage("orders", TOPIC.id, (led_by(1),))}
        assert (image.settings, image.brokers) == ({ORDERS_SETTINGS: WITHIN_MS}, {1: THIS})
        await cluster.store.announced(["orders"])
        assert cluster.store.image.topics["orders"].partitions[0].known == led_by(1).known, "a reading keeps states"

    run(work)


def test_a_topic_that_cannot_be_read_when_it_is_announced_is_known_with_its_states_as_soon_as_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster, 2)
        cluster.session.is_away = True
        for index in (0, 1):
            key = TopicPartition("orders", index)
            await cluster.store.updated(MetadataUpdate({1: THIS}, {key: led_by(index)}, []))
        assert (cluster.store.image.topics, cluster.store.image.brokers) == ({}, {1: THIS})
        cluster.session.is_away = False
        await hurried(until(lambda: bool(cluster.store.image.topics)), 3)
        await until(lambda: cluster.store.image.topics["orders"].partitions == (led_by(0), led_by(1)))

    run(work)
    assert "topics orders cannot be read from the metadata tree" in caplog.text


def test_an_update_that_arrives_during_a_reading_is_not_lost() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.set_others_quota({PRODUCE: "7"})
        go_on = threading.Event()
        cluster.session.is_waiting = go_on
        reading = asyncio.ensure_future(cluster.store.reread([("users", "alice")]))
        await asyncio.sleep(0.01)
        cluster.store.follow([ControllerChanged(4, 9), BrokerRegistered(THIS)])
        assert (cluster.store.image.controller_id, cluster.store.image.quotas) == (4, {})
        go_on.set()
        await reading
        image = cluster.store.image
        assert (image.controller_id, image.brokers, image.quotas) == (4, {1: THIS}, {ALICE: {PRODUCE: 7.0}})

    run(work)


def test_a_topic_that_another_broker_has_created_meanwhile_is_not_created_again_nor_known_before_it_is_announced() -> (
    None
):
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster)
        seen = list[list[str]]()

        def decide(image: ClusterImage) -> list[ProposedChange]:
            seen.append(list(image.topics))
            if image.topics:
                raise TopicExistsError("it exists")
            return [TopicCreated(TOPIC), SettingsChanged(ORDERS_SETTINGS, WITHIN_MS)]

        with pytest.raises(TopicExistsError):
            await change(cluster.store, decide)
        assert seen == [[], ["orders"]]
        assert (cluster.store.image.topics, cluster.store.image.settings) == ({}, {})

    run(work)


def test_a_topic_that_a_member_creates_is_known_when_it_is_announced() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.propose(
            [SettingsChanged(ORDERS_SETTINGS, WITHIN_MS), TopicCreated(TOPIC)], cluster.store.image
        )
        assert cluster.stored(TOPIC_PATH) == WITHIN_MS
        assert cluster.store.image == replace(ClusterImage(), position=cluster.store.image.position)
        await cluster.store.updated(MetadataUpdate({}, {TopicPartition("orders", 0): led_by(1)}, []))
        assert list(cluster.store.image.topics) == ["orders"]
        assert cluster.store.image.settings == {ORDERS_SETTINGS: WITHIN_MS}

    run(work)


def test_a_topic_whose_deletion_was_announced_does_not_come_back_while_its_nodes_are_still_there() -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster)
        await cluster.store.announced(["orders"])
        await cluster.store.updated(MetadataUpdate({}, {}, ["orders"]))
        with pytest.raises(StaleProposalError, match="/brokers/topics/orders: another broker has changed it"):
            await cluster.store.propose([TopicCreated(TOPIC)], cluster.store.image)
        assert await cluster.store.stored_partition(TopicPartition("orders", 0)) == PartitionImage((1,))
        assert await cluster.store.stored_partition(TopicPartition("orders", 1)) is None
        assert cluster.store.image.topics == {}

    run(work)


def test_partitions_that_two_brokers_add_at_once_are_not_mixed() -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster, 2)
        await cluster.store.announced(["orders"])
        path = layout.topic_path("orders")
        cluster.other.set(path, layout.TopicNode({0: [1], 1: [1], 2: [3]}, TOPIC.id).dump())
        with pytest.raises(StaleProposalError) as raised:
            await cluster.store.propose([PartitionsCreated("orders", (PartitionImage((9,)),))], cluster.store.image)
        now = raised.value.image
        assert [each.replicas for each in now.topics["orders"].partitions] == [(1,), (1,), (3,)]
        await cluster.store.propose([PartitionsCreated("orders", (PartitionImage((9,)),))], now)
        node = layout.TopicNode.load(path, cluster.other.get(path).data)
        assert node.replicas == {0: [1], 1: [1], 2: [3], 3: [9]}
        assert len(cluster.store.image.topics["orders"].partitions) == 2, "the controller announces the others"

    run(work)


def test_a_member_requests_a_deletion_and_knows_the_topic_until_the_controller_deletes_it() -> None:
    async def work(cluster: Cluster) -> None:
        create_others_topic(cluster)
        await cluster.store.announced(["orders"])
        for _ in range(2):
            await cluster.store.propose([DeletionRequested("orders")], cluster.store.image)
        assert cluster.other.children(layout.DELETE_TOPICS) == ["orders"]
        assert (list(cluster.store.image.topics), cluster.store.image.deletions) == (["orders"], frozenset())

    run(work)


# ---- ACLs

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
READ, WRITE = (
    AccessControlEntry(Principal("User", "alice"), Permission.ALLOW, each)
    for each in (AclOperation.READ, AclOperation.WRITE)
)


def allow(cluster: Cluster, *entries: AccessControlEntry) -> None:
    """Change ACLs as another broker does, and notify all brokers."""
    path, data = acl_nodes.acls_path(ORDERS), acl_nodes.dump_entries(frozenset(entries))
    if cluster.other.exists(path) is None:
        cluster.other.create(path, data)
    else:
        cluster.other.set(path, data)
    note, said = acl_nodes.acl_change(ORDERS)
    cluster.other.create(note, said, sequence=True)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():
            await asyncio.sleep(0.001)


def test_acls_of_other_brokers_are_followed_also_after_a_lost_watch() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.follow_acls()
        for entries in ({READ}, {READ, WRITE}, {WRITE}):
            allow(cluster, *entries)
            await until(lambda entries=entries: cluster.store.image.acls == {ORDERS: entries})
        cluster.tree.drop_watches(cluster.session.session_id)  # as a session that expires
        allow(cluster, READ)
        await cluster.store.reread([("users", "alice")])
        assert cluster.store.image.acls == {ORDERS: {WRITE}}
        cluster.renew()
        cluster.store.session_renewed()
        await until(lambda: cluster.store.image.acls == {ORDERS: {READ}})
        allow(cluster, READ, WRITE)
        await until(lambda: cluster.store.image.acls == {ORDERS: {READ, WRITE}})

    run(work)


def test_acls_that_cannot_be_read_stay_as_they_were_until_they_can(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.follow_acls()
        cluster.session.is_away = True
        allow(cluster, READ)
        await until(lambda: bool(caplog.records))
        assert cluster.store.image.acls == {}
        cluster.session.is_away = False
        await hurried(until(lambda: cluster.store.image.acls == {ORDERS: {READ}}), 3)

    run(work)
    assert "changed ACLs cannot be read yet, the former ones apply" in caplog.records[0].getMessage()


def test_acls_that_two_brokers_add_to_a_resource_are_both_stored() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.follow_acls()
        allow(cluster, READ)
        image = await change(
            cluster.store, lambda seen: [AclsChanged(ORDERS, seen.acls.get(ORDERS, frozenset()) | {WRITE})]
        )
        assert image.acls == {ORDERS: {READ, WRITE}}
        assert acl_nodes.load_entries("", cluster.other.get(acl_nodes.acls_path(ORDERS)).data) == {READ, WRITE}

    run(work)


def test_a_damaged_resource_denies_everything_until_it_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.store.follow_acls()
        allow(cluster, READ)
        await until(lambda: bool(cluster.store.image.acls))
        cluster.other.set(acl_nodes.acls_path(ORDERS), b"{}")
        with pytest.raises(StaleProposalError):
            await cluster.store.propose([AclsChanged(ORDERS, frozenset({READ, WRITE}))], cluster.store.image)
        assert cluster.store.image.acls == {ORDERS: {DENY_ALL}}
        with pytest.raises(MetadataError, match="expected ACLs of version 1"):
            await cluster.store.propose([AclsChanged(ORDERS, frozenset({READ}))], cluster.store.image)
        allow(cluster, READ)
        await until(lambda: cluster.store.image.acls == {ORDERS: {READ}})

    run(work)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "only super users have access to the resource of this node until it is repaired: /kafka-acl/Topic/o" in line


@pytest.mark.parametrize(
    ("protocol", "roots"),
    [
        ((0, 10, 2), ["Cluster", "Group", "Topic"]),
        ((1, 1), ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId"]),
        (None, ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]),
    ],
)
def test_only_those_nodes_are_created_above_acls_that_all_brokers_know(
    protocol: tuple[int, ...] | None, roots: list[str]
) -> None:
    async def work(cluster: Cluster) -> None:
        cluster.protocol = protocol
        await cluster.store.follow_acls()
        assert cluster.other.children(acl_nodes.LITERAL_ROOT) == roots
        assert (cluster.other.exists(acl_nodes.PREFIXED_ROOT) is None) == (protocol is not None)

    run(work)
