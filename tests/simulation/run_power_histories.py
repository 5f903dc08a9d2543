"""Runs many histories of power failures, and of bits that flip, and adds what happened in them to a file of figures.

Run (with PYTHONPATH=tests): python -m simulation.run_power_histories -o tests/simulation/power_figures.json
Each run continues with the seed after the last one in the file, for each kind; it is written after each history. A
history that fails is printed with its seed, and runs the same way again: `--kind kafka --first 7 --count 1 --verbose`.
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
from simulation.scrub_histories import ScrubHistory

KINDS: Final = {
    "groupCommit": PowerHistory,
    "kafka": partial(PowerHistory, setting=Setting.KAFKA),
    "lyingDisk": partial(PowerHistory, setting=Setting.LYING_DISK),
    "bitFlips": ScrubHistory,
}


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
        found = figures.setdefault(kind, {"nextSeed": 0, "histories": 0, "commits": [], "failed": {}})
        found["commits"] = sorted({*found["commits"], running_commit()})
        first = found["nextSeed"] if options.first is None else options.first
        failed = dict[int, str]()
        seeds = range(first, first + options.count)
        for history in ran(KINDS[kind], seeds, failed, seconds=options.seconds, verbose=options.verbose):
            found["nextSeed"] = history.seed + 1
            for name, value in {"histories": 1, **history.figures()}.items():
                found[name] = found.get(name, 0) + value
            found["failed"] |= {str(seed): why[:500] for seed, why in failed.items()}
            if options.output is not None:
                beside = options.output.with_suffix(".new")
                beside.write_text(json.dumps(figures, indent=2) + "\n")
                beside.replace(options.output)
        has_failed = has_failed or bool(failed)
    print(json.dumps(figures, indent=2))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
