"""Runs many histories of a whole cluster and writes what happened in them.

Run: PYTHONPATH=tests python -m simulation.run_cluster_histories --more 1000 -o tests/simulation/cluster_figures.json
adds a thousand histories to the file, whose seeds follow on those that are in it, and says with which commit they ran.
A history that fails is printed with its seed, and runs the same way again: `--seeds 7-7 --verbose` prints its faults
and what its brokers log, by virtual time. `--again` runs those that failed, with the settings of their runs: a
seed that is sound now is recorded in `mended`.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
    """Run the history of each seed, and yield it then. Failures go into `failed` and to stderr.

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
        except Exception as error:  # noqa: BLE001 (whatever it is, the seed is reported)
            failed[seed] = f"{type(error).__name__}: {error}"
            print(f"seed {seed}, protocol {history.protocol}: {failed[seed]}", file=sys.stderr, flush=True)
        logger.removeHandler(printer)
        yield history


class Figures:
    """What is recorded of histories: sums over all of them, and a line for each run. `path`: the file, if any."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.faults = Counter[str](found.pop("faultsByState", {}))
        self.runs: list[dict[str, Any]] = found.pop("runs", [])
        self.failed: dict[str, str] = found.pop("failed", {})
        self.mended: dict[str, dict[str, str]] = found.pop("mended", {})
        self._sums = Counter[str]({name: found[name] for name in _SUMS if name in found})
        self._least = {name: found[name] for name in _LEAST if name in found}

    @property
    def next_seed(self) -> int:
        """The seed behind all that were run."""
        return 1 + max((each["lastSeed"] for each in self.runs), default=-1)

    def begin(self, first_seed: int, last_seed: int, **settings: Any) -> None:
        """Begin a run. Raises ValueError where seeds are in the figures already."""
        for each in self.runs:
            if each["firstSeed"] <= last_seed and first_seed <= each["lastSeed"]:
                raise ValueError(f"seeds {each['firstSeed']}-{each['lastSeed']} are recorded already")
        run = {
            "commit": running_commit(),
            "firstSeed": first_seed,
            "lastSeed": first_seed - 1,
            **settings,
            "cpuSeconds": 0.0,
        }
        self.runs.append(run)

    def add(self, history: ClusterUnderFaults, cpu_s: float) -> None:
        """Take in the next history of the run, whether it failed or not."""
        operations, faults = len(history.recorder.history), sum(history.faults.values())
        self.faults += history.faults
        self._sums.update(
            histories=1, operations=operations, acknowledgedRecords=len(history.acknowledged), faults=faults,
            virtualMs=round(history.world.virtual_s * 1000),
        )  # fmt: skip
        for name, value in zip(_LEAST, (operations, faults), strict=True):
            self._least[name] = min(self._least.get(name, value), value)
        run = self.runs[-1]
        run["lastSeed"] += 1
        run["cpuSeconds"] = round(run["cpuSeconds"] + cpu_s, 2)

    def run_of(self, seed: int) -> dict[str, Any]:
        """Return the run that a seed was in."""
        return next(each for each in self.runs if each["firstSeed"] <= seed <= each["lastSeed"])

    def mend(self, seed: int) -> None:
        """Note that a history which failed is sound now."""
        self.mended[str(seed)] = {"failed": self.failed.pop(str(seed)), "soundWith": running_commit()}

    def to_json(self) -> dict[str, Any]:
        """Return what the file holds."""
        cpu_s = sum(each["cpuSeconds"] for each in self.runs) or 1.0
        return {
            **{name: self._sums[name] for name in _SUMS},
            **self._least,
            "historiesPerCoreHour": round(3600 * self._sums["histories"] / cpu_s),
            "virtualSecondsPerCpuSecond": round(self._sums["virtualMs"] / 1000 / cpu_s),
            "faultsByState": dict(sorted(self.faults.items())),
            "runs": self.runs,
            "failed": self.failed,
            "mended": self.mended,
        }

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self._path is not None:
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(self.to_json(), indent=2) + "\n")
            beside.replace(self._path)


_SUMS = ("histories", "operations", "acknowledgedRecords", "faults", "virtualMs")
_LEAST = ("leastOperations", "leastFaults")
_SAVED_EVERY = 50  # histories


def running_commit() -> str:
    """Return the commit that runs; a plus stands for changes that are in none."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", help="first and last, such as 0-99")
    parser.add_argument("--more", type=int, default=100, help="without --seeds: so many after those in the file")
    parser.add_argument("--sends", type=int, default=200, help="records that are sent in each, at least")
    parser.add_argument("--protocol", choices=FORMATS, help="of all, instead of one from the seed")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further history after so many")
    parser.add_argument("--again", action="store_true", help="run those of the file that failed, and no others")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of figures, to which these are added")
    options = parser.parse_args()
    figures, failed = Figures(options.output), dict[int, str]()
    if options.again:
        for seed in map(int, list(figures.failed)):
            run = figures.run_of(seed)
            one = partial(History, sends=run["sends"], protocol=run["protocol"])
            list(ran(one, [seed], failed, seconds=options.seconds, verbose=options.verbose))
            if seed not in failed:
                figures.mend(seed)
        figures.save()
        return 1 if failed else 0
    if options.seeds is None:
        first, last = figures.next_seed, figures.next_seed + options.more - 1
    else:
        first, last = map(int, options.seeds.split("-"))
    figures.begin(first, last, sends=options.sends, protocol=options.protocol)
    seeds, make = range(first, last + 1), partial(History, sends=options.sends, protocol=options.protocol)
    begun = time.process_time()
    for history in ran(make, seeds, failed, seconds=options.seconds, verbose=options.verbose):
        now = time.process_time()
        figures.add(history, now - begun)
        begun = now
        figures.failed.update({str(seed): why[:500] for seed, why in failed.items()})
        if history.seed % _SAVED_EVERY == 0:
            figures.save()
    figures.save()
    print(json.dumps(figures.to_json(), indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
