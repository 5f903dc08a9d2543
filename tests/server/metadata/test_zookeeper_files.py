"""The data files of ZooKeepers: of real ones, as ZooKeeper's own classes restore them, and damaged ones."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MetadataError
from magicbyte.server.metadata import zookeeper_files
from magicbyte.server.metadata.zookeeper_files import RestoredTree, data_folder, restore
from magicbyte.server.stores.znodes.reading import cluster_paths, image_of
from server.broker.serving import Clock
from server.metadata import zookeeper_builders as made
from server.metadata.zookeeper_builders import (
    CLOSE,
    CREATE,
    DELETE,
    ERROR,
    MULTI,
    NOW,
    OPEN,
    RECORDED,
    SET,
    changed,
    created,
    log_of,
    multi,
    put,
    text,
    transaction,
)
from server.stores.znodes.builders import recorded as recorded_tree

SEED = 42
OPENED = transaction(1, OPEN, struct.pack(">i", 9000))


def restored(folder: Path) -> RestoredTree:
    found = data_folder(str(folder))
    assert found is not None
    return restore(found)


def restored_of(tmp_path: Path, *transactions: bytes, at: int = 1) -> RestoredTree:
    return restored(put(tmp_path / "made", {f"log.{at:x}": log_of(*transactions)}))


def nodes_of(tree: RestoredTree) -> dict[str, object]:
    return {path: made.told(path, node) for path, node in tree.nodes.items()}


@pytest.mark.parametrize("version", RECORDED)
def test_135_the_tree_of_a_real_zookeeper_is_what_its_own_classes_restore(version: str, tmp_path: Path) -> None:
    tree = restored(put(tmp_path, made.files(version)))
    assert nodes_of(tree) == made.recorded_nodes(version)
    assert tree.zxid == made.recorded_zxids(version)[-1]
    assert (tree.passed_over, tree.torn, tree.compressed, tree.has_logs) == ([], None, [], True)


@pytest.mark.parametrize("version", RECORDED)
def test_136_the_logs_alone_give_the_same_tree(version: str, tmp_path: Path) -> None:
    without = {name: data for name, data in made.files(version).items() if name[:4] == "log." or name == "snapshot.0"}
    expected = made.recorded_nodes(version)
    if "snapshot.0" not in without:  # ZooKeeper 3.4 writes none, and makes its own nodes without transactions
        expected = {path: node for path, node in expected.items() if not path.startswith("/zookeeper")}
    assert nodes_of(restored(put(tmp_path, without))) == expected


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize("damage", ["cut", "checksum", "empty", "magic"])
def test_137_a_damaged_snapshot_is_passed_over_for_an_older_one(version: str, damage: str, tmp_path: Path) -> None:
    contents = dict(made.files(version))
    newest = max((name for name in contents if name.startswith("snapshot")), key=lambda each: int(each[9:], 16))
    data = bytearray(contents[newest])
    match damage:
        case "cut":
            del data[-1]
        case "checksum":
            data[len(data) // 2] ^= 1
        case "empty":
            data.clear()
        case _:
            data[0] ^= 1
    contents[newest] = bytes(data)
    tree = restored(put(tmp_path, contents))
    assert [error.path for error in tree.passed_over] == [str(tmp_path / "version-2" / newest)]
    assert all(error.position is not None for error in tree.passed_over)
    expected = made.recorded_nodes(version)
    if version == "1.1.1":
        expected = {path: node for path, node in expected.items() if not path.startswith("/zookeeper")}
    assert nodes_of(tree) == expected


@pytest.mark.parametrize("version", RECORDED)
def test_138_a_log_that_is_cut_in_a_transaction_ends_before_it(version: str, tmp_path: Path) -> None:
    contents = dict(made.files(version))
    newest = max((name for name in contents if name.startswith("log")), key=lambda each: int(each[4:], 16))
    data = contents[newest].rstrip(b"\0")
    assert data.endswith(b"B")
    at, length = 16, 0
    while at < len(data):
        begin, length = at, struct.unpack_from(">i", data, at + 8)[0]
        at += 12 + length + 1
    folder = put(tmp_path / "whole", contents | {newest: data[:begin]})
    before = restored(folder)
    assert (before.zxid, before.torn) == (made.recorded_zxids(version)[-1] - 1, None)
    for end in range(begin + 1, len(data)):
        (folder / "version-2" / newest).write_bytes(data[:end])
        tree = restored(folder)
        assert (tree.zxid, tree.nodes) == (before.zxid, before.nodes)
        assert tree.torn is not None
        assert (tree.torn.path, tree.torn.position) == (str(folder / "version-2" / newest), begin)


def test_139_no_part_of_a_multi_transaction_with_an_error_is_applied(tmp_path: Path) -> None:
    failed = multi((ERROR, struct.pack(">i", 0)), (CREATE, created("/a")), (ERROR, struct.pack(">i", -2)))
    done = multi((CREATE, created("/b", b"1")), (SET, changed("/b", b"2", 1)), (13, text("/b") + struct.pack(">i", 1)))
    tree = restored_of(tmp_path, OPENED, transaction(2, MULTI, failed), transaction(3, MULTI, done))
    assert (sorted(tree.nodes), tree.zxid) == (["/", "/b"], 3)
    node = tree.nodes["/b"]
    assert (node.data, node.czxid, node.mzxid, node.version) == (b"2", 3, 3, 1)


def test_140_the_end_of_a_session_removes_its_nodes(tmp_path: Path) -> None:
    others = transaction(4, CREATE, created("/ids/2", is_ephemeral=True), session=7)
    tree = restored_of(
        tmp_path,
        OPENED,
        transaction(2, CREATE, created("/ids")),
        transaction(3, CREATE, created("/ids/1", is_ephemeral=True)),
        others,
        transaction(5, CLOSE, b""),
    )
    assert sorted(tree.nodes) == ["/", "/ids", "/ids/2"]
    above = tree.nodes["/ids"]
    assert (above.cversion, above.pzxid) == (2, 5)


def test_141_a_log_ends_at_the_first_length_of_zero(tmp_path: Path) -> None:
    data = log_of(OPENED, transaction(2, CREATE, created("/a"))) + bytes(1000) + b"rest"
    tree = restored(put(tmp_path, {"log.1": data}))
    assert (sorted(tree.nodes), tree.torn) == (["/", "/a"], None)


def test_142_a_digest_after_a_transaction_is_left_unread_and_other_bytes_are_damage(tmp_path: Path) -> None:
    digest = struct.pack(">iq", 2, 77)
    tree = restored_of(tmp_path, OPENED, transaction(2, CREATE, created("/a"), end=digest))
    assert sorted(tree.nodes) == ["/", "/a"]
    folder = put(tmp_path / "other", {"log.1": log_of(OPENED, transaction(2, CREATE, created("/a"), end=b"123"))})
    with pytest.raises(CorruptRecordError, match=r"bytes after a transaction: expected 0 or 12, found 3") as caught:
        restored(folder)
    assert caught.value.path == str(folder / "version-2" / "log.1")
    assert caught.value.position == 16 + len(OPENED) + 12 + 32 + len(created("/a"))


def test_fields_of_a_node_are_those_of_its_transactions(tmp_path: Path) -> None:
    tree = restored_of(
        tmp_path,
        OPENED,
        transaction(2, CREATE, created("/a", b"1", 1)),
        transaction(3, CREATE, created("/a/b", cversion=5)),
        transaction(4, SET, changed("/a", b"22", 1)),
        transaction(5, DELETE, text("/a/b")),
        transaction(6, ERROR, struct.pack(">i", -101)),
    )
    assert tree.nodes["/a"] == zookeeper_files.RestoredNode(b"22", 2, 4, NOW + 2, NOW + 4, 1, 5, 0, 5)
    assert tree.zxid == 6


def test_later_changes_in_a_snapshot_are_kept(tmp_path: Path) -> None:
    """A snapshot is taken while the tree changes: here it already has what its log makes and removes."""
    contents = made.files("3.9.1")
    early = {
        "snapshot.2b": contents["snapshot.65"],
        **{name: data for name, data in contents.items() if name[:3] == "log"},
    }
    expected = made.recorded_nodes("3.9.1")
    found = nodes_of(restored(put(tmp_path, early)))
    assert found.keys() == expected.keys()
    assert {path: node["data"] for path, node in expected.items()} == {
        path: each["data"] for path, each in found.items()
    }  # type: ignore[index]


def test_transactions_that_are_missing_between_logs_are_damage(tmp_path: Path) -> None:
    contents = dict(made.files("3.9.1"))
    whole = contents["log.67"].rstrip(b"\0")
    only_old = {name: data for name, data in contents.items() if name in ("snapshot.0", "log.1", "log.2d", "log.a2")}
    with pytest.raises(CorruptRecordError, match=r"log\.a2, position 40: transaction: expected 67, found a2"):
        restored(put(tmp_path / "missing", only_old))
    folder = put(tmp_path / "torn", only_old | {"log.67": whole[:-3]})
    with pytest.raises(CorruptRecordError, match=r"log\.67, position .*: length of a transaction"):
        restored(folder)


def test_a_log_of_a_new_epoch_continues_the_one_before(tmp_path: Path) -> None:
    later = (1 << 32) + 1
    contents = {"log.1": log_of(OPENED), f"log.{later:x}": log_of(transaction(later, CREATE, created("/a")))}
    tree = restored(put(tmp_path, contents))
    assert (sorted(tree.nodes), tree.zxid) == (["/", "/a"], later)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("log.d1",), "no whole snapshot, and the logs begin at transaction d1"),
        (("snapshot.0",), None),
        ((), "no whole snapshot, and there is no log; compressed snapshots are not read: decompress snapshot.cf.gz"),
    ],
)
def test_a_tree_without_its_beginning_is_refused(names: tuple[str, ...], message: str | None, tmp_path: Path) -> None:
    contents = {name: made.files("3.9.1")[name] for name in names} or {"snapshot.cf.gz": b"\x1f\x8b"}
    folder = put(tmp_path, contents)
    if message is None:
        assert not restored(folder).has_logs
        return
    with pytest.raises(LogDirectoryError, match=message):
        restored(folder)


def test_a_newer_compressed_snapshot_is_named(tmp_path: Path) -> None:
    contents = {"log.1": log_of(OPENED), "snapshot.9.snappy": b"x", "snapshot.0.gz": b"x"}
    assert restored(put(tmp_path, contents)).compressed == ["snapshot.9.snappy"]


@pytest.mark.parametrize("version", RECORDED)
def test_the_image_is_that_of_the_tree_in_zookeeper(version: str, tmp_path: Path) -> None:
    tree = restored(put(tmp_path, made.files(version)))
    assert cluster_paths(tree.nodes) == ["/"]
    assert image_of(tree.session(Clock())) == image_of(recorded_tree(version))
    with pytest.raises(MetadataError, match="the files of a ZooKeeper are not changed"):
        tree.session(Clock()).create("/a")


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (CREATE, created("a/b"), "path: expected one such as /brokers/ids, found a/b"),
        (CREATE, text("/a") + struct.pack(">i", 1 << 30), "length: expected 0 to 0, found 1073741824"),
        (CREATE, text("/a") + struct.pack(">ii", -1, 1 << 30), "number of items: expected -1 to 0, found 1073741824"),
        (MULTI, struct.pack(">i", 1 << 30), "number of items: expected -1 to 0"),
        (MULTI, multi((MULTI, multi())), "type in a multi transaction: expected a change of a node, found 14"),
        (MULTI, multi((DELETE, text("/a") + b"x")), "bytes after a part: expected 0, found 1"),
        (99, b"", "type of a transaction: expected a known one, found 99"),
    ],
)
def test_a_sound_record_that_cannot_be_read_is_damage_with_its_position(
    kind: int, body: bytes, message: str, tmp_path: Path
) -> None:
    first = 16 + len(OPENED) + 12
    with pytest.raises(CorruptRecordError, match=message) as caught:
        restored_of(tmp_path, OPENED, transaction(2, kind, body))
    assert caught.value.position is not None
    assert first <= caught.value.position <= first + 32 + len(body)


def test_trees_and_snapshots_above_the_limits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path, made.files("3.9.1"))
    monkeypatch.setattr(zookeeper_files, "MOST_KEPT_BYTES", 5000)
    with pytest.raises(LogDirectoryError, match="expected a tree of at most 5000 bytes"):
        restored(folder)
    monkeypatch.setattr(zookeeper_files, "MOST_SNAPSHOT_BYTES", 5000)
    with pytest.raises(LogDirectoryError, match=r"snapshot\.cf: expected at most 5000 bytes, found 15479"):
        restored(folder)


def found_in(folder: Path) -> tuple[RestoredTree | None, CorruptRecordError | None]:
    try:
        return restored(folder), None
    except CorruptRecordError as error:
        return None, error


@pytest.mark.parametrize("version", RECORDED)
def test_any_damaged_byte_gives_the_same_tree_or_says_where_it_is(version: str, tmp_path: Path) -> None:
    """Of each file in turn; a byte of a log that is not the last one may also end it, which the next log shows."""
    contents, rng = made.files(version), random.Random(SEED)
    folder = put(tmp_path, contents)
    expected, zxids = made.recorded_nodes(version), made.recorded_zxids(version)
    if version == "1.1.1":
        expected = {path: node for path, node in expected.items() if not path.startswith("/zookeeper")}
    for name, data in contents.items():
        path = folder / "version-2" / name
        for at in rng.sample(range(len(data.rstrip(b"\0"))), 40):
            damaged = bytearray(data)
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            tree, damage = found_in(folder)
            if damage is not None:
                assert (damage.path, (damage.position or 0) <= at) == (str(path), True)
            elif tree is not None and tree.torn is not None:
                assert tree.zxid < zxids[-1]
            elif tree is not None:
                assert {each: node for each, node in nodes_of(tree).items() if each in expected} == expected
        path.write_bytes(data)
