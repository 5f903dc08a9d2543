"""Rescues into real brokers that are killed at drawn points and run again; Kafka's own consumer judges.

Run: PYTHONPATH=tests python -m interop.run_rescue_kills --kills 20 -o tests/interop/rescue_kill_figures.json
Figures of the same file are added to, with other draws.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import golden_data
from interop import jvm
from interop.test_rescue_backups import SETTINGS, TARGETS, consumed
from magicbyte.access.client import Client, admin
from tools.rescue.rescue_kills import READ, Campaign, Records, RescueKills

SEED: Final = 24
GONE_SECONDS: Final = 240.0


def killed_rescues(version: str, folder: Path, kills: int, seed: int = SEED) -> RescueKills:
    """Kill this many rescues into a broker of a release; return what was found."""
    with jvm.broker(version, folder / "broker", *SETTINGS) as state:
        bootstrap = state["bootstrap"]

        def judge(_: int, topics: Iterable[str]) -> Records:
            return consumed(bootstrap, topics, version)

        def done(_: int) -> None:  # the topic of the group has the same name in each round
            asyncio.run(removed(bootstrap, golden_data.log_case(READ).topic))

        work = folder / "rescues"
        work.mkdir()
        return Campaign(work, seed, lambda _: bootstrap, judge, done).run(kills)


async def removed(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until the broker does not list it."""
    deadline = time.monotonic() + GONE_SECONDS
    async with Client(bootstrap) as client:
        await client.topics()
        await admin.delete_topic(client, topic)
        while topic in await client.topics():
            assert time.monotonic() < deadline, f"{topic} was deleted and is listed"
            await asyncio.sleep(0.1)


def added(before: dict[str, Any], more: RescueKills) -> dict[str, Any]:
    """Return the figures of a campaign that went on."""
    steps = Counter(before.get("killsByStep", {})) + Counter(more.kills)
    return {
        "rounds": before.get("rounds", 0) + more.rounds,
        "kills": before.get("kills", 0) + more.killed,
        "killsByStep": dict(sorted(steps.items())),
        "tooLate": before.get("tooLate", 0) + more.too_late,
        "records": before.get("records", 0) + more.records,
        "wrong": before.get("wrong", {}) | more.wrong,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--into", choices=TARGETS, action="append")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    figures = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for release in arguments.into or TARGETS:
        before = figures.get(release, {})
        with tempfile.TemporaryDirectory() as scratch:
            found = killed_rescues(release, Path(scratch), arguments.kills, SEED + before.get("kills", 0))
        figures[release] = added(before, found)
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
