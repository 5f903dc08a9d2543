"""Runs many histories of a replicated partition and writes what happened in them.

Run: python tests/engine/replication/run_histories.py --seeds 3000 -o history_figures.json (committed beside it).
A history that fails is printed with its seed, and runs the same way again. With --planted: the first seed that finds
each planted fault, for tests/engine/replication/planted_figures.json (committed).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from engine.replication.histories import History
from engine.replication.planted import PLANTED, in_place, seed_that_fails

STEPS = 400
KINDS: dict[str, dict[str, bool | int]] = {
    "asks for epochs": {},
    "fetch compares epochs": {"compares_epochs": True},
    "min.insync.replicas 2": {"min_isr": 2},
    "leaders move fast": {"storm": True},
}


def search(seeds: int, output: Path | None) -> int:
    """Plant each fault; return 1 if the histories of so many seeds do not find one."""
    found = dict[str, int | None]()
    for planted in PLANTED:
        with in_place(planted):
            found[str(planted)] = seed_that_fails(range(seeds), **planted.options)
        print(f"{planted}: {found[str(planted)]}")
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if None in found.values() else 0


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="histories of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of figures")
    parser.add_argument("--planted", action="store_true", help="search for planted faults instead")
    options = parser.parse_args()
    if options.planted:
        return search(options.seeds, options.output)
    faults, acknowledged, failed, started = Counter[str](), 0, list[str](), time.monotonic()
    for kind, settings in KINDS.items():
        for seed in range(options.first, options.first + options.seeds):
            history = History(seed, **settings)
            try:
                history.run(STEPS)
            except AssertionError as error:
                failed.append(f"{kind}, seed {seed}: {error}")
                print(failed[-1], file=sys.stderr)
            faults += history.faults
            acknowledged += len(history.acknowledged)
    figures = {
        "histories": len(KINDS) * options.seeds,
        "kinds": list(KINDS),
        "firstSeed": options.first,
        "stepsBeforeHealing": STEPS,
        "acknowledgedRecords": acknowledged,
        "faults": dict(sorted(faults.items())),
        "failed": failed,
    }
    if options.output is not None:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")
    per_hour = 3600 * figures["histories"] / (time.monotonic() - started)  # type: ignore[operator]
    print(json.dumps(figures, indent=2))
    print(f"{per_hour:,.0f} histories per core hour")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
