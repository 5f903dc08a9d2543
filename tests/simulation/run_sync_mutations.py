"""Takes each sync of `log/` out, and each rename out of its order, and notes which quick simulation misses it.

Run: PYTHONPATH=tests python -m simulation.run_sync_mutations --out tests/simulation/sync_mutations.json
It takes some ten minutes; `--only TEXT` does the sites with that in their name, the others stay as they are noted.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import log.test_parting as parting
import simulation.test_compaction as compaction
import simulation.test_head_truncation as heads
from simulation import mutations
from simulation.aimed import AIMED
from simulation.mutations import SYNCS, Change, Site, mutated

NOTED = Path(__file__).with_name("sync_mutations.json")
QUICK: dict[str, Callable[[], None]] = {
    **AIMED,
    "parting": parting.test_storage_check_9_a_crash_at_any_step_leaves_it_whole_or_in_parts_that_are,
    "compaction_at_every_operation": functools.partial(
        compaction.test_after_a_cut_at_any_operation_no_record_is_lost_changed_or_twice_there, 0
    ),
    "tombstones": compaction.test_no_cut_brings_back_what_a_tombstone_deleted_that_goes_with_its_whole_segment,
    "enriched_heads": functools.partial(
        heads.test_enriched_14_a_crash_at_any_step_leaves_the_old_head_or_the_new_one, "enriched", 38
    ),
}
"""What `./test` runs: each must fail of some mutation, and none without one."""
FIRST = {
    "loading.finish_swaps": ("parting", "compaction_of_several_segments_into_one"),
    "loading._": ("recovery_of_a_log_with_damage_inside",),
    "loading.load": ("recovery_of_a_log_with_damage_inside",),
    "parting": ("parting",),
    "log_directory": ("a_first_start_and_a_first_record", "a_partition_that_is_deleted_and_made_again"),
    "partition_log.PartitionLog.replace": ("enriched_heads", "tombstones", "compaction_of_several_segments_into_one"),
    "partition_log.PartitionLog._put_snapshot": ("a_close_and_a_new_start",),
    "partition_log.PartitionLog.close": ("a_close_and_a_new_start",),
    "partition_log.PartitionLog.open": ("a_first_start_and_a_first_record",),
    "partition_log.PartitionLog._roll": ("appends_rolls_and_flushes",),
    "partition_log.PartitionLog._end_at": ("truncation_of_a_whole_log", "truncation_behind_several_segments"),
    "partition_log.PartitionLog._delete_now": ("truncation_behind_several_segments",),
    "segment.Segment.truncate_to": ("truncation_behind_several_segments",),
    "segment": ("appends_rolls_and_flushes", "retention_of_old_segments"),
}
"""Where a mutation of these is found most likely."""
ELSEWHERE = ("materialize", "outputs", "writer", "retain", "convert", "store")
"""Modules that write to the file system of this machine alone: no simulated disk is below them."""
CHANGES: dict[str, Change] = {
    "taken out": mutations.taken_out,
    "loop reversed": mutations.order_reversed,
    "behind the next": mutations.moved_behind_the_next,
    "before the last": mutations.moved_before_the_last,
}


def cases() -> list[tuple[Site, str]]:
    """Return each site with each change that it can have."""
    found = [(site, "taken out") for site in mutations.sites(*SYNCS)]
    for site in mutations.sites("rename"):
        found += [(site, name) for name in CHANGES if mutations.applies(site, name)]
    return [
        (site, name)
        for site, name in found
        if site.module not in ELSEWHERE and not (site.module == "files" and site.function != "put_file")
    ]


def found_by(site: Site, change: str) -> tuple[str | None, int]:
    """Return the quick simulation that fails of a change, and how many of them came to it without failing."""
    order = [name for prefix, names in FIRST.items() if site.name.startswith(prefix) for name in names]
    came = 0
    for name in dict.fromkeys([*order, *QUICK]):
        calls = [0]
        with mutated(site, CHANGES[change], functools.partial(_count, calls)):
            try:
                QUICK[name]()
            except Exception:  # noqa: BLE001 - of whatever kind: the test fails
                return name, came
        came += bool(calls[0])
    return None, came


def _count(calls: list[int]) -> None:
    calls[0] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=NOTED)
    chosen = parser.parse_args()
    noted: dict[str, Any] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    wanted = cases()
    for site, change in wanted:
        key = f"{site.name} [{change}]"
        if chosen.only not in key or (not chosen.only and key in noted):
            continue
        simulation, came = found_by(site, change)
        noted[key] = {"foundBy": simulation} if simulation else {"foundBy": None, "reachedBy": came, "reason": ""}
        print(f"{key}: {simulation}", flush=True)
        known = {f"{site.name} [{change}]" for site, change in wanted}
        chosen.out.write_text(json.dumps({k: v for k, v in sorted(noted.items()) if k in known}, indent=1) + "\n")


if __name__ == "__main__":
    main()
