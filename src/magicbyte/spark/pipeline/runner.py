"""What a task does: takes partitions through their stages, in the worker, with the functions that the commands call.

Nothing is raised for what is wrong with one partition: its outcome says it, and the others go on.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from magicbyte.errors import CorruptRecordError, MagicbyteError
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


def run_units(units: Iterator[Unit], told: Told) -> Iterator[Json]:
    """Do what is to be done, and yield what became of each partition. Runs in a worker."""
    from magicbyte.spark.workers import expect_bytes, settle

    for unit in units:
        expect_bytes(unit.size)
        found = run_unit(unit)
        tell(told, unit, found)
        yield found
    settle()


def tell(told: Told, unit: Unit, found: Json) -> None:
    """Add a partition to the sums of its stages, and of the run."""
    for name in [*stage_names(stage["do"] for stage in found["stages"]), ""]:
        if name in told:
            size, count = told[name]
            size.add(unit.size)
            count.add(1)


def stage_names(kinds: Iterable[str]) -> list[str]:
    """Return what stages are called: a repeated stage gets a number, as `inventory 2`."""
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind} {seen[kind]}")
    return names


def run_unit(unit: Unit) -> Json:
    """Take one partition through its stages, commit what came out, and return what there is to say of it."""
    said, place = _begin(unit)

    def do() -> Json:
        work, _ = _attempt(unit, place, said)
        return _committed(work, place, said)

    return _concluded(unit, place, said, do)


@dataclass(slots=True)
class Prepared:
    """A partition in front of a stage that many workers do. `stages`: that one, and those behind it.

    `task`: what each of them has to know; None if there is nothing to share. They compact in three steps: they copy
    the source, unless a stage has written it anew, make `marks`, and write what stays. Of `retain` and `mirror` they do
    the copy.
    """

    work: Work
    place: AnyPlace | None
    said: Json
    stages: list[Stage]
    task: Task
    marks: Marks | None = None


def prepare(unit: Unit, spread: frozenset[str]) -> Prepared | Json:
    """Take one partition up to the first stage that is one of `spread`; or return what there is to say, if that is all.

    Those stages are done by many workers; each shares the sink's folders with the others.
    """
    said, place = _begin(unit)

    def do() -> Prepared:
        work, rest = _attempt(unit, place, said, before=spread)
        return _prepared(work, place, said, rest)

    return _concluded(unit, place, said, do)


def _prepared(work: Work, place: AnyPlace | None, said: Json, stages: list[Stage]) -> Prepared:
    stage = stages[0]
    task: Task
    if stage.do in _PARTS:
        task = _PARTS[stage.do](work, stage)
    elif not work.owned and len(work.log.segments) > 1:
        task = copying.parts(work)
    elif stage.do in ("retain", "mirror"):
        task = None  # there is a copy, in which little is to be done
    else:
        assert work.root is not None
        options = compact.options_of(work, stage)
        task = plan(compact.opened(work, options), options, work.root / "marks")
    said["seconds"] = time.monotonic() - said.pop("begun")
    return Prepared(work, place, said, stages, task)


def go_on(prepared: Prepared, spread: frozenset[str], done: int | str | list[Any]) -> Prepared | Json:
    """Finish the stage that many workers did, and take a partition on, to the next one of those or to its end.

    `done`: the number of its keys, or what is damaged; or what became of its parts. If a worker dies in it, Spark calls
    it again with the same arguments.
    """
    if prepared.place is not None and (record := prepared.place.committed()) is not None:
        return record
    work, said, (stage, *rest) = prepared.work, prepared.said, prepared.stages
    said["begun"] = time.monotonic() - said["seconds"]  # each machine's clock has a start of its own

    def do() -> Prepared | Json:
        if work.root is not None:
            work.begin_task()
        if isinstance(done, str):
            raise DamagedError(done)
        marks, parts = prepared.marks, None if isinstance(done, int) else done
        if stage.do not in _PARTS and parts is not None and marks is None:
            copying.join(work, parts)
            if stage.do == "compact":
                return _prepared(work, prepared.place, said, prepared.stages)
            parts = None
        if isinstance(prepared.task, Job) and isinstance(done, int):
            assert work.root is not None
            marks = marks_of(prepared.task, done)
            if groups := groups_of(prepared.task, marks, work.root / "groups"):
                return replace(prepared, task=groups, marks=marks)
        _take(said, run_stage(work, stage, parts, marks))
        end = _end(rest, spread)
        _go(work, rest[:end], said)
        if end < len(rest):
            return _prepared(work, prepared.place, said, rest[end:])
        return _committed(work, prepared.place, said)

    return _concluded(work.unit, prepared.place, said, do)


def _end(stages: Sequence[Stage], before: frozenset[str]) -> int:
    return next((at for at, stage in enumerate(stages) if stage.do in before), len(stages))


Task: TypeAlias = (
    "Job | list[WritePart] | list[compare.ComparePart] | list[records.TablePart] | list[verify.VerifyPart]"
    " | list[inventory.InventoryPart] | list[digest.DigestPart] | list[copying.CopyPart] | list[GroupPart] | None"
)

AnyPlace: TypeAlias = "SinkPlace | StorePlace | ScratchPlace"


class Sum(Protocol):
    """What Spark calls an accumulator."""

    def add(self, term: int) -> None:
        """Add to it, in a worker; the driver sees it when the task is done."""


Told = Mapping[str, tuple[Sum, Sum]]
"""Of each stage, and under "" of the run, the bytes of sources and the partitions that are done."""


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


def _concluded(unit: Unit, place: AnyPlace | None, said: Json, do: Callable[[], T]) -> T | Json:
    """Return what `do` does; of an error what it makes of the partition, of which nothing is left then."""
    try:
        return do()
    except (MagicbyteError, OSError) as error:
        if place is not None:
            place.give_up()
        return _ended(said, _outcome_of(error, unit), str(error))


def _ended(said: Json, outcome: TaskOutcome, error: str | None = None) -> Json:
    said = dict(said)  # that there is an output may still turn out to be wrong
    seconds = round(time.monotonic() - said.pop("begun"), 3)
    return {**said, "outcome": outcome.value, "error": error, "seconds": seconds}


def _committed(work: Work, place: AnyPlace | None, said: Json) -> Json:
    found = work.finish()
    told = {**_ended(said, TaskOutcome.DONE), **found}
    return told if place is None else place.commit(told)


def _outcome_of(error: Exception, unit: Unit) -> TaskOutcome:
    """Return what an error makes of a partition; of an input that changed, nothing else can be told."""
    with contextlib.suppress(OSError):
        if isinstance(error, ChangedError) or has_changed(unit):
            return TaskOutcome.CHANGED
    if isinstance(error, (CorruptRecordError, DamagedError)):
        return TaskOutcome.DAMAGED
    return TaskOutcome.DIFFERENT if isinstance(error, DifferentError) else TaskOutcome.FAILED


def _attempt(
    unit: Unit, place: AnyPlace | None, said: Json, before: frozenset[str] = frozenset()
) -> tuple[Work, list[Stage]]:
    """Go through the stages, up to the first of those called `before`; return what came of it, and what is left.

    If there is damage in the way and it is to be salvaged, that is done, and all stages come behind it.
    """
    stages, salvages = list(unit.stages), may_salvage(unit)
    while True:
        work = Work(unit, None if place is None else place.begin(), unit.partition)
        end = _end(stages, before)
        try:
            work.fetch(stages)
            _go(work, stages[:end], said)
            return work, stages[end:]
        except (CorruptRecordError, DamagedError) as error:
            if not salvages or place is None:  # an output there must be, to salvage into
                raise
            place.give_up()
            said["salvagedFor"], said["stages"] = str(error), []
            stages, salvages = [SALVAGE, *stages], False


def _go(work: Work, stages: Iterable[Stage], said: Json) -> None:
    for stage in stages:
        _take(said, run_stage(work, stage))


def _take(said: Json, found: Json) -> None:
    """Add what a stage says. Raises DamagedError where it found damage."""
    said["stages"].append(found)
    if damage := found.get("damage"):
        raise DamagedError(damage)


def run_stage(work: Work, stage: Stage, parts: list[Any] | None = None, marks: Marks | None = None) -> Json:
    """Do one stage; return what it says, the workers' time and the bytes in front of it and behind.

    `parts`, `marks`: what other workers did of it: parts of it, marks to compact by.
    """
    begun, size = time.monotonic(), work.log.size
    if marks is not None:
        found = compact.run(work, stage, marks, parts)
    elif parts is not None:
        found = _JOINS[stage.do](work, stage, parts)
    else:
        found = _STAGES[stage.do](work, stage)
    seconds = round(time.monotonic() - begun + found.pop("workerSeconds", 0), 3)
    return {"do": stage.do, "seconds": seconds, "bytesIn": size, "bytesOut": work.log.size, **found}


def do_part(part: Any) -> Any:
    """Do a worker's share of a stage: one of the parts of its Task."""
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
"""Stages whose shares are parts of the partition."""
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
