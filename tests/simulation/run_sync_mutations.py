"""Takes out each sync of `log/` and `offline/` and each check that recovery trusts, moves each rename, and notes what
quick simulation misses it.

Run: PYTHONPATH=tests python -m simulation.run_sync_mutations --out tests/simulation/sync_mutations.json
It takes some minutes; `--only TEXT` does the mutations with that in their name, the others stay as they are noted.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import engine.log.test_parting as parting
import engine.log.test_scrub as scrubs
import simulation.test_compaction as compaction
import simulation.test_head_truncation as heads
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.resync import Gap, RowOrder, Sound
from magicbyte.engine.log.live import loading, partition_log, segment
from magicbyte.engine.records.scan import scan
from simulation import damaged_starts, mutations, recorded
from simulation.aimed import AIMED
from simulation.mutations import CHECK, RENAMES, SYNCS, Change, mutated
from simulation.recorded import RECORDED

if TYPE_CHECKING:
    from magicbyte.engine.log.live.loading import Loaded
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.engine.records.layout import Dialect

NOTED = Path(__file__).with_name("sync_mutations.json")
QUICK: dict[str, Callable[[], None]] = {
    **AIMED,
    **{name: functools.partial(recorded.run, name) for name in RECORDED},
    "damaged_starts": lambda: [start() for _, start in damaged_starts.simulations()],
    "parting": parting.test_storage_check_9_a_crash_at_any_step_leaves_it_whole_or_in_parts_that_are,
    "repair": scrubs.test_a_crash_within_a_repair_leaves_the_damaged_log_or_the_repaired_one,
    "compaction_at_every_operation": functools.partial(
        compaction.test_after_a_cut_at_any_operation_no_record_is_lost_changed_or_twice_there, 0
    ),
    "tombstones": compaction.test_no_cut_brings_back_what_a_tombstone_deleted_that_goes_with_its_whole_segment,
    "enriched_heads": functools.partial(
        heads.test_enriched_14_a_crash_at_any_step_leaves_the_old_head_or_the_new_one, "enriched", 38
    ),
}
"""What `./test` runs: each must fail of some mutation, and none without one."""
BROKEN = (AssertionError, MagicbyteError, OSError)
"""What a simulation raises that sees a promise broken: of a log that is not as it must be, or that cannot be opened."""
FIRST = {
    "checkpoints.": ("damaged_starts",),
    "index": ("damaged_starts",),
    "producer_snapshot.": ("damaged_starts",),
    "an index": ("damaged_starts",),
    "a copy": ("damaged_starts",),
    "the CRC": ("damaged_starts",),
    "the mark": ("a_first_start_and_a_first_record",),
    "filesystem.Local": ("a_small_file_that_is_replaced",),
    "filesystem.sync_directory": ("a_small_file_that_is_replaced",),
    "filesystem.make_directory": ("a_log_directory_that_is_written",),
    "filesystem.put_file": ("retention_of_old_segments", "enriched_heads", "truncation_behind_several_segments"),
    "loading.finish_swaps": ("parting", "compaction_of_several_segments_into_one"),
    "loading._finish_deletions": ("a_start_that_finishes_a_deletion",),
    "loading._": ("recovery_of_a_log_with_damage_inside",),
    "loading.load": ("indexes_that_a_recovery_made", "damaged_starts"),
    "loading._set": ("damaged_starts",),
    "loading._check": ("damaged_starts",),
    "loading._Opening": ("damaged_starts",),
    "segment_indexes.LiveIndexes.open": ("damaged_starts",),
    "segment.Segment._load": ("damaged_starts",),
    "loading.move_to_quarantine": ("a_start_that_puts_damaged_files_aside",),
    "log_directory.LogDirectory._load": ("a_start_behind_a_truncation_within_a_batch",),
    "log_directory": ("a_first_start_and_a_first_record", "a_partition_that_is_deleted_and_made_again"),
    "open_files.OpenFiles.": ("appends_and_flushes_with_few_descriptors",),
    "convert.": ("a_conversion_and_one_in_parts",),
    "copies.": ("copies_of_a_log_directory",),
    "filesystem.clone_file": ("copies_of_a_log_directory",),
    "materialize": ("what_a_pipeline_left_in_a_store",),
    "outputs": ("whole_outputs", "directories_of_a_kraft_node"),
    "retain": ("a_retention",),
    "writer": ("a_log_directory_that_is_written", "a_conversion_and_one_in_parts"),
    "parting": ("parting",),
    "partition_log.PartitionLog.replace": (
        "compaction_that_leaves_no_transaction_index", "a_head_that_is_cut_off_twice", "enriched_heads", "tombstones",
        "compaction_of_several_segments_into_one",
    ),
    "producers.LogProducers.put_snapshot": ("a_close_and_a_new_start",),
    "partition_log.PartitionLog.close": ("a_close_of_a_log_with_an_aborted_transaction", "a_close_and_a_new_start"),
    "partition_log.PartitionLog.open": (
        "recovery_of_a_log_with_damage_inside", "a_start_behind_a_truncation_within_a_batch",
    ),
    "partition_log.PartitionLog.roll": ("appends_rolls_and_flushes",),
    "partition_log.PartitionLog._end_at": ("truncation_of_a_whole_log", "truncation_behind_several_segments"),
    "deleted.delete_now": ("truncation_behind_several_segments",),
    "segment.Segment.truncate_to": ("truncation_behind_several_segments",),
    "segment_names.SegmentNames.rename": ("a_retention_of_a_segment_whose_latest_record_is_its_first",),
    "segment": ("appends_rolls_and_flushes", "retention_of_old_segments"),
}  # fmt: skip
"""Where a mutation of these is found most likely."""
CANNOT_BE_MISSED = {
    "loading.finish_swaps: files.rename(f'{path}{SWAP}', path) [loop reversed]": (
        "from the last to the first does as well: those that are still called `.swap` have no other log between them"
    ),
    "index_file.IndexFile._used: if size > SMALL_FILE_LIMIT: [taken out]": (
        "it bounds memory: tests/engine/log/test_damaged_directories.py starts with indexes of a tebibyte"
    ),
}
"""Mutations that change nothing that has to hold, and why."""
CHANGES: dict[str, Change] = {
    "taken out": mutations.taken_out,
    "loop reversed": mutations.order_reversed,
    "behind the next": mutations.moved_behind_the_next,
    "before the last": mutations.moved_before_the_last,
}


CHECKED = (
    "checkpoints.parse_offset_checkpoint",
    "checkpoints.parse_leader_epochs",
    "checkpoints.parse_clean_shutdown",
    "checkpoints.parse_meta_properties",
    "checkpoints._checkpoint_lines",
    "checkpoints._two_lines",
    "checkpoints._integer",
    "index_file.IndexFile._used",
    "index_file.IndexFile.verify",
    "indexes.TransactionIndex.parse",
    "indexes.TransactionIndex._verify",
    "loading.load",
    "loading._quarantine_non_files",
    "loading._check_end",
    "loading._Opening._opened",
    "loading._Opening._cut",
    "producer_snapshot.ProducerSnapshot.parse",
    "segment_indexes.LiveIndexes.open",
    "segment.Segment._load_largest",
    "segment.Segment._verify_last_entries",
    "segment.Segment.verify_aborted",
)
"""Checks of a file before the opening of a log trusts it."""
Mutation = Callable[[], AbstractContextManager[object]]


@functools.cache
def cases() -> dict[str, Mutation]:
    """Return each site with each change that it can have."""
    found = [(site, "taken out") for site in mutations.sites(*SYNCS)]
    for site in mutations.sites(*RENAMES):
        if ", now)" not in site.text:  # else it is `PartitionLog.replace` that is called
            found += [(site, name) for name in CHANGES if mutations.applies(site, name)]
    modules = {each.partition(".")[0] for each in CHECKED}
    checks = [each for each in mutations.sites(CHECK, modules=modules) if f"{each.module}.{each.function}" in CHECKED]
    found += [(site, "taken out") for site in checks]
    named = {f"{site.name} [{name}]": functools.partial(mutated, site, CHANGES[name]) for site, name in found}
    return {**named, **BELIEVED}


def _every_entry(file: ReadableFile, _limits: Limits, dialect: Dialect) -> Iterator[Sound | Gap]:
    """What `sound_beginning` does, by the headers of entries alone."""
    data = memoryview(file.read_at(0, file.size))
    table = scan(data, dialect=dialect)
    if table.end:
        yield Sound(0, data[: table.end], len(table), 0, 0, RowOrder.MAIN, 0, True)
    if table.end < file.size:
        yield Gap(table.end, file.size, CorruptRecordError("entry", expected="one", found="none"), 0)


def _opened_as_if_closed(*arguments: Any, **named: Any) -> Loaded:
    return loading.load(*arguments, **{**named, "clean": True})


BELIEVED: dict[str, Mutation] = {
    "the CRC of each entry that is recovered [unchecked]": functools.partial(
        patch.object, segment, "sound_beginning", _every_entry
    ),
    "the mark of a clean shutdown [unchecked]": functools.partial(
        patch.object, partition_log, "load", _opened_as_if_closed
    ),
    "an index that names what its log does not have [unchecked]": functools.partial(
        patch.object, segment.Segment, "names_more_than_there_is", lambda *_: False
    ),
    "a copy in the quarantine [taken for the same]": functools.partial(
        patch.object, loading, "_is_copy", lambda *_: True
    ),
}
"""Checks that are no statement of their own."""


def found_by(name: str, mutation: Mutation) -> str | None:
    """Return the quick simulation that sees a promise broken by a change, None if there is none.

    Raises what else a simulation ends with: then the changed code does not work at all, which shows nothing.
    """
    order = [each for prefix, names in FIRST.items() if name.startswith(prefix) for each in names]
    for each in dict.fromkeys([*order, *QUICK]):
        with mutation():
            try:
                QUICK[each]()
            except BROKEN:
                return each
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=NOTED)
    chosen = parser.parse_args()
    noted: dict[str, str | None] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    wanted = cases()
    for name, mutation in wanted.items():
        if chosen.only in name and name not in CANNOT_BE_MISSED:
            noted[name] = found_by(name, mutation)
            print(f"{name}: {noted[name]}", flush=True)
            known = {name: each for name, each in sorted(noted.items()) if name in wanted}
            chosen.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
