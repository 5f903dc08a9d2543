"""Explores the model of replication completely, plan by plan, and writes what was found to a file of figures.

Run: PYTHONPATH=tests python -m simulation.run_exhaustive --out tests/simulation/exhaustive_figures.json
It runs the plans that the file does not have yet; `--again` runs all. A plan with more than `--states` states is not
recorded. It prints the trace to each broken promise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from engine.replication import planted
from magicbyte.engine.replication import election
from magicbyte.engine.replication.state import PartitionState
from simulation.exploration import Exploration, explore
from simulation.replication_model import FAULTS, PROTOCOLS, Flush, Settings, Travel


class Plan(NamedTuple):
    """What to explore: all orders with up to `count` of the faults `kinds`.

    `strict`: whatever is in sync must have every committed record; else only leaders must.
    """

    protocol: str
    records: int
    count: int
    kinds: tuple[str, ...] = FAULTS
    travel: Travel = Travel.NONE
    flush: Flush = Flush.NEVER
    loses_power: bool = False
    strict: bool = True

    def run(self, most_states: int = 1 << 60) -> Exploration:
        """Explore it."""
        protocol, kinds = PROTOCOLS[self.protocol], frozenset(self.kinds)
        settings = Settings(protocol, self.flush, self.loses_power, self.travel, self.records, kinds)
        return explore(settings, self.count, strict=self.strict, most_states=most_states)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as it is recorded."""
        return {
            "protocol": self.protocol,
            "records": self.records,
            "faults": self.count,
            "kindsOfFaults": sorted(self.kinds),
            "messagesThatTakeTime": self.travel.value,
            "sync": self.flush.value,
            "losesPower": self.loses_power,
        }


_POWER: Final = ("crash", "fail_power")
SOUND: Final = {
    "two records": Plan("2.8", 2, 1),
    "two records, followers ask for epochs": Plan("2.6", 2, 1),
    "one record, answers take time": Plan("2.8", 1, 1, travel=Travel.ANSWERS),
    "one record, requests take time": Plan("2.8", 1, 1, ("crash",), Travel.REQUESTS),
    "one record, two crashes": Plan("2.8", 1, 2, ("crash",)),
    "one record, in-sync replicas written late": Plan("2.8", 1, 2, ("be_late", "lose_tree")),
    "one record, group commit, power failures": Plan("2.8", 1, 1, _POWER, flush=Flush.ALL, loses_power=True),
}
"""Plans in which every promise holds."""
KNOWN_LOSSES: Final = {
    "truncation to the high watermark (KIP-101)": Plan("0.10.2", 1, 2, ("crash",), strict=False),
    "the power of all brokers fails, nothing is synced": Plan("2.8", 1, 1, _POWER, loses_power=True, strict=False),
    "the power of all brokers fails, leaders sync alone": Plan(
        "2.8", 1, 1, _POWER, flush=Flush.LEADER, loses_power=True, strict=False
    ),
}
"""Plans that show a loss, where less is promised."""
PLANTED: Final = {
    "high_watermark_without_followers": Plan("2.6", 1, 0),
    "high_watermark_of_a_majority": Plan("2.6", 1, 0),
    "offset_of_the_answer_is_acknowledged": Plan("2.6", 2, 0),
    "high_watermark_of_an_unwritten_shrink": Plan("2.6", 1, 1),
    "high_watermark_without_pending": Plan("2.6", 1, 1),
    "high_watermark_falls": Plan("2.6", 1, 1),
    "followers_begin_at_the_end": Plan("2.6", 1, 1),
    "followers_of_a_later_epoch_begin_at_the_end": Plan("2.6", 1, 1),
    "leader_is_late_itself": Plan("2.6", 1, 1),
    "expansion_at_any_offset": Plan("2.6", 2, 1, ("be_late",)),
    "failure_means_written": Plan("2.6", 1, 2, ("be_late", "lose_tree")),
    "truncation_at_the_high_watermark": Plan("2.6", 1, 2, ("crash",)),
    "truncation_of_everything": Plan("2.6", 1, 2, ("crash", "lose_session")),
    "truncation_a_record_too_late": Plan("2.6", 2, 1, ("lose_session",)),
    "no_truncation": Plan("2.6", 2, 1, ("lose_session",)),
    "fetches_before_it_cuts": Plan("2.6", 2, 1, ("lose_session",)),
    "divergence_is_ignored": Plan("2.8", 2, 1, ("lose_session",)),
    "last_epoch_is_the_leaders": Plan("2.8", 2, 1, ("lose_session",)),
    "any_replica_that_lives_is_elected": Plan("2.8", 1, 2, ("be_late", "crash")),
}
"""Plans that find planted bugs, by name: of `engine/replication/planted.py`, and those of `MORE`."""


def any_replica_that_lives_is_elected(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], epoch: int, *, unclean: bool
) -> PartitionState | None:
    """Elect the first live replica, in sync or not."""
    return planted.OFFLINE(replace(state, isr=()), replicas, live, epoch, unclean=True)


MORE: Final = (planted.Planted(election, "offline", any_replica_that_lives_is_elected),)


def find(name: str) -> Exploration:
    """Plant a bug, and explore its plan."""
    (bug,) = (each for each in (*planted.PLANTED, *MORE) if str(each) == name)
    with planted.in_place(bug):
        return PLANTED[name].run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=2_000_000, help="of a plan at most")
    parser.add_argument("--again", action="store_true", help="run plans that are recorded, too")
    parser.add_argument("--only", help="plans whose names contain this")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    recorded: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    groups: dict[str, dict[str, tuple[Plan, Callable[[], Exploration]]]] = {
        "sound": {name: (plan, lambda plan=plan: plan.run(options.states)) for name, plan in SOUND.items()},
        "knownLosses": {
            name: (plan, lambda plan=plan: plan.run(options.states)) for name, plan in KNOWN_LOSSES.items()
        },
        "plantedBugs": {name: (plan, lambda name=name: find(name)) for name, plan in PLANTED.items()},
    }
    for group, plans in groups.items():
        figures = recorded.setdefault(group, {})
        for name, (plan, run) in plans.items():
            if (name in figures and not options.again) or (options.only or "") not in name:
                continue
            found = run()
            if not found.is_complete and not found.broken:
                print(f"{name}: not explored completely within {options.states} states", flush=True)
                continue
            figures[name] = plan.to_json() | found.to_json()
            options.out.write_text(json.dumps(recorded, indent=1) + "\n")
            print(name, json.dumps(figures[name], indent=1), flush=True)


if __name__ == "__main__":
    main()
