"""Rescues that are killed again and again: SIGKILL at points that a seed draws, then the same command once more.

A round has a backup of its own topics. Its rescue is killed some times, at files or at the network, and then runs to
its end; what the target then holds is compared with Kafka's word on the golden logs. A kill that comes too late, when
all is done, is no kill; the round ends with it.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import golden_data
from magicbyte.tools.rescue.rescue import CONVERTED, PLACED, SALVAGED, STATE, UNPACKED
from tools.rescue.old_backups import Row, rows

LOGS: Final = ("0.8.2.2/basic-gzip", "0.9.0.1/compact-snappy.before", "0.10.0.1/logappend-lz4",
               "0.10.2.2/crash-flip.crashed", "0.11.0.3/txn-none")  # fmt: skip
OFFSETS: Final = "0.11.0.3/consumer-offsets"
READ: Final = "0.11.0.3/basic-none"  # the topic of the group in OFFSETS
KILLS_A_ROUND: Final = 5
DYING: Final = Path(__file__).with_name("dying.py")
SECONDS: Final = 240
_LOST: Final = 1  # status: one of LOGS is damaged

Records = dict[str, list[Row]]
Judge = Callable[[Iterable[str]], Records]
"""Returns what a consumer gets of topics."""


@dataclass(slots=True)
class RescueKills:
    """What was done and found. `kills`: by what the working folder held; `wrong`: what differs, by topic."""

    rounds: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    too_late: int = 0
    records: int = 0
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def killed(self) -> int:
        """How many runs were killed."""
        return sum(self.kills.values())

    def to_json(self) -> dict[str, Any]:
        """Return what is kept of a campaign."""
        return {
            "rounds": self.rounds,
            "kills": self.killed,
            "killsByStep": dict(sorted(self.kills.items())),
            "tooLate": self.too_late,
            "records": self.records,
            "wrong": self.wrong,
        }


def made_backup(folder: Path, prefix: str) -> Path:
    """Make an archive with LOGS under names that begin with `prefix`, two replicas of each, and a group's offsets."""
    tree = folder / prefix
    for name in LOGS:
        case = golden_data.log_case(name)
        for broker in "ab":
            shutil.copytree(case.partition_dir(), tree / broker / f"{topic_of(prefix, name)}-0")
    for name in (OFFSETS, READ):
        case = golden_data.log_case(name)
        shutil.copytree(case.partition_dir(), tree / "a" / f"{case.topic}-{case.partition}")
    return Path(shutil.make_archive(str(tree), "gztar", tree))


def topic_of(prefix: str, name: str) -> str:
    return f"{prefix}.{name.replace('/', '.')}"


def expected(prefix: str, *, numbered: bool) -> Records:
    """Return what is to be at the target. `numbered`: by a cluster that reassigns offsets."""
    found = {topic_of(prefix, name): rows(golden_data.log_case(name)) for name in LOGS}
    found[golden_data.log_case(READ).topic] = rows(golden_data.log_case(READ))
    if numbered:
        return {topic: [row._replace(offset=at) for at, row in enumerate(each)] for topic, each in found.items()}
    return found


@dataclass
class Campaign:
    """Rescues into one target. `target`: what --to is in a round. `done`: called behind a round that was judged."""

    folder: Path
    seed: int
    target: Callable[[int], str]
    judge: Callable[[int, Iterable[str]], Records]
    done: Callable[[int], None] = lambda _: None
    numbered: bool = True

    def run(self, kills: int) -> RescueKills:
        """Kill this many rescues; return what was found."""
        drawn, found, points = random.Random(self.seed), RescueKills(), None
        while found.killed < kills:
            number = found.rounds
            prefix = f"round-{number}"
            backup, work = made_backup(self.folder, prefix), self.folder / f"work-{number}"
            line = ["rescue", str(backup), "--to", self.target(number), "--work", str(work), "--json"]
            if points is not None:
                for _ in range(min(KILLS_A_ROUND, kills - found.killed)):
                    kind = drawn.choice([name for name, count in points.items() if count])
                    ended = self._run(kind, drawn.randint(1, points[kind]), line)
                    if ended.returncode != -signal.SIGKILL or not (work / STATE).exists():
                        found.too_late += 1
                        break
                    step = _step(work, kind)
                    found.kills[step] = found.kills.get(step, 0) + 1
            if not (self.numbered or points is None or (work / STATE).exists()):
                self._compare(number, prefix, None, found)  # the directory is there, and cannot be given once more
                continue
            last = self._run("files", 0, line)
            assert last.returncode == _LOST, last.stderr
            if points is None:  # this round was not disturbed
                files, network = map(int, last.stderr.splitlines()[-1].split())
                points = {"files": files, "network": network}
            assert not work.exists()
            self._compare(number, prefix, json.loads(last.stdout), found)
        return found

    def _run(self, kind: str, number: int, line: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(DYING), kind, str(number), *line]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)

    def _compare(self, number: int, prefix: str, receipt: Mapping[str, Any] | None, found: RescueKills) -> None:
        wanted = expected(prefix, numbered=self.numbered)
        there = self.judge(number, wanted)
        said = {each["partition"].removesuffix("-0"): each for each in receipt["partitions"]} if receipt else {}
        for topic, records in wanted.items():
            found.records += len(records)
            if there[topic] != records:
                found.wrong[topic] = f"expected {len(records)} records, found {len(there[topic])}"
            elif said and (said[topic]["records"] != len(records) or not said[topic]["same"]):
                found.wrong[topic] = f"the receipt says {said[topic]['records']}"
        self.done(number)
        found.rounds += 1


def _step(work: Path, kind: str) -> str:
    """Name the step that a killed rescue was in, by what it left behind."""
    if PLACED in json.loads((work / STATE).read_text()):
        return "place"
    for name, step in (
        (CONVERTED, "produce" if kind == "network" else "convert"),
        (SALVAGED, "salvage"),
        (UNPACKED, "unpack"),
    ):
        if (work / name).exists():
            return step
    return "begin"
