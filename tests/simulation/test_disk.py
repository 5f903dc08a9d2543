"""The simulated disk forgets what a real one may forget, and nothing that was synced."""

import errno

import pytest

from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.testing.disk import SECTOR, SimulatedDisk


def contents(disk: SimulatedDisk, cuts: int = 300) -> set[tuple[tuple[str, bytes], ...]]:
    """What is found after so many cuts at this moment."""
    return {tuple(disk.after_a_cut(seed).walk()) for seed in range(cuts)}


def a_file(disk: SimulatedDisk, content: bytes) -> None:
    with disk.create("/a") as file:
        file.write_at(0, content)
        file.sync()
    disk.sync_directory("/")


def test_what_was_synced_stays_whatever_happens() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"kept")
    assert contents(disk) == {(("/a", b"kept"),)}


def test_a_name_without_a_sync_of_its_directory_may_be_lost_and_content_without_one_too() -> None:
    disk = SimulatedDisk()
    with disk.create("/a") as file:
        file.write_at(0, b"synced")
        file.sync()
    assert contents(disk) == {(), (("/a", b"synced"),)}
    disk.sync_directory("/")
    disk.edit("/a").write_at(0, b"SYNCED")
    assert contents(disk) == {(("/a", b"synced"),), (("/a", b"SYNCED"),)}


def test_sectors_are_lost_one_by_one_and_none_in_part() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"a" * SECTOR * 3)
    disk.edit("/a").write_at(0, b"b" * SECTOR * 3)
    found = {content for ((_, content),) in contents(disk)}
    assert all(
        content == b"".join(content[at : at + 1] * SECTOR for at in (0, SECTOR, 2 * SECTOR)) for content in found
    )
    assert len(found) == 8


def test_a_file_that_grew_may_have_its_length_and_zeros() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"")
    disk.edit("/a").write_at(0, b"x" * SECTOR * 2)
    found = {content for ((_, content),) in contents(disk)}
    assert {b"", bytes(SECTOR * 2), b"x" * SECTOR + bytes(SECTOR), bytes(SECTOR) + b"x" * SECTOR} < found


def test_renames_come_through_in_any_order_but_each_of_them_whole() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"1")
    with disk.create("/b") as file:
        file.write_at(0, b"2")
        file.sync()
    disk.sync_directory("/")
    disk.rename("/a", "/c")
    disk.rename("/b", "/a")
    found = contents(disk)
    assert (("/a", b"1"), ("/b", b"2")) in found
    assert (("/a", b"2"),) in found  # the second alone, in place of the file that the first would have moved
    assert (("/a", b"2"), ("/c", b"1")) in found
    assert all(sum(content == b"2" for _, content in each) == 1 for each in found)


def test_the_same_seed_gives_the_same_disk() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"a" * 5000)
    disk.edit("/a").write_at(100, b"b" * 4000)
    assert list(disk.after_a_cut(7).walk()) == list(disk.after_a_cut(7).walk())


def test_errors_come_where_they_were_asked_for_and_a_failed_sync_is_never_made_good() -> None:
    disk = SimulatedDisk()
    a_file(disk, b"old")
    file = disk.edit("/a")
    file.write_at(0, b"new")
    disk.failures[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError, match="/a") as found:
        file.sync()
    assert found.value.errno == errno.EIO
    file.sync()
    assert (("/a", b"old"),) in contents(disk)


def test_it_answers_as_a_local_disk_does(tmp_path) -> None:
    found = []
    for files, root in ((SimulatedDisk(), ""), (LocalFiles(), str(tmp_path))):
        files.make_directory(f"{root}/d")
        with files.create(f"{root}/d/x") as file:
            file.write_at(0, b"one", b"two")
            file.write_at(8, b"!")
            file.truncate(12)
            file.sync()
            said = [file.size, file.read_at(0, 99), file.read_at(7, 2)]
        files.rename(f"{root}/d/x", f"{root}/d/y")
        files.sync_directory(f"{root}/d")
        with pytest.raises(FileExistsError):
            files.make_directory(f"{root}/d")
        with pytest.raises(FileNotFoundError):
            files.open(f"{root}/d/x")
        with pytest.raises(OSError, match="d"):
            files.delete(f"{root}/d")
        files.set_modified_ms(f"{root}/d/y", 5000)
        said += [files.modified_ms(f"{root}/d/y"), [(each.name, each.size) for each in files.list(f"{root}/d")]]
        lock = files.lock(f"{root}/l")
        with pytest.raises(BlockingIOError):
            files.lock(f"{root}/l")
        lock.release()
        files.lock(f"{root}/l").release()
        files.delete(f"{root}/d/y")
        files.delete(f"{root}/d")
        found.append(said)
    assert found[0] == found[1]
    assert found[0] == [12, b"onetwo\0\0!\0\0\0", b"\0!", 5000, [("y", 12)]]
