"""Damaged metadata is salvaged: the new file is durable before the old one goes, and no crash loses both."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.log.damaged_directories import copied
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.ports import CreateNode, MetadataStore, SetNode
from magicbyte.server.metadata.sqlite import FILE_NAME, FILES, SqliteStore
from magicbyte.server.stores.znodes.salvage import Salvaged, is_served, open_metadata
from server.broker.serving import Clock

COLUMN_NAME = 3858
NODES = {f"/kafka-acl-{number}": b"{%d}" % number for number in range(40)}
ADDED = "/added-by-the-broker"


def add(store: MetadataStore) -> None:
    store.create(ADDED)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database with some nodes."""
    directory = tmp_path_factory.mktemp("metadata")
    with closing(SqliteStore(str(directory / FILE_NAME), Clock())) as store:
        for path, data in NODES.items():
            store.create(path, data)
    return directory


@pytest.fixture(scope="module")
def killed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose process was killed: its last changes, one in each transaction, are in the write-ahead log."""
    directory = tmp_path_factory.mktemp("killed")
    for ending in FILES:
        if (base / f"{FILE_NAME}{ending}").exists():
            shutil.copy2(base / f"{FILE_NAME}{ending}", directory)
    with closing(SqliteStore(str(directory / FILE_NAME), Clock())) as store:
        for path in NODES:
            store.set(path, b"changed")
        taken = tmp_path_factory.mktemp("taken")
        shutil.copytree(directory, taken, dirs_exist_ok=True)
    return taken


@pytest.fixture
def damaged(base: Path, tmp_path: Path) -> Path:
    directory = copied(base, tmp_path / "logs")
    flip(directory / FILE_NAME, COLUMN_NAME)
    return directory


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def opened(directory: Path) -> tuple[dict[str, bytes], Salvaged | None]:
    """Open as a start does; return the nodes, and what was salvaged."""
    store, salvaged = open_metadata(directory, Clock(), add)
    with closing(store):
        return {f"/{name}": store.get(f"/{name}").data for name in store.children("/")}, salvaged


def quarantined(directory: Path) -> list[str]:
    return sorted(each.name for each in (directory / "quarantine").iterdir())


def test_a_bit_in_a_columns_name_loses_no_node(damaged: Path) -> None:
    nodes, salvaged = opened(damaged)
    assert nodes == NODES | {ADDED: b""}
    assert salvaged is not None
    assert (salvaged.kept, salvaged.lost) == (len(NODES) + 1, [])
    assert quarantined(damaged) == [FILE_NAME]
    assert opened(damaged) == (nodes, None)


def test_no_bit_of_the_first_page_loses_a_node(base: Path, tmp_path: Path) -> None:
    """It has SQLite's header and the schema. The format's number is checked: another one is a later version's."""
    content = (base / FILE_NAME).read_bytes()
    text = content.index(b"tablelast")
    for at, bit in [(at, at % 8) for at in (*range(0, 60, 7), *range(64, 108, 7), *range(text - 6, 4096, 29))]:
        directory = tmp_path / f"{at}.{bit}"
        directory.mkdir()
        (directory / FILE_NAME).write_bytes(content)
        flip(directory / FILE_NAME, at, bit)
        nodes, salvaged = opened(directory)
        assert nodes == (NODES if salvaged is None else NODES | {ADDED: b""}), (at, bit)


def test_a_damaged_leaf_loses_its_own_nodes_only(base: Path, tmp_path: Path) -> None:
    directory = copied(base, tmp_path / "logs")
    with closing(SqliteStore(str(directory / FILE_NAME), Clock())) as store:
        store.transaction([CreateNode(f"/node-{number:03}", b"x" * 40) for number in range(500)])
    content = bytearray((directory / FILE_NAME).read_bytes())
    middle = content.index(b"/node-250")
    content[middle // 4096 * 4096 : (middle // 4096 + 1) * 4096] = bytes(4096)
    (directory / FILE_NAME).write_bytes(content)
    nodes, salvaged = opened(directory)
    assert salvaged is not None
    assert 500 - 100 < sum(name.startswith("/node-") for name in nodes) < 500


# ---- the write-ahead log


def test_the_transactions_of_a_killed_process_are_salvaged_too(killed: Path, tmp_path: Path) -> None:
    directory = copied(killed, tmp_path / "logs")
    (directory / FILE_NAME).write_bytes(b"not a database" * 1000)
    nodes, salvaged = opened(directory)
    assert salvaged is not None
    assert nodes == dict.fromkeys(NODES, b"changed") | {ADDED: b""}
    assert quarantined(directory) == [FILE_NAME], "SQLite has moved the log's pages into the file"


@pytest.mark.parametrize("at", [0, 8, 17, 24, 32, 40, 48, 2000, 100_000])
def test_a_bit_in_the_write_ahead_log_hides_no_transaction(killed: Path, tmp_path: Path, at: int) -> None:
    """SQLite ignores everything from there on, without a word."""
    directory = copied(killed, tmp_path / "logs")
    flip(directory / f"{FILE_NAME}-wal", at)
    nodes, salvaged = opened(directory)
    assert salvaged is not None
    assert nodes == dict.fromkeys(NODES, b"changed") | {ADDED: b""}


def test_a_write_ahead_log_that_a_crash_cut_is_no_damage(killed: Path, tmp_path: Path) -> None:
    log = (killed / f"{FILE_NAME}-wal").read_bytes()
    for number, size in enumerate([0, 1, 32, 33, *range(len(log) - 8300, len(log), 1411)]):
        for rest in (b"", bytes(100), bytes(5000)):
            directory = copied(killed, tmp_path / f"{number}.{len(rest)}")
            (directory / f"{FILE_NAME}-wal").write_bytes(log[:size] + rest)
            nodes, salvaged = opened(directory)
            assert salvaged is None, (size, len(rest))
            assert size < 100 or list(nodes.values()).count(b"changed") >= len(NODES) - 2


def test_an_empty_database_beside_a_write_ahead_log_is_damaged(killed: Path, tmp_path: Path) -> None:
    """SQLite would delete the log, and start a new one."""
    directory = copied(killed, tmp_path / "logs")
    os.truncate(directory / FILE_NAME, 0)
    _, salvaged = opened(directory)
    assert salvaged is not None
    assert f"{FILE_NAME}-wal" in quarantined(directory)


# ---- found in the quarantine


def test_a_database_that_is_only_in_the_quarantine_is_restored(base: Path, tmp_path: Path) -> None:
    """An earlier version moved it there before the new one was durable."""
    directory = copied(base, tmp_path / "logs")
    (directory / "quarantine").mkdir()
    (directory / FILE_NAME).rename(directory / "quarantine" / FILE_NAME)
    assert is_served(directory)
    nodes, salvaged = opened(directory)
    assert nodes == NODES | {ADDED: b""}
    assert "it is missing" in str(salvaged)
    assert str(directory / "quarantine" / FILE_NAME) in str(salvaged)
    assert opened(directory) == (nodes, None)


def test_the_latest_of_several_databases_in_the_quarantine_is_taken(base: Path, tmp_path: Path) -> None:
    directory = copied(base, tmp_path / "logs")
    for number in range(11):
        flip(directory / FILE_NAME, COLUMN_NAME)
        store, salvaged = open_metadata(directory, Clock())
        assert salvaged is not None
        store.create(f"/since-{number}")
        store.close()
    (directory / FILE_NAME).unlink()
    nodes, _ = opened(directory)
    assert nodes.keys() == {*NODES, ADDED, *(f"/since-{number}" for number in range(10))}


def test_metadata_in_use_is_not_salvaged(base: Path, tmp_path: Path) -> None:
    directory = copied(base, tmp_path / "logs")
    (directory / "quarantine").mkdir()
    (directory / FILE_NAME).rename(directory / "quarantine" / FILE_NAME)
    lock = LocalFiles().lock(str(directory / ".lock"))
    with pytest.raises(LogDirectoryError, match="another process is using this log directory"):
        opened(directory)
    lock.release()
    assert not (directory / FILE_NAME).exists()


# ---- who may read it


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in directory.rglob(f"*{FILE_NAME}*")}


def test_only_the_owner_reads_the_file_its_log_and_its_copies(killed: Path, tmp_path: Path) -> None:
    directory = copied(killed, tmp_path / "logs")
    for each in directory.iterdir():
        each.chmod(0o644)
    flip(directory / FILE_NAME, COLUMN_NAME)
    store, _ = open_metadata(directory, Clock())
    store.create("/a")
    assert len(list(directory.rglob(f"*{FILE_NAME}*"))) == 3
    assert modes(directory) == {0o600}
    store.close()
    for each in (directory / "quarantine").iterdir():
        each.chmod(0o644)  # as earlier versions left them
    opened(directory)
    assert modes(directory) == {0o600}


def test_a_new_file_is_never_readable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()
    connect = sqlite3.connect

    def watched(path: str, *arguments: object, **options: object) -> sqlite3.Connection:
        seen.append(stat.S_IMODE(Path(path).stat().st_mode))
        return connect(path, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", watched)
    opened(tmp_path)
    assert seen == [0o600]


# ---- crashes


FOLDER = b"a directory"


def content_of(path: Path) -> bytes:
    return FOLDER if path.is_dir() else path.read_bytes()


class CrashFiles(LocalFiles):
    """The files of a log directory, of which `check` sees every state that a crash may leave.

    Until a directory is synced, each change of a name in it may be lost, in any combination. SQLite syncs the names of
    its own files. `point` is a moment of a crash.
    """

    def __init__(self, directory: Path, scratch: Path, check: Callable[[Path], None]) -> None:
        self._directory, self._scratch, self._check = directory, scratch, check
        self._pending: list[tuple[Path, dict[str, bytes | None]]] = []
        self._durable = self._visible()
        self._seen = set[frozenset[tuple[str, bytes | None]]]()
        self.states = 0

    def _visible(self) -> dict[str, bytes]:
        return {self._name(each): content_of(each) for each in self._directory.rglob("*")}

    def _name(self, path: Path | str) -> str:
        return str(Path(path).relative_to(self._directory))

    def point(self, statement: str = "") -> None:
        if statement.startswith(("INSERT", "SELECT")):
            return
        visible, touched = self._visible(), {name for _, change in self._pending for name in change}
        for name in visible.keys() - self._durable.keys() - touched:
            if name.startswith("quarantine/"):
                self._pending.append((self._directory / "quarantine", {name: visible[name]}))
                touched.add(name)
        untouched = {name: content for name, content in visible.items() if name not in touched}
        self._durable = untouched | {name: content for name, content in self._durable.items() if name in touched}
        for keep in itertools.product([False, True], repeat=len(self._pending)):
            state: dict[str, bytes | None] = dict(self._durable)
            for (_, change), kept in zip(self._pending, keep, strict=True):
                state |= change if kept else {}
            key = frozenset(state.items())
            if key not in self._seen:
                self._seen.add(key)
                self._check(self._laid_out(state))

    def _laid_out(self, state: dict[str, bytes | None]) -> Path:
        self.states += 1
        target = self._scratch / f"state-{self.states}"
        target.mkdir(parents=True)
        for name, content in sorted(state.items()):
            if content == FOLDER:
                (target / name).mkdir()
            elif content is not None and (target / name).parent.exists():
                (target / name).write_bytes(content)
        return target

    def make_directory(self, path: str) -> None:
        self.point()
        self._pending.append((Path(path).parent, {self._name(path): FOLDER}))
        super().make_directory(path)
        self.point()

    def rename(self, source: str, target: str) -> None:
        self.point()
        content = content_of(Path(source))
        gone: dict[str, bytes | None] = {self._name(source): None}
        made: dict[str, bytes | None] = {self._name(target): content}
        if Path(source).parent == Path(target).parent:
            self._pending.append((Path(source).parent, gone | made))
        else:
            self._pending += [(Path(source).parent, gone), (Path(target).parent, made)]
        super().rename(source, target)
        self.point()

    def delete(self, path: str) -> None:
        self.point()
        self._pending.append((Path(path).parent, {self._name(path): None}))
        super().delete(path)
        self.point()

    def sync_directory(self, path: str) -> None:
        self.point()
        for folder, change in self._pending:
            if folder == Path(path):
                self._durable = {
                    name: content for name, content in (self._durable | change).items() if content is not None
                }
        self._pending = [(folder, change) for folder, change in self._pending if folder != Path(path)]
        super().sync_directory(path)


@pytest.fixture
def at_each_statement(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], None]]:
    """Functions in the list are called before each SQL statement."""
    called: list[Callable[[str], None]] = []
    connect = sqlite3.connect

    def traced(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(lambda statement: [each(statement) for each in called])
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", traced)
    return called


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the schema": lambda directory: flip(directory / FILE_NAME, COLUMN_NAME),
    "a bit of the log": lambda directory: flip(directory / f"{FILE_NAME}-wal", 3000),
    "a directory beside it": lambda directory: (directory / f"{FILE_NAME}-shm").mkdir(),
    "an interrupted start of before": lambda directory: moved_aside(directory),
}


def moved_aside(directory: Path) -> None:
    (directory / "quarantine").mkdir()
    for each in list(directory.glob(f"{FILE_NAME}*")):
        each.rename(directory / "quarantine" / each.name)


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_crash_in_a_salvage_loses_a_node_or_the_damaged_file(
    killed: Path, tmp_path: Path, damage: str, at_each_statement: list[Callable[[str], None]]
) -> None:
    directory = copied(killed, tmp_path / "logs")
    DAMAGES[damage](directory)
    mark = (directory / FILE_NAME).read_bytes()[3840:3880] if damage == "a bit of the schema" else b""
    before = {content_of(each) for each in directory.rglob(f"*{FILE_NAME}*") if not mark} - {FOLDER}
    expected = dict.fromkeys(NODES, b"changed") | {ADDED: b""}
    later: set[str] = set()

    def check(state: Path) -> None:
        watching, at_each_statement[:] = list(at_each_statement), []
        nodes, _ = opened(state)
        assert expected.items() | {(name, b"") for name in later} <= nodes.items()
        kept = {content_of(each) for each in state.rglob(f"*{FILE_NAME}*")}
        assert before <= kept, "the damaged files are in the quarantine"
        assert any(mark in each for each in kept)
        shutil.rmtree(state)
        at_each_statement[:] = watching

    files = CrashFiles(directory, tmp_path / "states", check)
    at_each_statement.append(files.point)
    store, salvaged = open_metadata(directory, Clock(), add, files)
    assert salvaged is not None
    store.create("/later")
    later.add("/later")
    files.point()
    store.close()
    assert files.states > 10


def test_a_crash_at_any_statement_or_in_any_byte_of_the_log_keeps_transactions_whole(
    tmp_path: Path, at_each_statement: list[Callable[[str], None]]
) -> None:
    """The database, its log and their directory, as they are at each statement, and with each piece of the log cut."""
    directory, states = tmp_path / "logs", itertools.count()
    directory.mkdir()
    done = 0  # transactions that have returned

    def check(_statement: str = "", cut: int | None = None) -> None:
        watching, at_each_statement[:] = list(at_each_statement), []
        state = copied(directory, tmp_path / f"state-{next(states)}")
        if cut is not None:
            os.truncate(state / f"{FILE_NAME}-wal", cut)
        nodes, salvaged = opened(state)
        assert salvaged is None
        first, second = nodes.get("/a", b"0"), nodes.get("/b", b"0")
        assert first == second
        assert done - (cut is not None) <= int(first) <= done + 1
        shutil.rmtree(state)
        at_each_statement[:] = watching

    at_each_statement.append(check)
    for _ in range(2):
        store, _ = open_metadata(directory, Clock())
        if store.exists("/a") is None:
            store.transaction([CreateNode("/a", b"0"), CreateNode("/b", b"0")])
        for number in range(done + 1, done + 4):
            before = log_size(directory)
            store.transaction([SetNode("/a", b"%d" % number), SetNode("/b", b"%d" % number)])
            done = number
            for cut in range(before, log_size(directory), 2100):
                check(cut=cut)
        store.close()
        check()


def log_size(directory: Path) -> int:
    log = directory / f"{FILE_NAME}-wal"
    return log.stat().st_size if log.exists() else 0


def test_each_transaction_is_synced_before_it_returns(tmp_path: Path) -> None:
    """What a copy of files cannot show: FULL also syncs the write-ahead log in each commit."""
    store, _ = open_metadata(tmp_path, Clock())
    query = store._file._database.execute
    assert query("PRAGMA synchronous").fetchone() == (2,)
    assert query("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from server.broker.serving import Clock
from engine.log.damaged_directories import copied
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.server.stores.znodes import salvage
left = int(sys.argv[2])
def killing(call):
    def step(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)
    return step
for name in ("rename", "delete", "sync_directory", "make_directory"):
    setattr(LocalFiles, name, killing(getattr(LocalFiles, name)))
salvage.clone_file = killing(salvage.clone_file)
salvage.open_metadata(Path(sys.argv[1]), Clock(), lambda store: store.create("/added-by-the-broker"))[0].close()
"""


@pytest.mark.parametrize(
    "steps", [pytest.param(each, marks=() if each in (4, 7) else pytest.mark.slow) for each in range(14)]
)
def test_a_start_continues_where_a_killed_one_ended(killed: Path, tmp_path: Path, steps: int) -> None:
    directory = copied(killed, tmp_path / "logs")
    flip(directory / FILE_NAME, COLUMN_NAME)
    damaged = (directory / FILE_NAME).read_bytes()[3840:3880]
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(directory), str(steps)],
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    nodes, salvaged = opened(directory)
    assert nodes == dict.fromkeys(NODES, b"changed") | {ADDED: b""}
    assert any(damaged in each.read_bytes() for each in (directory / "quarantine").iterdir())
    assert (process.returncode, salvaged is None) in ((-9, False), (0, True), (-9, True))
    assert process.returncode == -9 or steps >= 9, "the salvage has that many steps, and one more for a copied log"
