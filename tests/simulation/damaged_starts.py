"""Files that recovery trusts because of a check, each damaged so that one check alone tells.

A directory with a plain log (producers, aborted transactions, two leader epochs) and an enriched one is closed, or
killed, one of its files is changed, and it is opened: what is known of the logs is what it was, or the partition is
offline, and a line names the file.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator

from engine.log.appended import batch_of
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import INDEXES, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from magicbyte.engine.log.files.names import QUARANTINE
from magicbyte.engine.log.files.producer_snapshot import ENTRY, HEADER
from magicbyte.engine.log.live.log_directory import LogDirectory
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.testing.disk import SimulatedDisk
from simulation.crashes import ENRICHED, PATH, PLAIN, START_MS, TRANSACTIONAL, World, open_directory
from simulation.crashes import put as append
from simulation.ledger import Batch, BrokenError, content_of, expect, known_of, marker, plain_batch

FOLDER = f"{PATH}/{PLAIN}"
LEADER_EPOCHS, DIALECT = f"{FOLDER}/{checkpoints.LEADER_EPOCHS}", f"{PATH}/{ENRICHED}/{checkpoints.MESSAGE_DIALECT}"
MARK, META = f"{PATH}/{checkpoints.CLEAN_SHUTDOWN}", f"{PATH}/{checkpoints.META_PROPERTIES}"
RECOVERY_POINT = f"{PATH}/{checkpoints.RECOVERY_POINT}"
SIZE = len(plain_batch(0, 3, START_MS, 1, 90, 100).content)
Edit = Callable[[SimulatedDisk], str]
DAMAGES: dict[str, tuple[str, Edit]] = {}


def damage(outcome: str) -> Callable[[Callable[[SimulatedDisk], str]], Edit]:
    """Note a change of one file, which returns its path. `outcome`: how the start goes, see `started`."""

    def noted(edit: Edit) -> Edit:
        DAMAGES[edit.__name__] = outcome, edit
        return edit

    return noted


@functools.cache
def a_directory(*, closed: bool) -> SimulatedDisk:
    world = World(1)
    world.disk.observer = None
    world.open()
    for key in (PLAIN, ENRICHED):
        world.create(key)
    log, now = world.log(PLAIN), world.disk.now_ms
    at = 0

    def put(*batches: Batch) -> None:
        nonlocal at
        for each in batches:
            append(log, each, now)
            at = each.last + 1

    def transaction(*, commits: bool) -> None:
        data = batch_of(
            at, START_MS, 2, producer_id=TRANSACTIONAL, producer_epoch=0, base_sequence=at, attributes=16,
            partition_leader_epoch=0,
        )  # fmt: skip
        put(Batch(at, at + 1, data, START_MS, 0))
        put(marker(at, 0, START_MS, TRANSACTIONAL, commits=commits))

    for _ in range(2):
        transaction(commits=False)
    put(*(plain_batch(at + more, 0, START_MS + more, 1, 90, 100 + more) for more in range(3)))
    log.roll(now)
    put(*(plain_batch(at + more, 3, START_MS + 10 + more, 1, 90, 100 + more) for more in range(3)))
    put(plain_batch(at, 3, START_MS + 20, 1, 1, 100))
    log.roll(now)
    put(*(plain_batch(at + more, 3, START_MS + 20, 1, 90, 100 + more) for more in range(4)))
    world.append(ENRICHED)
    for key in (PLAIN, ENRICHED):
        world.flush(key)
    assert world.directory is not None
    if closed:
        world.directory.close()
    else:
        world.checkpoints(PLAIN)
        world.directory.release()
    return world.disk.after_a_cut(0) if closed else world.disk


def state_of(directory: LogDirectory) -> dict[str, object]:
    """Return what is known of each log, but for leader epochs, which only their checkpoint tells."""
    found: dict[str, object] = {}
    for key, log in directory.logs.items():
        times = [offset_for_timestamp(log, START_MS + at) for at in range(22)]
        found[str(key)] = content_of(log), known_of(log), times, log.log_end_offset
    return found


@functools.cache
def sound_state() -> dict[str, object]:
    directory = open_directory(a_directory(closed=True).after_a_cut(1))
    found = state_of(directory)
    directory.release()
    return found


def started(name: str) -> None:
    """Open the damaged directory. Outcomes: "as before", "offline", "recovered" (as before, all logs are walked)."""
    outcome, edit = DAMAGES[name]
    disk = a_directory(closed=True).after_a_cut(2)
    path = edit(disk)
    try:
        directory = open_directory(disk)
    except (AttributeError, LookupError, struct.error) as error:  # of what a check let pass
        raise BrokenError(f"{name}: {error!r} ends the start and does not name {path}") from error
    lines = [*directory.notes, *(each.why for each in directory.offline.values())]
    expect(any(path in line for line in lines), f"{name}: no line names {path}: {lines}")
    if outcome == "offline":
        expect(len(directory.offline) == 1, f"{name}: the partition is offline")
        expect(QUARANTINE not in disk.names(PATH), f"{name}: nothing of it is changed")
    else:
        expect(state_of(directory) == sound_state(), f"{name}: the logs are others than before")
        expect(directory.was_clean == (outcome == "as before"), f"{name}: the mark of a clean shutdown is believed")
    directory.release()


# ---- what the edits are made of


def put(disk: SimulatedDisk, path: str, content: bytes) -> str:
    with disk.create(path) as file:
        file.write_at(0, content)
    return path


def get(disk: SimulatedDisk, path: str) -> bytes:
    with disk.open(path) as file:
        return file.read_at(0, file.size)


def files(disk: SimulatedDisk, kind: str) -> list[str]:
    return [each.path for each in disk.list(FOLDER) if each.path.endswith(kind)]


def replaced(disk: SimulatedDisk, path: str, old: bytes, new: bytes) -> str:
    content = get(disk, path)
    assert old in content, content
    return put(disk, path, content.replace(old, new, 1))


# ---- producer snapshots


@damage("as before")
def a_snapshot_with_another_byte(disk: SimulatedDisk) -> str:
    path = files(disk, SNAPSHOT)[-1]
    content = bytearray(get(disk, path))
    content[HEADER.size + 13] ^= 1  # the last sequence number of the first producer
    return put(disk, path, bytes(content))


@damage("as before")
def a_snapshot_of_another_version(disk: SimulatedDisk) -> str:
    path = files(disk, SNAPSHOT)[-1]
    return put(disk, path, struct.pack(">h", 2) + get(disk, path)[2:])


@damage("as before")
def a_snapshot_cut_within_its_header(disk: SimulatedDisk) -> str:
    path = files(disk, SNAPSHOT)[-1]
    return put(disk, path, get(disk, path)[:5])


@damage("as before")
def a_snapshot_of_more_producers_than_it_counts(disk: SimulatedDisk) -> str:
    path = files(disk, SNAPSHOT)[-1]
    content = get(disk, path)
    body = content[6:] + ENTRY.pack(99, 0, 5, 5, 0, START_MS, 0, -1)
    return put(disk, path, content[:2] + struct.pack(">I", crc32c(body)) + body)


# ---- indexes


@damage("as before")
def an_index_that_is_missing(disk: SimulatedDisk) -> str:
    path = files(disk, OFFSET_INDEX)[0]
    disk.delete(path)
    return path


@damage("as before")
def an_index_of_no_whole_entries(disk: SimulatedDisk) -> str:
    path = files(disk, TIME_INDEX)[0]
    return put(disk, path, get(disk, path)[:-5])


@damage("as before")
def an_index_with_a_negative_offset(disk: SimulatedDisk) -> str:
    """Its only entry: behind another one it would be out of order as well."""
    return put(disk, files(disk, OFFSET_INDEX)[0], struct.pack(">ii", -5, 0))


@damage("as before")
def an_index_whose_offsets_fall(disk: SimulatedDisk) -> str:
    path = files(disk, OFFSET_INDEX)[0]
    *before, last = [get(disk, path)[at : at + 8] for at in range(0, len(get(disk, path)), 8)]
    return put(disk, path, b"".join(before) + last[:3] + bytes([last[3] + 1]) + last[4:] + last)


@damage("as before")
def an_index_of_an_offset_that_the_log_does_not_have(disk: SimulatedDisk) -> str:
    path = files(disk, OFFSET_INDEX)[0]
    content = get(disk, path)
    return put(disk, path, content[:-8] + struct.pack(">i", 1 << 20) + content[-4:])


@damage("as before")
def an_index_of_a_position_inside_a_batch(disk: SimulatedDisk) -> str:
    path = files(disk, OFFSET_INDEX)[0]
    content = get(disk, path)
    return put(disk, path, content[:-1] + bytes([content[-1] ^ 1]))


@damage("as before")
def a_time_index_of_a_time_that_its_batch_does_not_have(disk: SimulatedDisk) -> str:
    path = files(disk, TIME_INDEX)[0]
    content = get(disk, path)
    return put(disk, path, content[:-12] + struct.pack(">q", START_MS + 10**9) + content[-4:])


@damage("as before")
def an_aborted_transaction_of_another_producer(disk: SimulatedDisk) -> str:
    path = files(disk, TRANSACTION_INDEX)[0]
    content = get(disk, path)
    return put(disk, path, content[:2] + struct.pack(">q", TRANSACTIONAL + 1) + content[10:])


@damage("offline")
def a_log_without_its_last_batches(disk: SimulatedDisk) -> str:
    """Only its offset index names them: all of its records are of one time."""
    path = files(disk, LOG)[2]
    return put(disk, path, get(disk, path)[: 2 * SIZE])


@damage("offline")
def a_log_without_its_last_batch(disk: SimulatedDisk) -> str:
    """Only its time index names that: the last batch was too near to the one before for an index entry."""
    path = files(disk, LOG)[1]
    last = len(plain_batch(0, 3, START_MS + 20, 1, 1, 100).content)
    return put(disk, path, get(disk, path)[:-last])


@damage("offline")
def an_index_without_its_log(disk: SimulatedDisk) -> str:
    path = files(disk, LOG)[0]
    disk.delete(path)
    return path


@damage("offline")
def a_folder_without_any_file(disk: SimulatedDisk) -> str:
    for kind in (LOG, *INDEXES, SNAPSHOT):
        for path in files(disk, kind):
            disk.delete(path)
    return FOLDER


@damage("offline")
def a_closed_log_that_is_not_sound(disk: SimulatedDisk) -> str:
    """It is looked into because an index is missing, and nothing of it may be cut off: no crash tore it."""
    path = files(disk, LOG)[0]
    content = bytearray(get(disk, path))
    content[-5] ^= 1
    disk.delete(files(disk, OFFSET_INDEX)[0])
    return put(disk, path, bytes(content))


@damage("offline")
def a_folder_with_the_name_of_a_log(disk: SimulatedDisk) -> str:
    path = files(disk, LOG)[0]
    disk.delete(path)
    disk.make_directory(path)
    return path


@damage("as before")
def a_transaction_index_of_no_whole_entries(disk: SimulatedDisk) -> str:
    path = files(disk, TRANSACTION_INDEX)[0]
    return put(disk, path, get(disk, path)[:-5])


@damage("as before")
def a_transaction_index_of_another_version(disk: SimulatedDisk) -> str:
    path = files(disk, TRANSACTION_INDEX)[0]
    return put(disk, path, b"\0\7" + get(disk, path)[2:])


@damage("as before")
def a_transaction_that_ends_before_it_begins(disk: SimulatedDisk) -> str:
    path = files(disk, TRANSACTION_INDEX)[0]
    content = get(disk, path)
    return put(disk, path, content[:10] + struct.pack(">q", 1 << 40) + content[18:])


@damage("as before")
def transactions_that_are_not_in_order(disk: SimulatedDisk) -> str:
    path = files(disk, TRANSACTION_INDEX)[0]
    content = get(disk, path)
    half = len(content) // 2
    return put(disk, path, content[half:] + content[:half])


# ---- checkpoints and what else is text


@damage("as before")
def leader_epochs_that_fall(disk: SimulatedDisk) -> str:
    return put(disk, LEADER_EPOCHS, b"0\n2\n3 0\n0 9\n")


@damage("as before")
def leader_epochs_of_one_number(disk: SimulatedDisk) -> str:
    return put(disk, LEADER_EPOCHS, b"0\n1\n3\n")


@damage("as before")
def leader_epochs_that_are_fewer_than_counted(disk: SimulatedDisk) -> str:
    return put(disk, LEADER_EPOCHS, b"0\n2\n0 0\n")


@damage("as before")
def leader_epochs_of_another_version(disk: SimulatedDisk) -> str:
    return put(disk, LEADER_EPOCHS, b"1\n1\n0 0\n")


@damage("as before")
def leader_epochs_of_no_numbers(disk: SimulatedDisk) -> str:
    return put(disk, LEADER_EPOCHS, b"0\n1\n0 12_3\n")


@damage("as before")
def a_checkpoint_of_two_fields(disk: SimulatedDisk) -> str:
    return put(disk, RECOVERY_POINT, b"0\n1\nplain 0\n")


@damage("as before")
def a_checkpoint_that_names_a_partition_twice(disk: SimulatedDisk) -> str:
    return put(disk, RECOVERY_POINT, b"0\n2\nplain 0 3\nplain 0 5\n")


@damage("recovered")
def a_mark_that_is_a_list(disk: SimulatedDisk) -> str:
    return put(disk, MARK, b"[]")


@damage("recovered")
def a_mark_that_says_nothing(disk: SimulatedDisk) -> str:
    return put(disk, MARK, b"{}")


@damage("as before")
def properties_of_another_version(disk: SimulatedDisk) -> str:
    return put(disk, META, b"version=9\nbroker.id=1\n")


@damage("offline")
def a_dialect_without_its_version(disk: SimulatedDisk) -> str:
    return put(disk, DIALECT, b"of: 0\ndialect: enriched\n")


@damage("offline")
def a_dialect_of_another_version(disk: SimulatedDisk) -> str:
    return put(disk, DIALECT, b"version: 1\ndialect: enriched\n")


# ---- after a kill


def a_killed_log_with_another_byte() -> None:
    """Recovery keeps the entries before it, and cuts off the rest with a copy: the CRC of each entry decides."""
    disk = a_directory(closed=False).after_a_cut(3)
    path = files(disk, LOG)[-1]
    content = bytearray(get(disk, path))
    content[2 * SIZE - 5] ^= 1
    put(disk, path, bytes(content))
    directory = open_directory(disk)
    log = directory[PLAIN]
    expect(log.active.size == SIZE, "the log ends before the damaged entry")
    copies = [each for name, each in disk.walk() if f"/{QUARANTINE}/" in name]
    expect(copies == [bytes(content[SIZE:])], "what was cut off is in the quarantine")
    directory.release()


def a_copy_in_quarantine_that_is_another() -> None:
    """A copy of the name that a new one is to have is no reason to make none, unless it is the same."""
    disk = a_directory(closed=False).after_a_cut(3)
    path = files(disk, LOG)[-1]
    content = get(disk, path)
    put(disk, path, content[:-5])
    name = path.rpartition("/")[2]
    torn = content[3 * SIZE : -5]
    disk.make_directory(f"{PATH}/{QUARANTINE}")
    put(disk, f"{PATH}/{QUARANTINE}/{PLAIN}.{name.removesuffix(LOG)}.{3 * SIZE}.bytes", bytes(len(torn)))
    open_directory(disk).release()
    copies = [each for name, each in disk.walk() if f"/{QUARANTINE}/" in name]
    expect(torn in copies, "what was cut off is in the quarantine")


def simulations() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of each damage, and the start that it is for."""
    for name in DAMAGES:
        yield name, functools.partial(started, name)
    for each in (a_killed_log_with_another_byte, a_copy_in_quarantine_that_is_another):
        yield each.__name__, each
