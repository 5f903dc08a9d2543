"""Runs many histories of migrations and adds what happened in them to a file of figures.

Run (with PYTHONPATH=tests): python -m simulation.run_migration_histories -o tests/simulation/migration_figures.json
Each run continues with the seed after the last one in the file, which is written after each history. A history that
fails is printed with its seed, and runs the same way again: `--first 7 --count 1 --verbose`. `--again` runs those that
failed: a seed that is sound now is recorded in `mended`.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from simulation.migration_histories import MigrationHistory
from simulation.run_cluster_histories import ran, running_commit

FIGURES: dict[str, Any] = {
    "histories": 0, "nextSeed": 1000, "byProtocols": {}, "steps": 0, "operations": 0, "acknowledgedRecords": 0,
    "faults": 0, "virtualSeconds": 0, "failed": {}, "mended": {},
}  # fmt: skip


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, help="the first seed, instead of the next one of the file")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further history after so many")
    parser.add_argument("--again", action="store_true", help="run those of the file that failed, and no others")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of figures, which is added to")
    options = parser.parse_args()
    figures: dict[str, Any] = copy.deepcopy(FIGURES)
    if options.output is not None and options.output.exists():
        figures = json.loads(options.output.read_text())
    first = figures["nextSeed"] if options.first is None else options.first
    seeds = [int(each) for each in figures["failed"]] if options.again else range(first, first + options.count)
    failed = dict[int, str]()
    for history in ran(MigrationHistory, seeds, failed, seconds=options.seconds, verbose=options.verbose):
        seed = str(history.seed)
        if not options.again:
            _add(figures, history)
        elif history.seed not in failed:
            figures["mended"][seed] = {"failed": figures["failed"].pop(seed), "soundWith": running_commit()}
        figures["failed"] |= {str(seed): why[:500] for seed, why in failed.items()}
        if options.output is not None:
            beside = options.output.with_suffix(".new")
            beside.write_text(json.dumps(figures, indent=2) + "\n")
            beside.replace(options.output)
    print(json.dumps(figures, indent=2))
    return 1 if failed else 0


def _add(figures: dict[str, Any], history: MigrationHistory) -> None:
    protocols = " to ".join(history.step.protocols)
    by_protocols = Counter(figures["byProtocols"])
    by_protocols[protocols] += 1
    figures["byProtocols"] = dict(sorted(by_protocols.items()))
    figures["histories"] += 1
    figures["nextSeed"] = history.seed + 1
    figures["steps"] += len(history.steps_taken)
    figures["operations"] += len(history.recorder.history)
    figures["acknowledgedRecords"] += len(history.acknowledged)
    figures["faults"] += sum(count for what, count in history.faults.items() if not what.startswith("step"))
    figures["virtualSeconds"] += round(history.world.virtual_s)


if __name__ == "__main__":
    sys.exit(main())
