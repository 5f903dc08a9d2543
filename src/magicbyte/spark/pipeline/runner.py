"""Take partitions through their stages in a worker, with the functions that the commands call.

An error in one partition is recorded as its outcome; the other partitions continue.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.log.files.missing import NO_LOG, SEGMENT, CheckpointedOffsets, missing_of
from magicbyte.spark.pipeline import turns
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.shuffle import GroupPart, Job, Marks, groups_of, marks_of, plan
from magicbyte.spark.pipeline.sink import SinkPlace
from magicbyte.spark.pipeline.stages import (
    compact,
    compare,
    convert,
    copying,
    digest,
    inventory,
    mirror,
    records,
    resegment,
    retain,
    salvage,
    verify,
    writing,
)
from magicbyte.spark.pipeline.stages import filter as filter_
from magicbyte.spark.pipeline.stages.writing import WritePart, Written
from magicbyte.spark.pipeline.store_sink import StorePlace
from magicbyte.spark.pipeline.units import Unit, has_changed
from magicbyte.spark.pipeline.work import (
    SALVAGE,
    ChangedError,
    DamagedError,
    DifferentError,
    Json,
    TaskOutcome,
    Work,
    may_salvage,
)

if TYPE_CHECKING:
    from magicbyte.spark.pipeline.topics import ScratchPlace

T = TypeVar("T")


def run_units(units: Iterator[Unit], sums: Told) -> Iterator[Json]:
    """Process units, and yield the record of each. Runs in a worker."""
    from magicbyte.spark.workers import expect_bytes, settle

    for unit in units:
        expect_bytes(unit.size)
        found = run_unit(unit)
        add_to_accumulators(sums, unit, found)
        yield found
    settle()


def add_to_accumulators(told: Told, unit: Unit, found: Json) -> None:
    """Add a partition to the sums of its stages and of the run."""
    for name in [*stage_names(stage["do"] for stage in found["stages"]), ""]:
        if name in told:
            size, count = told[name]
            size.add(unit.size)
            count.add(1)


def stage_names(kinds: Iterable[str]) -> list[str]:
    """Return the names of stages. A repeated stage gets a number, as `inventory 2`."""
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind} {seen[kind]}")
    return names


def run_unit(unit: Unit) -> Json:
    """Take one partition through its stages, commit its outputs, and return its record."""
    result, output = _begin(unit)

    def do() -> Json:
        work, _ = _attempt(unit, output, result)
        return _committed(work, output, result)

    return _concluded(unit, output, result, do)


@dataclass(slots=True)
class Prepared:
    """A partition before a stage that many workers share. `stages`: this stage and those after it.

    `task`: the parts for the workers, or the job of a compaction; None if nothing is shared. A compaction has three
    steps: the workers copy the source, unless an earlier stage has rewritten it, create `marks`, and write the kept
    records. Of `retain` and `mirror` they share only the copy. `key`: signs the stored result of `continue_unit`.
    """

    work: Work
    place: AnyPlace | None
    said: Json
    stages: list[Stage]
    task: Task
    marks: Marks | None = None
    key: bytes = field(default_factory=secrets.token_bytes)


def prepare(unit: Unit, spread: frozenset[str]) -> Prepared | Json:
    """Take one partition up to the first stage in `spread`. Return its record if there is none.

    Many workers share these stages, in folders of the sink that all of them see.
    """
    result, output = _begin(unit)

    def do() -> Prepared:
        work, rest = _attempt(unit, output, result, before=spread)
        return _prepared(work, output, result, rest)

    return _concluded(unit, output, result, do)


def _prepared(work: Work, output: AnyPlace | None, result: Json, stages: list[Stage]) -> Prepared:
    stage = stages[0]
    task: Task
    if stage.do in _PARTS:
        task = _PARTS[stage.do](work, stage)
    elif not work.owned and len(work.log.segments) > 1:
        task = copying.parts(work)
    elif stage.do in ("retain", "mirror"):
        task = None  # the copy exists, and little work is left
    else:
        assert work.root is not None
        options = compact.options_of(work, stage)
        task = plan(compact.opened(work, options), options, work.root / "marks")
    result["seconds"] = time.monotonic() - result.pop("begun")
    return Prepared(work, output, result, stages, task)


def continue_unit(prepared: Prepared, spread: frozenset[str], done: int | str | list[Any]) -> Prepared | Json:
    """Finish the stage that the workers shared, and continue to the next shared stage or the end.

    `done`: the number of keys, a description of damage, or the results of the parts. If the worker dies, or for
    speculation, Spark calls it again with the same arguments: attempts take turns, and the first result counts. So the
    folder of a partition that ended without an output is kept until the driver has its record, and calls `abandon`.
    """
    root, output = prepared.work.root, prepared.place
    if root is None or output is None:
        return _finished(prepared, spread, done)
    if (record := output.committed()) is not None:
        return record
    try:
        with turns.exclusive(root):
            found: Prepared | Json | None = turns.stored_result(root, prepared.key)
            if found is None:
                found = _finished(prepared, spread, done)
                if isinstance(found, Prepared) or found["outcome"] != TaskOutcome.DONE:
                    turns.store_result(root, prepared.key, found)
            return found
    except (MagicbyteError, OSError) as error:  # another attempt has removed the folder: remove nothing
        result = prepared.said | {"begun": time.monotonic() - prepared.said["seconds"]}
        return output.committed() or _ended(result, TaskOutcome.FAILED, str(error))


def _finished(prepared: Prepared, spread: frozenset[str], done: int | str | list[Any]) -> Prepared | Json:
    """Do the work of `continue_unit`, as the only attempt in the folder."""
    if prepared.place is not None and (record := prepared.place.committed()) is not None:
        return record
    work, result, (stage, *rest) = prepared.work, prepared.said, prepared.stages
    result["begun"] = time.monotonic() - result["seconds"]  # the monotonic clocks of machines have different origins

    def do() -> Prepared | Json:
        if work.root is not None:
            work.begin_task()
        if isinstance(done, str):
            raise DamagedError(done)
        marks, parts = prepared.marks, None if isinstance(done, int) else done
        if stage.do not in _PARTS and parts is not None and marks is None:
            copying.join(work, parts)
            if stage.do == "compact":
                return _prepared(work, prepared.place, result, prepared.stages)
            parts = None
        if isinstance(prepared.task, Job) and isinstance(done, int):
            assert work.root is not None
            marks = marks_of(prepared.task, done)
            groups = groups_of(prepared.task, marks, work.root / "groups")
            if groups is None:
                marks = None
            elif groups:
                return replace(prepared, task=groups, marks=marks, key=secrets.token_bytes())
        _take(result, run_stage(work, stage, parts, marks))
        end = _end(rest, spread)
        _go(work, rest[:end], result)
        if end < len(rest):
            return _prepared(work, prepared.place, result, rest[end:])
        return _committed(work, prepared.place, result)

    return _concluded(work.unit, None, result, do)


def abandon(prepared: Prepared) -> None:
    """Delete the files of a partition that ended without an output in `continue_unit`."""
    if prepared.place is not None:
        prepared.place.give_up()


def _end(stages: Sequence[Stage], before: frozenset[str]) -> int:
    return next((at for at, stage in enumerate(stages) if stage.do in before), len(stages))


Task: TypeAlias = (
    "Job | list[WritePart] | list[compare.ComparePart] | list[records.TablePart] | list[verify.VerifyPart]"
    " | list[inventory.InventoryPart] | list[digest.DigestPart] | list[copying.CopyPart] | list[GroupPart] | None"
)

AnyPlace: TypeAlias = "SinkPlace | StorePlace | ScratchPlace"


class Sum(Protocol):
    """The interface of Spark's accumulators."""

    def add(self, term: int) -> None:
        """Add a term, in a worker. The driver sees it when the task is finished."""


Told = Mapping[str, tuple[Sum, Sum]]
"""Finished source bytes and partitions: for each stage, and under "" for the run."""


def _begin(unit: Unit) -> tuple[Json, AnyPlace | None]:
    place = _place(unit)
    said = {"unit": unit.name, "path": unit.partition.path, "bytes": unit.size, "stages": [], "error": None}
    return said | {"begun": time.monotonic()}, place


def _place(unit: Unit) -> AnyPlace | None:
    if unit.aim is not None:
        from magicbyte.spark.pipeline.topics import ScratchPlace

        return ScratchPlace()
    if unit.sink is None:
        return None
    if "://" in unit.sink:
        return StorePlace(unit.sink, unit.name, unit.fingerprint, unit.run, unit.scratch)
    return SinkPlace(unit.sink, unit.name, unit.fingerprint)


def _concluded(unit: Unit, output: AnyPlace | None, result: Json, do: Callable[[], T]) -> T | Json:
    """Return the result of `do`. On an error, return the partition's record with the outcome.

    `output`: its output is deleted on an error.
    """
    try:
        return do()
    except (MagicbyteError, OSError) as error:
        if output is not None:
            output.give_up()
        return _ended(result, _outcome_of(error, unit), str(error))


def _ended(said: Json, outcome: TaskOutcome, error: str | None = None) -> Json:
    said = dict(said)  # a copy: an output may still turn out to be invalid
    seconds = round(time.monotonic() - said.pop("begun"), 3)
    return {**said, "outcome": outcome.value, "error": error, "seconds": seconds}


def _committed(work: Work, place: AnyPlace | None, said: Json) -> Json:
    found = work.finish()
    told = {**_ended(said, TaskOutcome.DONE), **found}
    return told if place is None else place.commit(told)


def _outcome_of(error: Exception, unit: Unit) -> TaskOutcome:
    """Return the outcome for an error. If the input changed meanwhile, that is the outcome."""
    with contextlib.suppress(OSError):
        if isinstance(error, ChangedError) or has_changed(unit):
            return TaskOutcome.CHANGED
    if isinstance(error, (CorruptRecordError, DamagedError)):
        return TaskOutcome.DAMAGED
    return TaskOutcome.DIFFERENT if isinstance(error, DifferentError) else TaskOutcome.FAILED


def _attempt(
    unit: Unit, output: AnyPlace | None, result: Json, before: frozenset[str] = frozenset()
) -> tuple[Work, list[Stage]]:
    """Run the stages up to the first one in `before`. Return the work and the remaining stages.

    With `on-damage = "salvage"`, damage restarts the partition with a salvage stage before all others.
    """
    stages, salvages = list(unit.stages), may_salvage(unit)
    while True:
        work = Work(unit, None if output is None else output.begin(), unit.partition)
        end = _end(stages, before)
        try:
            work.fetch(stages)
            _go(work, stages[:end], result)
            _refuse_missing(unit, is_salvaged=any(stage.do == "salvage" for stage in stages))
            return work, stages[end:]
        except (CorruptRecordError, DamagedError) as error:
            if not salvages or output is None:  # salvage needs an output
                raise
            output.give_up()
            result["salvagedFor"], result["stages"] = str(error), []
            stages, salvages = [SALVAGE, *stages], False


def _refuse_missing(unit: Unit, *, is_salvaged: bool) -> None:
    """Raise DamagedError for a source that lacks segments, as far as names tell; if it is salvaged, that lacks all."""
    if unit.live is not None:
        return
    for missing in missing_of(unit.partition, CheckpointedOffsets(), None):
        if missing.what == NO_LOG or (missing.what == SEGMENT and missing.is_loss and not is_salvaged):
            raise DamagedError(f"missing: {missing}")


def _go(work: Work, stages: Iterable[Stage], said: Json) -> None:
    for stage in stages:
        _take(said, run_stage(work, stage))


def _take(said: Json, found: Json) -> None:
    """Add the record of a stage. Raises DamagedError if the stage found damage."""
    said["stages"].append(found)
    if damage := found.get("damage"):
        raise DamagedError(damage)


def run_stage(work: Work, stage: Stage, parts: list[Any] | None = None, marks: Marks | None = None) -> Json:
    """Run one stage. Return its record, with the workers' seconds and the bytes before and after it.

    `parts`, `marks`: results of other workers: parts of the stage, marks for a compaction.
    """
    begun, size = time.monotonic(), work.log.size
    if marks is not None:
        stage_result = compact.run(work, stage, marks, parts)
    elif parts is not None:
        stage_result = _JOINS[stage.do](work, stage, parts)
    else:
        stage_result = _STAGES[stage.do](work, stage)
    seconds = round(time.monotonic() - begun + stage_result.pop("workerSeconds", 0), 3)
    return {"do": stage.do, "seconds": seconds, "bytesIn": size, "bytesOut": work.log.size, **stage_result}


def do_part(part: Any) -> Any:
    """Run one part of a shared stage. Runs in a worker."""
    return _DOERS[type(part)](part)


_DOERS: dict[type, Callable[[Any], Any]] = {
    copying.CopyPart: copying.do,
    GroupPart: compact.do,
    WritePart: lambda part: writing.do(part, _WRITES[part.stage.do]),
    compare.ComparePart: compare.do,
    records.TablePart: records.do,
    verify.VerifyPart: verify.do,
    inventory.InventoryPart: inventory.do,
    digest.DigestPart: digest.do,
}
_WRITES: Mapping[str, Callable[[WritePart, Path], Written]] = {
    "convert": convert.write,
    "filter": filter_.write,
    "salvage": salvage.write,
    "split": resegment.write,
}
_PARTS: Mapping[str, Callable[[Work, Stage], Any]] = {
    "convert": convert.parts,
    "compare": compare.parts,
    "records": records.parts,
    "verify": verify.parts,
    "filter": filter_.parts,
    "salvage": salvage.parts,
    "split": resegment.parts,
    "inventory": inventory.parts,
    "digest": digest.parts,
}
"""Stages that are divided into parts of the partition."""
_JOINS: Mapping[str, Callable[[Work, Stage, list[Any]], Json]] = {
    "convert": convert.join,
    "compare": compare.join,
    "records": records.join,
    "verify": verify.join,
    "filter": filter_.join,
    "salvage": salvage.join,
    "split": resegment.join,
    "inventory": inventory.join,
    "digest": digest.join,
}
_STAGES: Mapping[str, Callable[[Work, Stage], Json]] = {
    "inventory": inventory.run,
    "verify": verify.run,
    "salvage": salvage.run,
    "convert": convert.run,
    "compact": compact.run,
    "retain": retain.run,
    "split": resegment.run,
    "merge": resegment.run,
    "filter": filter_.run,
    "mirror": mirror.run,
    "digest": digest.run,
    "compare": compare.run,
    "records": records.run,
}
