"""Cuts the power within every file operation of many seeds' work, and adds what was covered to a file of figures.

Run: PYTHONPATH=tests python -m simulation.run_crashes --seeds 1-4 --out tests/simulation/crash_figures.json
It prints how many cuts fell on which operation, by what the log was doing: the table of docs/internals/crash-safety.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from simulation.crashes import run

KINDS = ("create", "write", "truncate", "sync", "rename", "delete", "make directory", "sync directory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-1", help="first and last, such as 1-8")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=1, help="within each file operation")
    parser.add_argument("--seconds", type=float, default=150, help="begin no further seed after so many")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    first, last = map(int, chosen.seeds.split("-"))
    began = time.monotonic()
    for seed in range(first, last + 1):
        figures = json.loads(chosen.out.read_text()) if chosen.out.exists() else {"seeds": {}, "covered": {}}
        name = f"{seed}x{chosen.steps}x{chosen.cuts}"
        if name in figures["seeds"] or time.monotonic() - began > chosen.seconds:
            continue
        world = run(seed, chosen.steps, cuts=chosen.cuts)
        operations = world.disk.operations
        figures["seeds"][name] = {"cuts": world.checked, "operations": operations, "withinRecovery": world.deep}
        for (kind, phase), count in sorted(world.disk.counted.items()):
            covered = figures["covered"].setdefault(phase, {})
            covered[kind] = covered.get(kind, 0) + count * chosen.cuts
        figures["total"] = sum(each["cuts"] for each in figures["seeds"].values())
        chosen.out.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
        print(f"seed {seed}: {world.checked} cuts; in all {figures['total']}", flush=True)
    print("\n".join(table(json.loads(chosen.out.read_text()))))


def table(figures: dict[str, Any]) -> list[str]:
    """Return the lines of the table: what was being done, and how many cuts fell on each kind of file operation."""
    rows = [["", *KINDS], ["---"] * (len(KINDS) + 1)]
    rows += [
        [phase, *(str(counts.get(kind, "")) for kind in KINDS)] for phase, counts in sorted(figures["covered"].items())
    ]
    return [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]


if __name__ == "__main__":
    main()
