"""Killed writers and full disks: nothing half-made gets a name, and another run makes what an undisturbed one makes."""

import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from builders import contents
from engine.log.appended import batch_of_two
from engine.log.builders import TOPICS, TOPICS_RULES, write_topics
from magicbyte.engine.log.files.directory import discover
from magicbyte.tools.offline.rebuild import put, rebuild
from magicbyte.tools.offline.writer import PartitionWriter

SEED = 20261121


class Killed(BaseException):
    """Stands for the end of the process: no code handles it."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    write_topics(out)
    return contents(out)


def test_a_writer_that_ends_at_any_of_its_syncs_leaves_nothing_half_made_and_is_continued(
    undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, at = os.fsync, 0
    while True:
        left = at

        def sync_or_die(descriptor: int) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            sync(descriptor)

        out = tmp_path / str(at)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", sync_or_die)
            try:
                write_topics(out)
            except Killed:
                pass
            else:
                break
        named = {
            name: content for name, content in contents(out).items() if not name.startswith(".") and ".tmp" not in name
        }
        assert named.items() <= undisturbed.items()
        for topic in TOPICS:  # all of a partition, or nothing
            mine = {name for name in undisturbed if name.startswith(topic)}
            assert named.keys() & mine in (set(), mine)
        write_topics(out)
        assert contents(out) == undisturbed
        shutil.rmtree(out)
        at += 1
    assert at > 30


PROGRAM = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from engine.log.builders import write_topics
room = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    write_topics(Path(sys.argv[2]))
except OSError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of file sizes")
def test_a_write_that_fails_says_how_far_it_came_and_another_run_ends_as_an_undisturbed_one(
    undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """A limit of file sizes stands for the full disk: the same calls fail."""
    rng = random.Random(SEED)
    for room in (0, 1, rng.randrange(100, 4000), rng.randrange(100, 4000)):
        out = tmp_path / str(room)
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[2]), str(out), str(room)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 1
        assert done.stderr.count("; written: ") == 1
        assert " offsets below " in done.stderr
        assert ".part" in done.stderr
        assert not (out / "orders-0").exists()
        write_topics(out)
        assert contents(out) == undisturbed


def test_rebuilding_in_place_that_ends_at_any_sync_leaves_each_file_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, sync, at = TOPICS["orders"], os.fsync, 0
    right = {name: content for name, content in case.partition_files().items() if "metadata" not in name}
    wrong = {name: b"\1" * 24 if name.endswith(("index", "snapshot")) else content for name, content in right.items()}

    def rebuild_all(path: Path) -> None:
        (found,) = discover([str(path)])
        for segment in rebuild(found, TOPICS_RULES):
            put(path, segment)

    whole = tmp_path / "whole" / "orders-0"
    while True:
        path, left = tmp_path / str(at) / "orders-0", at

        def sync_or_die(descriptor: int) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            sync(descriptor)

        path.mkdir(parents=True)
        for name, content in wrong.items():
            (path / name).write_bytes(content)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", sync_or_die)
            try:
                rebuild_all(path)
            except Killed:
                pass
            else:
                whole = path
                break
        made = {name: content for name, content in contents(path).items() if not name.endswith(".tmp")}
        assert made.keys() == wrong.keys()
        rebuild_all(path)
        at += 1
    assert at > 10
    for earlier in range(at):
        assert contents(tmp_path / str(earlier) / "orders-0") == contents(whole)


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peaks = []
    for appends in (20, 100):
        log = b"".join(batch_of_two(2 * at, at) for at in range(200))
        tracemalloc.start()
        with PartitionWriter(tmp_path / f"t-{appends}", segment_bytes=len(log) * 10) as writer:
            for at in range(appends):
                moved = bytearray(log)
                for position in range(0, len(log), 97):
                    moved[position : position + 8] = (at * 400 + position // 97 * 2).to_bytes(8, "big")
                writer.append(moved)
            writer.finish()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.1
