"""Runs many histories of power failures and adds what happened in them to a file of figures.

Run (with PYTHONPATH=tests): python -m simulation.run_power_histories -o tests/simulation/power_figures.json
Each run continues with the seed after the last one in the file, for each setting. A history that fails is printed with
its seed, and runs the same way again: `--first 7 --count 1 --verbose`. `lyingDiskFirst` are histories in which records
are lost: the broker with the lying disk leads after a power failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulation.power_histories import PowerHistory, Setting
from simulation.run_cluster_histories import ran, running_commit

KINDS: Final = {
    "groupCommit": PowerHistory,
    "kafka": partial(PowerHistory, setting=Setting.KAFKA),
    "lyingDisk": partial(PowerHistory, setting=Setting.LYING_DISK),
    "lyingDiskFirst": partial(PowerHistory, setting=Setting.LYING_DISK, liar_first=True),
}
_SUMS: Final = ("histories", "powerFailures", "otherFaults", "acknowledgedRecords", "lostRecords", "historiesWithLoss")


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, help="only these")
    parser.add_argument("--first", type=int, help="the first seed, instead of the next one of the file")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="of CPU, after which no further history begins")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of figures, which is added to")
    options = parser.parse_args()
    is_there = options.output is not None and options.output.exists()
    figures: dict[str, Any] = json.loads(options.output.read_text()) if is_there else {}
    has_failed = False
    for kind in [options.kind] if options.kind else KINDS:
        found = figures.setdefault(kind, {"nextSeed": 0, **dict.fromkeys(_SUMS, 0), "commits": [], "failed": {}})
        first = found["nextSeed"] if options.first is None else options.first
        failed = dict[int, str]()
        seeds = range(first, first + options.count)
        for history in ran(KINDS[kind], seeds, failed, seconds=options.seconds, verbose=options.verbose):
            _add(found, history)
        found["failed"] |= {str(seed): why[:500] for seed, why in failed.items()}
        found["commits"] = sorted({*found["commits"], running_commit()})
        has_failed = has_failed or bool(failed)
    if options.output is not None:
        beside = options.output.with_suffix(".new")
        beside.write_text(json.dumps(figures, indent=2) + "\n")
        beside.replace(options.output)
    print(json.dumps(figures, indent=2))
    return 1 if has_failed else 0


def _add(found: dict[str, Any], history: PowerHistory) -> None:
    found["nextSeed"] = history.seed + 1
    powers = len(history.power_failures)
    values = (
        1,
        powers,
        sum(history.faults.values()) - powers,
        len(history.answers),
        len(history.lost),
        bool(history.lost),
    )
    for name, value in zip(_SUMS, values, strict=True):
        found[name] += value


if __name__ == "__main__":
    sys.exit(main())
