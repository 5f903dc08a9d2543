"""Run a pipeline: plan, run the due tasks in Spark, commit, and return the outcome of each partition."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from magicbyte import __version__
from magicbyte.access.clock import SystemClock
from magicbyte.engine.errors import LogDirectoryError, MagicbyteError
from magicbyte.engine.log.files.outputs import refuse_unwritable
from magicbyte.engine.log.files.partitions import meta_properties
from magicbyte.engine.records.layout import Dialect
from magicbyte.spark import (
    SparkUnavailableError,
    check_installed,
    first_line,
    local_settings,
    not_started,
    use_this_python,
)
from magicbyte.spark.pipeline import shuffle
from magicbyte.spark.pipeline.config import Pipeline, PipelineError, Stage, convert_options
from magicbyte.spark.pipeline.runner import (
    Prepared,
    abandon,
    add_to_accumulators,
    continue_unit,
    do_part,
    prepare,
    run_units,
    stage_names,
)
from magicbyte.spark.pipeline.sink import FORM, Sink
from magicbyte.spark.pipeline.store_sink import StoreSink
from magicbyte.spark.pipeline.units import Unit, find
from magicbyte.spark.pipeline.work import SALVAGE, TaskOutcome, may_salvage

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

T = TypeVar("T")
Json = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Called with a stage's name ("" for the whole run), and source bytes and partitions finished since the last call."""

_ATTEMPTS = 4
_SMALLEST_TASK, _LARGEST_TASK = 8 << 20, 256 << 20
_MOST_UNITS = 256
_POLL_SECONDS = 0.2
_CORES = r"(?:\*|[1-9][0-9]*)"
_MASTER = re.compile(rf"local(?:\[{_CORES}(?:,[1-9][0-9]*)?\])?|local-cluster\[.+\]|spark://[^/]+:[0-9]+|yarn|k8s://.+")


class RunFailedError(MagicbyteError):
    """Raised if Spark gives up, for instance after several deaths of a worker.

    --resume keeps the finished partitions.
    """


@dataclass(slots=True)
class PipelineRun:
    """The result of a run. `units`: a record per partition, the largest first. `master`: of Spark.

    `kept`: the number of partitions that earlier runs had finished. `manifest`: of the sink, None if nothing is
    written.
    """

    pipeline: Pipeline
    master: str
    started_ms: int
    units: list[Json] = field(default_factory=list)
    kept: int = 0
    manifest: Json | None = None
    seconds: float = 0.0

    @property
    def status(self) -> int:
        """The exit status: 0 success, 1 damage or a difference stopped a partition, 2 a partition failed."""
        outcomes = {unit["outcome"] for unit in self.units}
        if outcomes & {TaskOutcome.FAILED, TaskOutcome.CHANGED}:
            return 2
        is_damaged = TaskOutcome.DAMAGED in outcomes and self.pipeline.on_damage != "skip"
        return 1 if is_damaged or TaskOutcome.DIFFERENT in outcomes else 0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run. `due`: units in the order of their start.

    `done`: records of units that are finished already.
    """

    due: list[Unit]
    done: list[Json]

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte pipeline run --dry-run --format json`."""
        return {
            "due": [
                {
                    "unit": unit.name,
                    "path": unit.partition.path,
                    "bytes": unit.size,
                    "segments": len(unit.partition.segments),
                    "stages": [stage.do for stage in unit.stages],
                }
                for unit in self.due
            ],
            "done": [{"unit": unit["unit"], "bytes": unit["bytes"]} for unit in self.done],
        }


def run(
    pipeline: Pipeline,
    *,
    master: str = "local[*]",
    resume: bool = False,
    context: SparkContext | None = None,
    progress: Progress = lambda _stage, _bytes, _units: None,
) -> PipelineRun:
    """Run a pipeline, and return the outcome of each partition.

    `context`: an existing context; by default one is started at `master`, if there is work, and stopped. `resume`:
    continue from the output of earlier runs in the sink. `progress` receives, per stage, the work done since its last
    call. Raises LogDirectoryError for a sink that is in use or holds other files, RunFailedError, OSError,
    SparkUnavailableError, PipelineError for an invalid master.
    """
    begun = time.monotonic()
    started = SystemClock().now_ms()
    if context is None:
        _check_master(master)
    units = find(pipeline, started)  # before the sink is created, so that a missing source does not leave an empty one
    with _held(pipeline, resume=resume) as sink:
        now = pipeline.now_ms
        if now is None:
            now = started if sink is None else sink.now_ms(started)
        number = sink.run if isinstance(sink, StoreSink) else 0
        units = [replace(unit, now_ms=now, run=number) for unit in units]
        if pipeline.target is not None:
            from magicbyte.spark.pipeline.aims import aims  # it loads the client

            to = aims(units, pipeline.target)
            units = [replace(unit, aim=to[unit.name]) for unit in units]
        meta = meta_properties([unit.partition for unit in units])
        planned = _plan(units, sink)
        if sink is not None:
            sink.clear({f"{unit['unit']}.{unit['fingerprint']}.json" for unit in planned.done})
        progress("", sum(unit["bytes"] for unit in planned.done), len(planned.done))
        finished = PipelineRun(pipeline, master, started, kept=len(planned.done))
        made = _do(planned.due, pipeline, master, context, progress) if planned.due else []
        order = {unit.name: at for at, unit in enumerate(units)}
        finished.units = sorted([*planned.done, *made], key=lambda unit: order[unit["unit"]])
        if sink is not None:
            _commit(sink, pipeline, finished, meta, now)
            finished.manifest = sink.manifest
    finished.seconds = round(time.monotonic() - begun, 3)
    return finished


def plan(pipeline: Pipeline) -> RunPlan:
    """Return the plan of a run, without changing anything.

    Raises as `run` does, and LogDirectoryError for a folder that a run could not write to.
    """
    units = find(pipeline, SystemClock().now_ms())
    for folder in (pipeline.sink, pipeline.report, pipeline.scratch):
        if isinstance(folder, Path):
            refuse_unwritable(folder)
    if pipeline.sink is None:
        return RunPlan(units, [])
    tables, sink = pipeline.writes_tables, pipeline.sink
    if isinstance(sink, str):
        try:
            seen = StoreSink.seen(sink, tables=tables)
        except OSError as error:
            raise LogDirectoryError(f"{sink}: cannot be written: {error}") from error
        return _plan(units, seen)
    return _plan(units, Sink.seen(sink, tables=tables))


def _held(pipeline: Pipeline, *, resume: bool) -> contextlib.AbstractContextManager[Sink | StoreSink | None]:
    tables, sink = pipeline.writes_tables, pipeline.sink
    if sink is None:
        return contextlib.nullcontext()
    if isinstance(sink, str):
        return StoreSink.held(sink, tables=tables, resume=resume)
    return Sink.held(sink, tables=tables, resume=resume)


def _plan(units: Sequence[Unit], sink: Sink | StoreSink | None) -> RunPlan:
    """Divide the units into due and finished ones."""
    due, done = [], []
    for unit in units:
        record = None if sink is None else sink.known(unit.name, unit.fingerprint)
        if record is None:
            due.append(unit)
        else:
            done.append(record)
    return RunPlan(due, done)


# ---- Spark


def _do(
    units: Sequence[Unit], pipeline: Pipeline, master: str, context: SparkContext | None, progress: Progress
) -> list[Json]:
    with contextlib.ExitStack() as stack:
        if context is None:
            context = stack.enter_context(started_context(master, pipeline))
        stack.enter_context(_named_errors())
        run = _Spark(context, pipeline, progress)
        spread = {unit.name: spread_stages(unit, units, context) for unit in units}
        made = run.small([unit for unit in units if not spread[unit.name]])
        return made + [run.large(unit, spread[unit.name]) for unit in units if spread[unit.name]]


def goes_through_shuffle(unit: Unit) -> bool:
    """Return whether a partition is too large for one worker to compact."""
    above = [stage.options["shuffle-above"] for stage in unit.stages if stage.do == "compact"]
    return bool(above) and unit.size > above[0] and unit.partition.dialect is Dialect.KAFKA


def parted_stages(unit: Unit, units: Iterable[Unit], cores: int) -> set[str]:
    """Return the stages to divide among workers, of a partition that would keep a core busy longer than all others."""
    if len(unit.partition.segments) < 2 or unit.size * cores <= sum(each.size for each in units):
        return set()
    parted = {stage.do for stage in unit.stages if _is_above(unit, stage)}
    return parted | {SALVAGE.do} if parted and may_salvage(unit) and _is_above(unit, SALVAGE) else parted


def _is_above(unit: Unit, stage: Stage) -> bool:
    above: int = stage.options.get("part-above", unit.size)
    return unit.size > above


def spread_stages(unit: Unit, units: Iterable[Unit], context: SparkContext) -> frozenset[str]:
    """Return the stages of a partition that all workers share.

    If they write, they need a folder that all workers see: the sink itself, or the scratch folder of a store.
    """
    master = getattr(context, "master", "local")
    parted = parted_stages(unit, units, context.defaultParallelism)
    if unit.sink is None:
        writes = unit.aim is not None or unit.live is not None
        return frozenset() if writes else frozenset(parted)
    if "://" in unit.sink and unit.scratch is None and not master.startswith("local"):
        return frozenset()
    return frozenset(parted | ({"compact"} if goes_through_shuffle(unit) else set()))


@contextlib.contextmanager
def started_context(master: str, pipeline: Pipeline) -> Iterator[SparkContext]:
    """Start a SparkContext, without SQL, and stop it at the end. Raises SparkUnavailableError."""
    check_installed()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(_with_retries(master)).setAppName(f"magicbyte {pipeline.name}")
    conf.setAll([*local_settings().items(), *pipeline.spark.items()])
    try:
        context = SparkContext(conf=conf)
    except (Py4JError, RuntimeError) as error:
        raise not_started(error, master) from error
    except ValueError as error:
        raise SparkUnavailableError("this process already has a SparkContext: pass it to `run` as `context`") from error
    try:
        use_this_python(context)
        yield context
    finally:
        context.stop()


def _check_master(master: str) -> None:
    """Raise PipelineError for an invalid master, for which Spark prints a hundred lines."""
    if not _MASTER.fullmatch(master):
        raise PipelineError(
            f"--master: expected local[*], local[N], spark://HOST:PORT, yarn or k8s://URL, found {master!r}"
        )


def _with_retries(master: str) -> str:
    """Return a local master that retries tasks after the death of a worker, as clusters do."""
    found = re.fullmatch(r"local(?:\[(\*|[0-9]+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},{_ATTEMPTS}]"


@dataclass(slots=True)
class _Spark:
    """Run the due units in Spark, and report progress."""

    context: SparkContext
    pipeline: Pipeline
    progress: Progress

    def small(self, units: Sequence[Unit]) -> list[Json]:
        """Process each partition in one worker. Return a record of each."""
        if not units:
            return []
        sums = self._sums()

        def work(bundle: Iterable[list[Unit]]) -> Iterator[Json]:
            for some in bundle:
                yield from run_units(iter(some), sums)

        found: list[Json] = self._collect(bundles(units, self.context.defaultParallelism), work, sums)
        return found

    def large(self, unit: Unit, spread: frozenset[str]) -> Json:
        """Process one partition: the stages in `spread` by all workers, the stages between them in one task each."""
        outcome = self._one(partial(prepare, unit, spread))
        while isinstance(outcome, Prepared):
            begun, prepared = time.monotonic(), outcome
            done = self._spread(prepared)
            prepared.said["seconds"] += time.monotonic() - begun
            outcome = self._one(partial(continue_unit, prepared, spread, done))
            if not isinstance(outcome, Prepared) and outcome["outcome"] != TaskOutcome.DONE:
                self._one(partial(abandon, prepared))
        told = self._sums()
        add_to_accumulators(told, unit, outcome)
        self._tell(told, {})
        if outcome["outcome"] == TaskOutcome.DAMAGED and may_salvage(unit):
            sound = self.large(replace(unit, stages=(SALVAGE, *unit.stages)), spread)
            return {**sound, "salvagedFor": outcome["error"]}
        return outcome

    def _spread(self, prepared: Prepared) -> int | str | list[Any]:
        """Run a stage's parts in all workers. Return their results."""
        if isinstance(prepared.task, list):
            return self._collect(prepared.task, lambda some: map(do_part, some))
        return 0 if prepared.task is None else shuffle.run(self.context, prepared.task)

    def _one(self, work: Callable[[], T]) -> T:
        (found,) = self._collect([work], lambda some: (each() for each in some))
        result: T = found
        return result

    def _sums(self) -> dict[str, tuple[Accumulator[int], Accumulator[int]]]:
        names = stage_names(stage.do for stage in self.pipeline.stages)
        if self.pipeline.on_damage == "salvage":
            names.append("salvage")
        return {name: (self.context.accumulator(0), self.context.accumulator(0)) for name in [*names, ""]}

    def _tell(
        self, told: Mapping[str, tuple[Accumulator[int], Accumulator[int]]], before: dict[str, tuple[int, int]]
    ) -> None:
        """Report the increase of the sums since `before`, and update `before`."""
        for name, (size, count) in told.items():
            old, new = before.get(name, (0, 0)), (size.value, count.value)
            if new != old:
                self.progress(name, new[0] - old[0], new[1] - old[1])
                before[name] = new

    def _collect(
        self,
        tasks: Sequence[Any],
        work: Callable[[Iterable[Any]], Iterable[Any]],
        sums: Mapping[str, tuple[Accumulator[int], Accumulator[int]]] | None = None,
    ) -> list[Any]:
        """Run each task in a worker, report progress meanwhile, and return the results."""
        before: dict[str, tuple[int, int]] = {}
        with ThreadPoolExecutor(1, "magicbyte-pipeline") as pool:
            job = pool.submit(self.context.parallelize(tasks, len(tasks)).mapPartitions(work).collect)
            try:
                while not job.done():
                    with contextlib.suppress(StillRunning):
                        job.exception(_POLL_SECONDS)
                    self._tell(sums or {}, before)
            except KeyboardInterrupt:
                self.context.cancelAllJobs()
                raise
        self._tell(sums or {}, before)
        found: list[Any] = job.result()
        return found


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Raise RunFailedError, with Spark's message, if Spark gives up."""
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as error:
        raise RunFailedError(
            f"Spark gave up: {first_line(error)}; --resume continues after the finished work"
        ) from error


def bundles(units: Sequence[Unit], cores: int) -> list[list[Unit]]:
    """Group the units into tasks: large ones alone and first, small ones together, because each task costs time."""
    target = sum(unit.size for unit in units) // (4 * cores)
    target = min(max(target, _SMALLEST_TASK), _LARGEST_TASK)
    most = min(max(math.ceil(len(units) / (4 * cores)), 1), _MOST_UNITS)
    bundled: list[list[Unit]] = []
    room = 0
    for unit in units:
        if not bundled or unit.size > room or len(bundled[-1]) >= most:
            bundled.append([])
            room = target
        bundled[-1].append(unit)
        room -= unit.size
    return bundled


# ---- the commit


def _commit(sink: Sink | StoreSink, pipeline: Pipeline, found: PipelineRun, meta: bytes | None, now_ms: int) -> None:
    """Write a manifest, if there are new outputs, and rename all outputs to their final names."""
    before: Json = {} if sink.manifest is None else sink.manifest["units"]
    records = {unit["unit"]: unit for unit in found.units if unit["outcome"] == TaskOutcome.DONE}
    if any(before.get(name) != record for name, record in records.items()):
        named = {output["name"] for record in records.values() for output in record["outputs"]}
        kept = {
            name: record
            for name, record in before.items()
            if name not in records
            and sink.has(record)
            and not {output["name"] for output in record["outputs"]} <= named
        }
        versions = {"magicbyte": __version__, "python": sys.version.split()[0], "spark": _spark_version()}
        sink.commit(
            {
                "form": FORM,
                "number": sink.number + 1,
                "token": uuid.uuid4().hex,
                "pipeline": pipeline.name,
                "stages": [stage.identity() for stage in pipeline.stages],
                "now": now_ms,
                "versions": versions,
                "metaProperties": None if meta is None else meta.decode(),
                "kafka": _kafka(pipeline),
                "units": dict(sorted({**kept, **records}.items())),
            }
        )
    sink.close()


def _kafka(pipeline: Pipeline) -> str | None:
    """Return the target Kafka version of the last conversion, None without one."""
    found = [convert_options(stage).rules.version for stage in pipeline.stages if stage.do == "convert"]
    return found[-1] if found else None


def _spark_version() -> str:
    import pyspark

    return str(pyspark.__version__)
