"""Runs many histories of transactions and writes what happened in them.

Run: PYTHONPATH=tests python -m simulation.run_transaction_histories --histories 100 --out transaction_figures.json
A history that fails is printed with its seed, and runs the same way again: `--first 7 --histories 1 --verbose` prints
its faults and what its brokers log, by virtual time. Faults are counted by where the transactions were that the broker
coordinated: `Ongoing to PrepareCommit` is a decision that is being stored.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

from simulation.run_cluster_histories import ran
from simulation.transaction_histories import TransactionHistory


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--transactions", type=int, default=100, help="in each history")
    parser.add_argument("--seconds", type=float, default=1e9, help="of CPU, after which no further history is begun")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("--out", type=Path, help="a JSON file of figures")
    options = parser.parse_args()
    faults, outcomes, failed = Counter[str](), Counter[str](), dict[int, str]()
    sizes, virtual_s, events, begun = list[int](), 0.0, 0, time.process_time()
    seeds = range(options.first, options.first + options.histories)
    make = partial(TransactionHistory, transactions=options.transactions)
    for history in ran(make, seeds, failed, seconds=options.seconds, verbose=options.verbose):
        faults += history.faults
        outcomes += history.outcomes
        virtual_s, events = virtual_s + history.world.virtual_s, events + len(history.events)
        sizes.append(len(history.recorder.history))
    cpu_s = time.process_time() - begun
    figures = {
        "histories": len(sizes),
        "firstSeed": options.first,
        "operations": sum(sizes),
        "leastOperations": min(sizes, default=0),
        "historiesOf300": sum(size >= 300 for size in sizes),
        "transactions": dict(sorted(outcomes.items())),
        "faults": events,
        "faultsByState": dict(sorted(faults.items())),
        "virtualSeconds": round(virtual_s),
        "historiesPerCoreHour": round(3600 * len(sizes) / cpu_s),
        "failed": {str(seed): why[:500] for seed, why in failed.items()},
    }
    text = json.dumps(figures, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
