"""Our own trees, beside what every store does (test_contract.py): numbers, and the file that outlives its process."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magicbyte.engine.errors import (
    BadVersionError,
    CorruptRecordError,
    LogDirectoryError,
    LogDirectoryOfflineError,
)
from magicbyte.server.metadata.sqlite import SqliteStore, SqliteTree
from magicbyte.server.metadata.tree import Session
from server.metadata.builders import Clock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Session]:
    tree = SqliteTree(str(tmp_path / "tree.sqlite"), Clock())
    yield tree.session()
    tree.close()


def test_changes_are_numbered_from_1_and_have_the_times_of_the_clock(store: Session) -> None:
    store.create("/a", b"one")
    store.create("/a/b")
    store.set("/a", b"two")
    node = store.get("/a")
    assert (node.czxid, node.pzxid, node.mzxid) == (1, 2, 3)
    assert node.mtime_ms - node.ctime_ms == 2000


def test_the_version_that_is_found_is_said(store: Session) -> None:
    store.create("/a")
    store.set("/a", b"1")
    for change in (lambda: store.set("/a", b"2", version=0), lambda: store.delete("/a", version=0)):
        with pytest.raises(BadVersionError, match="expected version 0, found 1"):
            change()


def test_a_watch_may_change_the_tree(store: Session) -> None:
    store.create("/a")
    store.get("/a", lambda _event, path: store.set(path, b"3"))
    store.set("/a", b"1")
    assert store.get("/a").data == b"3"


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
def test_a_later_format_is_refused_and_left_unchanged(tmp_path: Path, version: int) -> None:
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


def test_after_a_failed_write_there_is_no_further_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
from magicbyte.server.metadata.sqlite import SqliteStore
from magicbyte.engine.ports import SetNode
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
