"""Runs a pipeline: plans, has Spark do what is due, commits, and says what became of each partition."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from magicbyte import __version__
from magicbyte.errors import MagicbyteError
from magicbyte.log.partitions import meta_properties
from magicbyte.records.layout import Dialect
from magicbyte.spark import SparkUnavailableError, check_installed, local_settings, use_this_python
from magicbyte.spark.pipeline import shuffle
from magicbyte.spark.pipeline.config import Pipeline, convert_options
from magicbyte.spark.pipeline.sink import FORM, Sink
from magicbyte.spark.pipeline.store_sink import StoreSink
from magicbyte.spark.pipeline.units import Unit, find
from magicbyte.spark.pipeline.work import SALVAGE, Outcome, Prepared, complete, may_salvage, prepare, run_units

if TYPE_CHECKING:
    from pyspark import SparkContext

Json = dict[str, Any]
Progress = Callable[[int, int], None]

_ATTEMPTS = 4
_SMALLEST_TASK, _LARGEST_TASK = 8 << 20, 256 << 20
_MOST_UNITS = 256
_POLL_SECONDS = 0.2


class RunFailedError(MagicbyteError):
    """Spark gave up, as when a worker died several times; what was finished stays, and --resume goes on with it."""


@dataclass(slots=True)
class Run:
    """What a run did. `units`: of each partition what there is to say, the largest first; `master`: of Spark.

    `kept`: how many of them earlier runs had done. `manifest`: the sink's, None where nothing is written.
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
        """The exit status: 0 all done, 1 damage or a difference stopped a partition, 2 something failed."""
        outcomes = {unit["outcome"] for unit in self.units}
        if outcomes & {Outcome.FAILED, Outcome.CHANGED}:
            return 2
        is_damaged = Outcome.DAMAGED in outcomes and self.pipeline.on_damage != "skip"
        return 1 if is_damaged or Outcome.DIFFERENT in outcomes else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do: `due` has the units in the order of their start, `done` the records of the others."""

    due: list[Unit]
    done: list[Json]


def run(
    pipeline: Pipeline,
    *,
    master: str = "local[*]",
    resume: bool = False,
    context: SparkContext | None = None,
    progress: Progress = lambda _bytes, _units: None,
) -> Run:
    """Run a pipeline, and return what became of each partition.

    `context`: to be used, else one is started at `master` if there is something to do, and stopped. `resume`: go on
    with what earlier runs left in the sink. `progress` is told of bytes and partitions that are done since it was told
    last. Raises LogDirectoryError for a sink that is in use or holds something else, RunFailedError, OSError,
    SparkUnavailableError.
    """
    begun = time.monotonic()
    started = time.time_ns() // 1_000_000
    with _held(pipeline, resume=resume) as sink:
        now = pipeline.now_ms
        if now is None:
            now = started if sink is None else sink.now_ms(started)
        units = find(pipeline, now, sink.run if isinstance(sink, StoreSink) else 0)
        meta = meta_properties([unit.partition for unit in units])
        planned = _plan(units, sink)
        if sink is not None:
            sink.clear({f"{unit['unit']}.{unit['fingerprint']}.json" for unit in planned.done})
        progress(sum(unit["bytes"] for unit in planned.done), len(planned.done))
        found = Run(pipeline, master, started, kept=len(planned.done))
        made = _do(planned.due, pipeline, master, context, progress) if planned.due else []
        order = {unit.name: at for at, unit in enumerate(units)}
        found.units = sorted([*planned.done, *made], key=lambda unit: order[unit["unit"]])
        if sink is not None:
            _commit(sink, pipeline, found, meta, now)
            found.manifest = sink.manifest
    found.seconds = round(time.monotonic() - begun, 3)
    return found


def plan(pipeline: Pipeline) -> Plan:
    """Return what a run would do now; nothing is changed."""
    units = find(pipeline, time.time_ns() // 1_000_000)
    if pipeline.sink is None:
        return Plan(units, [])
    tables, sink = pipeline.writes_tables, pipeline.sink
    if isinstance(sink, str):
        return _plan(units, StoreSink.seen(sink, tables=tables))
    return _plan(units, Sink.seen(sink, tables=tables))


def _held(pipeline: Pipeline, *, resume: bool) -> contextlib.AbstractContextManager[Sink | StoreSink | None]:
    tables, sink = pipeline.writes_tables, pipeline.sink
    if sink is None:
        return contextlib.nullcontext()
    if isinstance(sink, str):
        return StoreSink.held(sink, tables=tables, resume=resume)
    return Sink.held(sink, tables=tables, resume=resume)


def _plan(units: Sequence[Unit], sink: Sink | StoreSink | None) -> Plan:
    """Part the units into those that are due and those that earlier runs did."""
    due, done = [], []
    for unit in units:
        record = None if sink is None else sink.known(unit.name, unit.fingerprint)
        if record is None:
            due.append(unit)
        else:
            done.append(record)
    return Plan(due, done)


# ---- Spark


def _do(
    units: Sequence[Unit], pipeline: Pipeline, master: str, context: SparkContext | None, progress: Progress
) -> list[Json]:
    with contextlib.ExitStack() as stack:
        if context is None:
            context = stack.enter_context(started_context(master, pipeline))
        large = [unit for unit in units if goes_through_shuffle(unit)]
        made = _collect(context, [unit for unit in units if unit not in large], progress)
        for unit in large:
            made.append(_shuffled(context, unit))
            progress(unit.size, 1)
        return made


def goes_through_shuffle(unit: Unit) -> bool:
    """Whether a partition is too large for a worker to compact it alone."""
    above = [stage.options["shuffle-above"] for stage in unit.stages if stage.do == "compact"]
    return bool(above) and unit.size > above[0] and unit.partition.dialect is Dialect.KAFKA


def _shuffled(context: SparkContext, unit: Unit) -> Json:
    """Do one large partition: what comes before `compact` in one task, its keys in many, the rest in one again."""
    from py4j.protocol import Py4JError

    try:
        (prepared,) = context.parallelize([unit], 1).mapPartitions(lambda units: map(prepare, units)).collect()
        found: Json = prepared if isinstance(prepared, dict) else {}
        if isinstance(prepared, Prepared):
            keys = 0 if prepared.job is None else shuffle.run(context, prepared.job)
            some = context.parallelize([prepared], 1).mapPartitions(lambda each: (complete(one, keys) for one in each))
            (found,) = some.collect()
    except Py4JError as error:
        raise RunFailedError(f"Spark gave up: {_first_line(error)}; --resume goes on with what is finished") from error
    if found["outcome"] == Outcome.DAMAGED and may_salvage(unit):
        sound = _shuffled(context, replace(unit, stages=(SALVAGE, *unit.stages)))
        return {**sound, "salvagedFor": found["error"]}
    return found


@contextlib.contextmanager
def started_context(master: str, pipeline: Pipeline) -> Iterator[SparkContext]:
    """Start Spark's core, without SQL, and stop it at the end. Raises SparkUnavailableError."""
    check_installed()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(_with_retries(master)).setAppName(f"magicbyte {pipeline.name}")
    conf.setAll([*local_settings().items(), *pipeline.spark.items()])
    try:
        context = SparkContext(conf=conf)
    except (Py4JError, RuntimeError) as error:
        raise SparkUnavailableError(f"Spark did not start at {master}: {_first_line(error)}") from error
    use_this_python(context)
    try:
        yield context
    finally:
        context.stop()


def _with_retries(master: str) -> str:
    """Return a local master that tries a task again whose worker died, as clusters do."""
    found = re.fullmatch(r"local(?:\[(\*|[0-9]+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},{_ATTEMPTS}]"


def _collect(context: SparkContext, units: Sequence[Unit], progress: Progress) -> list[Json]:
    """Have the units done, and return what there is to say of each."""
    from py4j.protocol import Py4JError

    if not units:
        return []
    tasks = bundles(units, context.defaultParallelism)
    done_bytes, done_units = context.accumulator(0), context.accumulator(0)

    def work(bundle: Iterable[list[Unit]]) -> Iterator[Json]:
        for some in bundle:
            yield from run_units(iter(some))
            done_bytes.add(sum(unit.size for unit in some))
            done_units.add(len(some))

    told = (0, 0)
    with ThreadPoolExecutor(1, "magicbyte-pipeline") as pool:
        job = pool.submit(context.parallelize(tasks, len(tasks)).mapPartitions(work).collect)
        try:
            while True:
                with contextlib.suppress(StillRunning):
                    job.exception(_POLL_SECONDS)
                known = done_bytes.value, done_units.value
                progress(known[0] - told[0], known[1] - told[1])
                told = known
                if job.done():
                    break
        except KeyboardInterrupt:
            context.cancelAllJobs()
            raise
    try:
        found: list[Json] = job.result()
    except Py4JError as error:
        raise RunFailedError(f"Spark gave up: {_first_line(error)}; --resume goes on with what is finished") from error
    return found


def bundles(units: Sequence[Unit], cores: int) -> list[list[Unit]]:
    """Return the units by task: large ones alone and first, small ones together, since each task costs some time."""
    target = sum(unit.size for unit in units) // (4 * cores)
    target = min(max(target, _SMALLEST_TASK), _LARGEST_TASK)
    most = min(max(math.ceil(len(units) / (4 * cores)), 1), _MOST_UNITS)
    found: list[list[Unit]] = []
    room = 0
    for unit in units:
        if not found or unit.size > room or len(found[-1]) >= most:
            found.append([])
            room = target
        found[-1].append(unit)
        room -= unit.size
    return found


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


# ---- the commit


def _commit(sink: Sink | StoreSink, pipeline: Pipeline, found: Run, meta: bytes | None, now_ms: int) -> None:
    """Put a manifest, if there is anything new, and bring all outputs to their names."""
    before: Json = {} if sink.manifest is None else sink.manifest["units"]
    records = {unit["unit"]: unit for unit in found.units if unit["outcome"] == Outcome.DONE}
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
    """Return the Kafka version that the sink is for, if the last conversion says one."""
    found = [convert_options(stage).rules.version for stage in pipeline.stages if stage.do == "convert"]
    return found[-1] if found else None


def _spark_version() -> str:
    import pyspark

    return str(pyspark.__version__)
