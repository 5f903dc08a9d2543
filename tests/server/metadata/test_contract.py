"""The same cases for every metadata store: in memory, in a file, and a session of a real ZooKeeper."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from interop import jvm, kafka_oracle
from magicbyte.engine.errors import (
    BadVersionError,
    MetadataError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from magicbyte.engine.ports import CheckNode, CreateNode, DeleteNode, MetadataStore, NodeEvent, SetNode
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.sqlite import SqliteTree
from magicbyte.server.metadata.tree import Tree
from magicbyte.testing.tree import SimulatedTree
from ports import free_port
from server.metadata.builders import Clock

ZOOKEEPER = "3.9.1"
"""The release of Kafka whose ZooKeeper it is."""

Open = Callable[[], MetadataStore]


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper."""
    lacking = jvm.missing()
    if lacking is not None:
        pytest.skip(lacking)
    folder, port = tmp_path_factory.mktemp("zookeeper"), free_port()
    pid = kafka_oracle.start_zookeeper(ZOOKEEPER, folder, port, jvm.SECONDS)
    yield f"127.0.0.1:{port}"
    kafka_oracle.stop_process(pid, str(folder), 15)


NUMBERS = itertools.count()


@pytest.fixture(
    params=["memory", "simulated", "sqlite", pytest.param("zookeeper", marks=[pytest.mark.interop, pytest.mark.slow])]
)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """What opens sessions of one tree, which is empty."""
    opened: list[MetadataStore] = []
    if request.param == "zookeeper":
        from magicbyte.server.metadata.zookeeper import ZooKeeperStore

        address = f"{request.getfixturevalue('zookeeper')}/tests/{next(NUMBERS)}"
        opens: Open = partial(ZooKeeperStore, address, session_timeout_ms=6000)
    else:
        if request.param == "sqlite":
            tree: Tree = SqliteTree(str(tmp_path / "tree"), Clock())
        else:
            tree = {"memory": MemoryTree, "simulated": SimulatedTree}[request.param](Clock())
        opens = tree.session

    def remembered() -> MetadataStore:
        opened.append(opens())
        return opened[-1]

    yield remembered
    for each in opened:
        each.close()
    if request.param == "sqlite":
        assert isinstance(tree, SqliteTree)
        tree.close()


@pytest.fixture
def store(session: Open) -> MetadataStore:
    return session()


Told = list[tuple[NodeEvent, str]]


def test_a_node_is_read_back_with_what_made_it(store: MetadataStore) -> None:
    assert store.create("/a", b"one") == "/a"
    store.create("/a/b")
    changed = store.set("/a", b"two")
    node = store.get("/a")
    assert changed.mzxid == node.mzxid
    assert (node.data, node.version, node.child_count, node.cversion) == (b"two", 1, 1, 1)
    assert node.czxid < node.pzxid < node.mzxid
    assert node.ephemeral_owner == 0
    assert store.exists("/a") == node
    assert store.exists("/c") is None


def test_a_node_needs_one_above_it_or_has_it_made(store: MetadataStore) -> None:
    with pytest.raises(NoNodeError):
        store.create("/a/b/c")
    assert store.create("/a/b/c", b"x", parents=True) == "/a/b/c"
    assert store.children("/a") == ["b"]
    with pytest.raises(NodeExistsError):
        store.create("/a/b/c", parents=True)


def test_changes_of_another_version_are_refused(store: MetadataStore) -> None:
    store.create("/a")
    assert store.set("/a", b"1", version=0).version == 1
    for change in (lambda: store.set("/a", b"2", version=0), lambda: store.delete("/a", version=0)):
        with pytest.raises(BadVersionError):
            change()
    store.delete("/a", version=1)
    for call in (store.get, store.children, store.delete):
        with pytest.raises(NoNodeError):
            call("/a")
    with pytest.raises(NoNodeError):
        store.set("/a", b"")


def test_a_node_with_children_stays(store: MetadataStore) -> None:
    store.create("/a/b", parents=True)
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    store.delete("/a/b")
    store.delete("/a")
    assert store.children("/") == []


def test_sequence_numbers_count_all_children_that_ever_were(store: MetadataStore) -> None:
    store.create("/a")
    store.create("/a/plain")
    assert store.create("/a/n_", sequence=True) == "/a/n_0000000001"
    store.delete("/a/n_0000000001")
    assert store.create("/a/n_", sequence=True, ephemeral=True) == "/a/n_0000000002"
    assert store.get("/a").cversion == 4  # three came, one went
    assert store.create("/a/", sequence=True) == "/a/0000000003"


def test_an_ephemeral_node_goes_with_the_session_that_owns_it(session: Open) -> None:
    one, other = session(), session()
    assert one.session_id != other.session_id
    one.create("/ids")
    one.create("/ids/1", ephemeral=True)
    other.create("/ids/2", ephemeral=True)
    assert other.get("/ids/1").ephemeral_owner == one.session_id
    with pytest.raises(NoChildrenForEphemeralsError):
        one.create("/ids/1/x")
    one.close()
    assert other.children("/ids") == ["2"]
    for call in (one.get, one.create, one.delete):
        with pytest.raises(SessionExpiredError):
            call("/ids")


def test_a_transaction_changes_all_or_nothing(store: MetadataStore) -> None:
    store.create("/a", b"1")
    before = store.get("/a")
    with pytest.raises(BadVersionError) as refused:
        store.transaction([SetNode("/a", b"2", 0), CreateNode("/b"), DeleteNode("/a", 0), CreateNode("/c")])
    assert refused.value.path == "/a"
    assert store.get("/a") == before
    assert store.exists("/b") is None
    changes = [CheckNode("/a", 0), CreateNode("/a/n", sequence=True), SetNode("/a", b"2", 0), DeleteNode("/a/x")]
    with pytest.raises(NoNodeError) as refused_too:
        store.transaction(changes)
    assert refused_too.value.path == "/a/x"
    done = store.transaction([*changes[:2], CreateNode("/a/n0000000000/x", b"x"), changes[2]])
    assert done == ["/a", "/a/n0000000000", "/a/n0000000000/x", "/a"]
    assert store.get("/a").mzxid == store.get("/a/n0000000000").czxid > before.czxid
    assert store.transaction([]) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (CheckNode("/a", 7), BadVersionError),
        (CheckNode("/none"), NoNodeError),
        (SetNode("/a", b"", 7), BadVersionError),
        (DeleteNode("/"), MetadataError),
        (DeleteNode("/with"), NotEmptyError),
        (CreateNode("/a"), NodeExistsError),
        (CreateNode("/none/b"), NoNodeError),
        (CreateNode("/mine/b"), NoChildrenForEphemeralsError),
    ],
    ids=str,
)
def test_a_transaction_says_which_change_was_impossible(
    store: MetadataStore, change: CheckNode, error: type[MetadataError]
) -> None:
    store.transaction([CreateNode("/a"), CreateNode("/with/"[:-1]), CreateNode("/with/one")])
    store.create("/mine", ephemeral=True)
    with pytest.raises(error):
        store.transaction([SetNode("/a", b"changed"), change, SetNode("/a", b"again")])
    assert store.get("/a").version == 0


def test_a_watch_tells_once_what_happened_before_a_read_shows_it(session: Open) -> None:
    store, other = session(), session()
    told: Told = []

    def watch(event: NodeEvent, path: str) -> None:
        told.append((event, path))

    assert store.exists("/a", watch) is None
    other.create("/a")
    other.set("/a", b"unwatched")
    assert store.get("/a", watch).data == b"unwatched"
    assert told == [(NodeEvent.CREATED, "/a")]
    store.children("/a", watch)
    other.set("/a", b"x")
    other.create("/a/b")
    other.delete("/a/b")
    assert store.exists("/a", watch) is not None
    assert told[1:] == [(NodeEvent.DATA_CHANGED, "/a"), (NodeEvent.CHILDREN_CHANGED, "/a")]
    store.children("/a", watch)
    other.delete("/a")
    assert store.exists("/a") is None
    assert told[3:] == [(NodeEvent.DELETED, "/a")]  # told once, though it watched data and children


def test_watches_come_in_the_order_of_changes_and_always_before_what_they_tell_is_seen(session: Open) -> None:
    store, other = session(), session()
    paths = [f"/n{index:02}" for index in range(20)]
    other.transaction([CreateNode(path) for path in paths])
    told: list[str] = []
    for count in range(1, 11):
        told.clear()
        store.get_many(paths, lambda _event, path: told.append(path))
        for path in reversed(paths):
            other.set(path, b"%d" % count)
            assert store.get(path).version == count
            assert told[-1] == path
        assert told == paths[::-1]


def test_a_watch_may_read_the_tree(session: Open) -> None:
    store, other = session(), session()
    seen: list[bytes] = []
    store.transaction([CreateNode("/a"), CreateNode("/b")])
    store.get("/a", lambda _event, _path: seen.extend(store.get(each).data for each in ("/a", "/b")))
    other.transaction([SetNode("/a", b"1"), SetNode("/b", b"2")])
    store.get("/a")
    assert seen == [b"1", b"2"]


def test_what_could_not_be_read_is_not_watched(store: MetadataStore) -> None:
    told: list[str] = []
    for read in (store.get, store.children):
        with pytest.raises(NoNodeError):
            read("/a", lambda _event, path: told.append(path))
    store.get_many(["/a"], lambda _event, path: told.append(path))
    store.create("/a")
    store.get("/a")
    assert told == []


def test_a_closed_session_gets_no_event(session: Open) -> None:
    store, other = session(), session()
    told: list[str] = []
    store.exists("/a", lambda _event, path: told.append(path))
    store.close()
    other.create("/a")
    other.get("/a")
    assert told == []


def test_many_nodes_are_read_at_once(session: Open) -> None:
    store, other = session(), session()
    names = [f"{index:04}" for index in range(1200)]
    store.create("/t")
    for start in range(0, len(names), 100):
        store.transaction([CreateNode(f"/t/{name}", name.encode()) for name in names[start : start + 100]])
    paths = [f"/t/{name}" for name in [*names, "none"]]
    found = store.get_many(paths)
    assert [each and each.data for each in found] == [*(name.encode() for name in names), None]
    assert store.get_many([]) == []
    told: Told = []
    assert store.children_many(["/t", "/none", "/"], lambda event, path: told.append((event, path))) == [
        names,
        None,
        ["t"],
    ]
    other.delete("/t/0000")
    store.get("/t")
    assert told == [(NodeEvent.CHILDREN_CHANGED, "/t")]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a/../b", "/.", "/a\0"])
def test_no_path_is_taken_for_another(store: MetadataStore, path: str) -> None:
    for call in (store.get, store.exists, store.children, store.create, store.delete):
        with pytest.raises(MetadataError):
            call(path)


def test_the_root_is_always_there(store: MetadataStore) -> None:
    assert store.children("/") == []
    with pytest.raises(NodeExistsError):
        store.create("/")
    store.set("/", b"data of the root")
    assert store.get("/").data == b"data of the root"
