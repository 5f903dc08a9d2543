"""Runs many histories of a whole cluster and writes what happened in them.

Run: PYTHONPATH=tests python -m simulation.run_cluster_histories --seeds 0-99 -o tests/simulation/cluster_figures.json
A history that fails is printed with its seed, and runs the same way again: `--seeds 7-7 --verbose` prints its faults
and what its brokers log, by virtual time.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from magicbyte.testing.loop import current_process
from simulation.cluster_faults import FORMATS, ClusterUnderFaults
from simulation.cluster_histories import History

H = TypeVar("H", bound=ClusterUnderFaults)


class ByVirtualTime(logging.Handler):
    """Prints log records with the virtual time and the process that logs."""

    def __init__(self, history: ClusterUnderFaults) -> None:
        super().__init__(logging.INFO)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        name = "" if process is None else process.name
        print(f"{self._history.world.virtual_s:9.3f} {name:12} {record.getMessage()}", file=sys.stderr)


def ran(
    make: Callable[[int], H], seeds: Iterable[int], failed: dict[int, str], *, seconds: float, verbose: bool
) -> Iterator[H]:
    """Run the history of each seed, and yield it behind that. What is wrong goes into `failed` and to stderr.

    None begins after `seconds` of CPU. `verbose`: what its brokers log goes to stderr, too.
    """
    begun, logger = time.process_time(), logging.getLogger("magicbyte")
    logger.addHandler(logging.NullHandler())
    for seed in seeds:
        if time.process_time() - begun > seconds:
            return
        history = make(seed)
        printer = ByVirtualTime(history)
        if verbose:
            logger.addHandler(printer)
            logger.setLevel(logging.INFO)
        try:
            history.run()
        except Exception as error:  # noqa: BLE001 (whatever it is, the seed is told)
            failed[seed] = f"{type(error).__name__}: {error}"
            print(f"seed {seed}, protocol {history.protocol}: {failed[seed]}", file=sys.stderr, flush=True)
        logger.removeHandler(printer)
        yield history


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="first and last, such as 0-99")
    parser.add_argument("--sends", type=int, default=200, help="records that are sent in each")
    parser.add_argument("--protocol", choices=FORMATS, help="of all, instead of one from the seed")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further history after so many")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of figures")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    faults, failed, count = Counter[str](), dict[int, str](), 0
    virtual_s, operations, acknowledged, begun = 0.0, 0, 0, time.process_time()
    seeds, make = range(first, last + 1), partial(History, sends=options.sends, protocol=options.protocol)
    for history in ran(make, seeds, failed, seconds=options.seconds, verbose=options.verbose):
        faults += history.faults
        virtual_s, count = virtual_s + history.world.virtual_s, count + 1
        operations, acknowledged = operations + len(history.recorder.history), acknowledged + len(history.acknowledged)
    cpu_s = time.process_time() - begun
    figures = {
        "histories": count,
        "firstSeed": first,
        "protocol": options.protocol,
        "operations": operations,
        "acknowledgedRecords": acknowledged,
        "faults": sum(faults.values()),
        "faultsByState": dict(sorted(faults.items())),
        "virtualSeconds": round(virtual_s),
        "failed": {str(seed): why[:500] for seed, why in failed.items()},
    }
    if options.output is not None:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    print(
        f"{virtual_s / cpu_s:,.0f} virtual seconds per CPU second, {3600 * count / cpu_s:,.0f} histories per core hour"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
