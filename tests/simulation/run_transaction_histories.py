"""Runs many histories of transactions and adds what happened in them to a file of figures.

Run: PYTHONPATH=tests python -m simulation.run_transaction_histories --seeds 0-99 -o transaction_figures.json
A history that fails is printed with its seed, and runs the same way again: `--seeds 7-7 --verbose` prints its faults
and what its brokers log, by virtual time. Faults are counted by the states of the transactions that the broker
coordinated: `Ongoing to PrepareCommit` is a decision that is being stored.

The file grows over runs, each with its seeds and its commit; it is written after every `TOGETHER` histories. `--again`
runs those of the file that failed: a seed that is sound now is recorded in `mended`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from simulation.group_histories import GroupHistory
from simulation.run_cluster_histories import ran
from simulation.transaction_histories import TransactionHistory

TOGETHER: Final = 10
"""Histories whose figures are written together."""
TRANSACTIONS, OPERATIONS = 25, 300
"""The least of each history. Longer ones cost more and find less in the same time."""

Figures = dict[str, Any]


def figures_of(histories: Sequence[TransactionHistory], failed: dict[int, str], cpu_s: float) -> Figures:
    """Return what happened in some histories."""
    faults, outcomes = Counter[str](), Counter[str]()
    for each in histories:
        faults += each.faults
        outcomes += each.outcomes
    sizes = [len(each.recorder.history) for each in histories]
    return {
        "histories": len(sizes),
        "operations": sum(sizes),
        "leastOperations": min(sizes),
        "historiesOf300": sum(size >= 300 for size in sizes),
        "transactions": dict(sorted(outcomes.items())),
        "faults": sum(len(each.events) for each in histories),
        "faultsByState": dict(sorted(faults.items())),
        "virtualSeconds": round(sum(each.world.virtual_s for each in histories)),
        "cpuSeconds": round(cpu_s),
        "failed": {str(seed): why[:500] for seed, why in failed.items()},
    }


def joined(figures: Figures, more: Figures, commit: str, seeds: range) -> Figures:
    """Return figures with those of further histories, which ran at a commit. Neither is changed."""
    if not figures:
        return {**more, "mended": {}, "runs": [{"commit": commit, "seeds": f"{seeds[0]}-{seeds[-1]}"}]}
    found = {
        name: _sum(value, more[name]) for name, value in figures.items() if name in more and name != "leastOperations"
    }
    found["leastOperations"] = min(figures["leastOperations"], more["leastOperations"])
    runs = [dict(each) for each in figures["runs"]]
    for each in runs:
        first, last = each["seeds"].split("-")
        if each["commit"] == commit and int(last) + 1 == seeds[0]:
            each["seeds"] = f"{first}-{seeds[-1]}"
            break
    else:
        runs.append({"commit": commit, "seeds": f"{seeds[0]}-{seeds[-1]}"})
    return {**{name: found.get(name) for name in more}, "mended": figures.get("mended", {}), "runs": runs}


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        names = sorted({*one, *other})
        return {
            name: one.get(name, 0) + other.get(name, 0) if isinstance(one.get(name, other.get(name)), int) else
            one.get(name, other.get(name))
            for name in names
        }  # fmt: skip
    return one + other


def add(path: Path, kind: str, more: Figures, commit: str, seeds: range) -> None:
    """Add figures of one kind of histories to a file, which several runs may do at once.

    Raises ValueError where seeds are in the figures already.
    """
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = json.loads(file.read() or "{}")
        for run in found.get(kind, {}).get("runs", []):
            first, last = map(int, run["seeds"].split("-"))
            if first <= seeds[-1] and seeds[0] <= last:
                raise ValueError(f"{kind}: seeds {run['seeds']} are recorded already")
        found[kind] = joined(found.get(kind, {}), more, commit, seeds)
        file.truncate(0)
        file.write(json.dumps(dict(sorted(found.items())), indent=2) + "\n")


def mend(path: Path, kind: str, make: Callable[[int], TransactionHistory], commit: str, *, verbose: bool) -> int:
    """Run the histories of one kind that failed; return how many fail still."""
    found, failed = json.loads(path.read_text()), dict[int, str]()
    for seed in map(int, list(found[kind]["failed"])):
        list(ran(make, [seed], failed, seconds=1e9, verbose=verbose))
        if seed not in failed:
            why = found[kind]["failed"].pop(str(seed))
            found[kind].setdefault("mended", {})[str(seed)] = {"failed": why, "soundWith": commit}
    path.write_text(json.dumps(found, indent=2) + "\n")
    return len(failed)


def commit_of(folder: Path) -> str:
    """Return the commit that is checked out, with a `+` where files are changed."""
    asked = ["git", "describe", "--always", "--dirty=+"]
    return subprocess.run(asked, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Run the histories; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="first and last, such as 0-99")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS, help="at least, in each history")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of clients, at least, in each history")
    parser.add_argument("--transaction-protocol", type=int, choices=(1, 2), default=1)
    parser.add_argument("--groups", action="store_true", help="of transformers that are members of a group (KIP-447)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="in the cluster")
    parser.add_argument("--seconds", type=float, default=1e9, help="of CPU, after which no further history is begun")
    parser.add_argument("--again", action="store_true", help="run those of the file that failed, and no others")
    parser.add_argument("--verbose", action="store_true", help="print faults and what brokers log")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file to add the figures to")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    commit, failed, total, begun = commit_of(Path(__file__).parent), dict[int, str](), Figures(), time.process_time()
    make = partial(
        GroupHistory if options.groups else TransactionHistory,
        transactions=options.transactions,
        operations=options.operations,
        transaction_protocol=options.transaction_protocol,
        brokers=options.brokers,
    )
    kinds = [f"protocol {options.transaction_protocol}"]
    kinds += ["groups"] * options.groups + ["one broker"] * (options.brokers == 1)
    kind = ", ".join(kinds)
    if options.again:
        return min(mend(options.output, kind, make, commit, verbose=options.verbose), 1)
    histories = ran(make, range(first, last + 1), failed, seconds=options.seconds, verbose=options.verbose)
    while True:
        cpu_s, known = time.process_time(), set(failed)
        found = list(islice(histories, TOGETHER))
        if not found:
            break
        seeds = range(first, first + len(found))
        first += len(found)
        wrong = {seed: why for seed, why in failed.items() if seed not in known}
        figures = figures_of(found, wrong, time.process_time() - cpu_s)
        total = joined(total, figures, commit, seeds)
        if options.output is not None:
            add(options.output, kind, figures, commit, seeds)
    print(json.dumps(total, indent=2))
    print(f"{time.process_time() - begun:.0f} s of CPU", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
