"""Commands that write the directory of a KRaft node, killed at each file that they open, make, rename or remove.

A directory that has its `meta.properties` is whole; without it no node starts. The source stays as it was, and the same
command succeeds afterwards.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kraft_data import FOLDER, KraftNode
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.tools.offline.convert import STATE
from magicbyte.tools.offline.quorum_check import check_node
from tools.rescue.rescue_kills import DYING

SEED = 42
SECONDS = 240
COMMANDS: Final = {
    "format": "metadata format OUT --node-id 1 --standalone CONTROLLER://localhost:9093 --release 4.3",
    "export": "metadata export SOURCE --to-kraft OUT",
    "export with logs": "metadata export SOURCE --to-kraft OUT --logs SOURCE",
    "repair": "metadata check SOURCE --repair --out OUT",
    "rescue": "rescue BACKUP --to-kraft OUT --release 4.3 --node-id 1 --metadata SOURCE",
}
NODE: Final = KraftNode("4.3.1/clean-a", "node")


def died(command: str, number: int, folder: Path) -> tuple[int, int]:
    """Run a command that is killed at a point, 0: at none; return its status, and how many points it met."""
    places = {"OUT": folder / "out", "SOURCE": folder / "source", "BACKUP": folder / "backup"}
    words = [str(places.get(word, word)) for word in COMMANDS[command].split()]
    done = subprocess.run(
        [sys.executable, str(DYING), "files", str(number), *words], capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode == -signal.SIGKILL:
        return done.returncode, number
    return done.returncode, int(done.stderr.splitlines()[-1].split()[0])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def verdict(out: Path) -> tuple[set[str], int] | None:
    """Return the files of a directory, and how many findings there are; None if no node starts on it.

    An interrupted rescue may write the commits of groups into a further segment, and its state is deleted last.
    """
    if not (out / "meta.properties").exists():
        return None
    names = {name for name in contents(out) if not name.startswith(OFFSETS_TOPIC) and name != STATE}
    return names, len(check_node([str(out)]).findings)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_killed_command_leaves_its_directory_whole_or_absent(command: str, kills: int, tmp_path: Path) -> None:
    NODE.unpacked(tmp_path / "source")
    NODE.unpacked(tmp_path / "backup", without=rf"^{FOLDER}|meta\.properties|bootstrap")
    before, out = contents(tmp_path / "source") | contents(tmp_path / "backup"), tmp_path / "out"
    undisturbed, points = died(command, 0, tmp_path)
    assert undisturbed in (0, 1)
    whole = verdict(out)
    assert whole is not None
    shutil.rmtree(out)
    found = list[object]()
    for number in sorted(random.Random(SEED).sample(range(1, points + 1), min(kills, points))):
        assert died(command, number, tmp_path)[0] == -signal.SIGKILL
        found.append(verdict(out))
        if found[-1] is None:
            assert died(command, 0, tmp_path)[0] == undisturbed
        elif command == "rescue":
            assert died(command, 0, tmp_path)[0] in (undisturbed, 2)  # 2: it was done
        assert verdict(out) == whole
        assert not (out / STATE).exists()
        assert contents(tmp_path / "source") | contents(tmp_path / "backup") == before
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "out.rescue", ignore_errors=True)
    assert all(each in (None, whole) for each in found)
    assert None in found
