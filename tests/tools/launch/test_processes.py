"""Processes that are known again later, and no other ones."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from magicbyte.tools.launch.processes import ProcessId, spawn

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
PATIENCE_S = 120


def test_a_process_is_known_until_it_has_ended(tmp_path: Path) -> None:
    process = spawn(SLEEP, tmp_path / "said")
    assert process.is_alive
    assert ProcessId(process.pid, process.birth).is_alive
    process.send(signal.SIGTERM)
    assert process.wait(PATIENCE_S)
    assert not process.is_alive
    process.send(signal.SIGTERM)  # to a process that has ended


def test_another_process_with_the_number_is_neither_taken_for_it_nor_signalled(tmp_path: Path) -> None:
    process = spawn(SLEEP, tmp_path / "said")
    earlier = ProcessId(process.pid, process.birth + "0")
    assert not earlier.is_alive
    earlier.send(signal.SIGKILL)
    assert not process.wait(0)
    process.send(signal.SIGKILL)
    assert process.wait(PATIENCE_S)


def test_what_processes_say_is_kept_of_all_of_them(tmp_path: Path) -> None:
    for _ in range(2):
        assert spawn([sys.executable, "-c", "print('said')"], tmp_path / "said").wait(PATIENCE_S)
    assert (tmp_path / "said").read_text() == "said\nsaid\n"
