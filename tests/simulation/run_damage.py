"""Damages logs by many seeds, lets salvage and verify at them, and adds the scores to a file of figures.

A sound log of each kind is made once; every seed damages a copy, at 100 places. The totals: docs/internals/salvage.md.
Run: PYTHONPATH=tests python -m simulation.run_damage --mib 1024 --kinds v2,nested-nasty --seeds 1-50 --out FILE
Without --pages no page lies where another one should. Seeds that the file has already are not run again.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.segment_ranges import segment_ranges
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.findings import Depth
from magicbyte.tools.offline.salvage import plan_segment
from magicbyte.tools.offline.verify import verify
from simulation.damage_score import figures, of_salvage, of_verify
from simulation.damaged_logs import DamagedLog, damage, log_of, write
from simulation.memory import Memory

DAMAGES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=24)
    parser.add_argument("--kinds", default="v2,nested-nasty")
    parser.add_argument("--seeds", default="1-50", help="first and last")
    parser.add_argument("--pages", action="store_true", help="pages that lie where others should, too")
    parser.add_argument("--seconds", type=float, default=3000, help="begin no further seed after so many")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    os.environ.setdefault("MAGICBYTE_KERNELS", "compiled")
    first, last = map(int, chosen.seeds.split("-"))
    began = time.monotonic()
    for kind in chosen.kinds.split(","):
        name = f"{kind}, {chosen.mib} MiB{', pages' if chosen.pages else ''}"
        originals = log_of(random.Random(f"sound-{kind}"), kind, chosen.mib << 20)
        for seed in range(first, last + 1):
            known = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
            of_kind = known.setdefault(name, {"seeds": [], "total": {}, "regionsByKind": {}})
            if seed in of_kind["seeds"] or time.monotonic() - began > chosen.seconds:
                continue
            log = damage(random.Random(f"{seed}-{kind}"), originals, DAMAGES, pages=chosen.pages)
            found = {"entries": len(originals), **scored(log)}
            of_kind["seeds"] = sorted([*of_kind["seeds"], seed])
            of_kind["total"] = sums(of_kind["total"], found)
            of_kind["regionsByKind"] = sums(of_kind["regionsByKind"], Counter(what for _, _, what in log.regions))
            chosen.out.write_text(json.dumps(known, indent=1) + "\n")
            print(name, seed, found, flush=True)
    print("\n".join(table(json.loads(chosen.out.read_text()))))


class Held(Memory):
    """A file that is the damaged log itself, not a copy."""

    def __init__(self, content: bytearray) -> None:
        super().__init__(b"")
        self.content, self.size = memoryview(content), len(content)

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self.content[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        piece = self.content[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


class HeldFiles:
    """Files of which only the log is read."""

    def __init__(self, content: bytearray) -> None:
        self.content = content

    def open(self, _: str) -> Held:
        return Held(self.content)


def scored(log: DamagedLog) -> dict[str, Any]:
    """Return the figures of one damaged log."""
    with tempfile.TemporaryDirectory(prefix="magicbyte-damage-") as folder:
        name = write(Path(folder) / "t-0", b"")
        os.truncate(name / f"{0:020}.log", len(log.content))  # takes no room: all is read from memory
        (found,) = discover([str(name)])
    partition = replace(found, files=HeldFiles(log.content))
    plan = plan_segment(Held(log.content), segment_ranges(partition)[0].limits, Dialect.KAFKA)
    return figures(of_salvage(log, plan), of_verify(log, verify([partition], depth=Depth.QUICK)))


COLUMNS = {
    "whole entries": "whole",
    "missed": "missed",
    "wrong": "wrong",
    "hidden": "hidden",
    "alike": "alike",
    "regions": "regions",
    "unreported": "unreported",
    "blamed": "blamed",
}


def sums(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def table(known: dict[str, Any]) -> list[str]:
    """Return the lines of a table: what was run, and how much of each there was."""
    rows = [["", "seeds", *COLUMNS], ["---"] * (len(COLUMNS) + 2)]
    rows += [
        [
            name.removesuffix(", pages"),
            str(len(each["seeds"])),
            *(f"{each['total'][column]:,}" for column in COLUMNS.values()),
        ]
        for name, each in known.items()
    ]
    return [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]


if __name__ == "__main__":
    main()
