"""What every metadata store does, and what only the one in a file has to do: outlive its process."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magicbyte.errors import (
    BadVersionError,
    CorruptRecordError,
    LogDirectoryError,
    LogDirectoryOfflineError,
    MetadataError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from magicbyte.metadata.memory import MemoryTree
from magicbyte.metadata.sqlite import SqliteStore, SqliteTree
from magicbyte.metadata.tree import Session, Tree
from magicbyte.ports import CheckNode, CreateNode, DeleteNode, NodeEvent, SetNode


class Clock:
    """A clock that is a second later each time."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self.time_ms += 1000
        return self.time_ms


@pytest.fixture(params=["memory", "sqlite"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    if request.param == "memory":
        yield MemoryTree(Clock())
    else:
        opened = SqliteTree(str(tmp_path / "tree.sqlite"), Clock())
        yield opened
        opened.close()


@pytest.fixture
def store(tree: Tree) -> Session:
    return tree.session()


def test_a_node_is_read_back_with_what_made_it(store: Session) -> None:
    store.create("/a", b"one")
    store.create("/a/b")
    store.set("/a", b"two")
    node = store.get("/a")
    assert (node.data, node.version, node.child_count, node.cversion) == (b"two", 1, 1, 1)
    assert (node.czxid, node.pzxid, node.mzxid) == (1, 2, 3)
    assert node.mtime_ms - node.ctime_ms == 2000
    assert store.exists("/c") is None


def test_a_node_needs_one_above_it_or_has_it_made(store: Session) -> None:
    with pytest.raises(NoNodeError):
        store.create("/a/b/c")
    assert store.create("/a/b/c", b"x", parents=True) == "/a/b/c"
    assert store.children("/a") == ["b"]
    with pytest.raises(NodeExistsError):
        store.create("/a/b/c", parents=True)


def test_changes_of_another_version_are_refused(store: Session) -> None:
    store.create("/a")
    assert store.set("/a", b"1", version=0).version == 1
    for change in (lambda: store.set("/a", b"2", version=0), lambda: store.delete("/a", version=0)):
        with pytest.raises(BadVersionError, match="expected version 0, found 1"):
            change()
    store.delete("/a", version=1)
    with pytest.raises(NoNodeError):
        store.get("/a")


def test_a_node_with_children_stays(store: Session) -> None:
    store.create("/a/b", parents=True)
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    store.delete("/a/b")
    store.delete("/a")
    assert store.children("/") == []


def test_sequence_numbers_count_all_children_that_ever_were(store: Session) -> None:
    store.create("/a")
    store.create("/a/plain")
    assert store.create("/a/n_", sequence=True) == "/a/n_0000000001"
    store.delete("/a/n_0000000001")
    assert store.create("/a/n_", sequence=True) == "/a/n_0000000002"
    assert store.get("/a").cversion == 4  # three came, one went
    assert store.create("/a/", sequence=True) == "/a/0000000003"


def test_ephemeral_nodes_go_with_their_session_and_only_with_it(tree: Tree) -> None:
    one, other = tree.session(), tree.session()
    one.create("/ids")
    one.create("/ids/1", ephemeral=True)
    other.create("/ids/2", ephemeral=True)
    assert one.get("/ids/1").ephemeral_owner == one.session_id
    with pytest.raises(NoChildrenForEphemeralsError):
        one.create("/ids/1/x")
    one.close()
    assert other.children("/ids") == ["2"]
    with pytest.raises(SessionExpiredError):
        one.get("/ids")


def test_a_transaction_changes_all_or_nothing(store: Session) -> None:
    store.create("/a", b"1")
    before = store.get("/a")
    with pytest.raises(BadVersionError):
        store.transaction([SetNode("/a", b"2"), CreateNode("/b"), DeleteNode("/a", 0)])
    assert store.get("/a") == before
    assert store.exists("/b") is None
    done = store.transaction(
        [CheckNode("/a", 0), CreateNode("/a/n", sequence=True), CreateNode("/a/n0000000000/x"), SetNode("/a", b"2", 0)]
    )
    assert done == ["/a", "/a/n0000000000", "/a/n0000000000/x", "/a"]
    assert store.get("/a").mzxid == store.get("/a/n0000000000").czxid == before.czxid + 1


def test_a_watch_tells_once_what_happened(tree: Tree) -> None:
    store, other = tree.session(), tree.session()
    told: list[tuple[NodeEvent, str]] = []

    def watch(event: NodeEvent, path: str) -> None:
        told.append((event, path))

    assert store.exists("/a", watch) is None
    other.create("/a")
    other.set("/a", b"unwatched")
    store.get("/a", watch)
    store.children("/a", watch)
    other.set("/a", b"x")
    other.create("/a/b")
    other.delete("/a/b")
    store.get("/a", watch)
    store.children("/a", watch)
    other.delete("/a")
    assert told == [
        (NodeEvent.CREATED, "/a"),
        (NodeEvent.DATA_CHANGED, "/a"),
        (NodeEvent.CHILDREN_CHANGED, "/a"),
        (NodeEvent.DELETED, "/a"),
    ]


def test_a_watch_sees_the_transaction_whole_and_may_change_the_tree_itself(store: Session) -> None:
    seen: list[bytes] = []

    def watch(event: NodeEvent, path: str) -> None:
        seen.extend(store.get(each).data for each in ("/a", "/b"))
        store.set("/a", b"3")

    store.create("/a")
    store.create("/b")
    store.get("/a", watch)
    store.transaction([SetNode("/a", b"1"), SetNode("/b", b"2")])
    assert seen == [b"1", b"2"]
    assert store.get("/a").data == b"3"


def test_what_could_not_be_read_is_not_watched(store: Session) -> None:
    told: list[str] = []
    with pytest.raises(NoNodeError):
        store.get("/a", lambda _event, path: told.append(path))
    with pytest.raises(NoNodeError):
        store.children("/a", lambda _event, path: told.append(path))
    store.create("/a")
    assert told == []


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a/../b", "/.", "/a\0"])
def test_no_path_is_taken_for_another(store: Session, path: str) -> None:
    for call in (store.get, store.exists, store.children, store.create, store.delete):
        with pytest.raises(MetadataError):
            call(path)


def test_the_root_is_always_there(store: Session) -> None:
    assert store.children("/") == []
    with pytest.raises(NodeExistsError):
        store.create("/")
    with pytest.raises(MetadataError):
        store.delete("/")


# ---- in a file


def test_a_file_has_everything_again_but_what_was_ephemeral(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "tree.sqlite"), Clock()
    store = SqliteStore(path, clock)
    store.create("/a", b"1")
    store.set("/a", b"2")
    store.create("/a/n", sequence=True)
    store.create("/gone", ephemeral=True)
    before, last = store.get("/a"), store.tree.last_zxid
    store._file.close()  # as a process that ends without a word leaves it
    again = SqliteStore(path, clock)
    assert again.get("/a") == before
    assert again.children("/") == ["a"]
    assert again.tree.last_zxid == last + 1  # the ephemeral node went
    assert again.create("/a/n", sequence=True) == "/a/n0000000001"
    again.close()
    assert [each.name for each in tmp_path.iterdir()] == ["tree.sqlite"]


def test_a_file_is_one_processes_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "tree.sqlite")
    store = SqliteStore(path, Clock())
    with pytest.raises(LogDirectoryError, match="another process is using it"):
        SqliteStore(path, Clock())
    store.close()
    SqliteStore(path, Clock()).close()


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree.sqlite"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(CorruptRecordError, match="not a database"):
        SqliteStore(str(path), Clock())
    assert path.read_bytes() == b"not a database" * 1000


@pytest.mark.parametrize("version", [3, 1 << 16 | 1, 1 << 31 | 1])
def test_a_later_format_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    path = tmp_path / "later.sqlite"
    with contextlib.closing(SqliteStore(str(path), Clock())) as store:
        store.create("/a", b"1")
    content = bytearray(path.read_bytes())
    content[60:64] = version.to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(LogDirectoryError, match=r"reads format 1, the file has format -?[0-9]+: start the later"):
        SqliteStore(str(path), Clock())
    assert path.read_bytes() == content
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:  # as the message says
        database.execute("PRAGMA user_version = 1")
    with contextlib.closing(SqliteStore(str(path), Clock())) as store:
        assert store.get("/a").data == b"1"


def test_after_a_write_that_failed_nothing_is_changed_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(str(tmp_path / "tree.sqlite"), Clock())
    store.create("/a", b"1")
    store._file._database.execute("PRAGMA query_only = 1")
    for _ in range(2):
        with pytest.raises(LogDirectoryOfflineError):
            store.set("/a", b"2")
        store._file._database.execute("PRAGMA query_only = 0")
    assert store.get("/a").data == b"1"
    store.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "tree.sqlite cannot be written: attempt to write a readonly database" in line
    assert "check the disk and its permissions, then start again" in line


WRITER = """
import sys
from magicbyte.metadata.sqlite import SqliteStore
from magicbyte.ports import SetNode
class Clock:
    def now_ms(self): return 0
store = SqliteStore(sys.argv[1], Clock())
if store.exists("/a") is None:
    store.create("/a", b"0"); store.create("/b", b"0")
number = int(store.get("/a").data)
while True:
    number += 1
    store.transaction([SetNode("/a", b"%d" % number), SetNode("/b", b"%d" % number)])
    print(number, flush=True)
"""


def test_a_killed_process_leaves_every_transaction_whole_and_none_that_returned_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "tree.sqlite")
    for kill_after in (1, 7, 20):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                told = int(process.stdout.readline())
            process.kill()
            told = max([told, *map(int, process.stdout.read().split(b"\n")[:-1])])
        store = SqliteStore(path, Clock())
        found = int(store.get("/a").data)
        assert store.get("/b").data == b"%d" % found
        assert told <= found <= told + 1
        store.close()
