"""Read a pipeline (sources, stages, a sink) from a TOML file, and check it before anything runs.

`docs/spark/pipeline.md` has the table of stages and their options.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from magicbyte.engine.errors import InvalidConfigError, MagicbyteError
from magicbyte.engine.log.files.filesystem import local_path, read_regular
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.units import duration_ms, size_of
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.convert import ConvertOptions

FORMATS = {"v0": Format.V0, "v1": Format.V1, "v2": Format.V2, "enriched": Format.ENRICHED}
CODECS = ("keep", "none", "gzip", "snappy", "lz4", "zstd")
TABLE_CODECS = CODECS[1:]
ON_DAMAGE = ("stop", "skip", "salvage")
WRITERS = frozenset({"salvage", "convert", "compact", "retain", "split", "merge", "filter", "mirror"})
"""Stages that write a new log; all others only read."""
_ABOVE = ("part-above", "shuffle-above")
"""Options that decide which workers do the work, but not the output."""
_REMOVERS = frozenset({"salvage", "compact", "retain", "filter"})
"""Stages that may remove records."""

DEFAULT_GROUP = "magicbyte-mirror"
"""The group of `magicbyte mirror`, so that a mirror continues from a pipeline's progress."""

Key = tuple[str | int, ...]


class PipelineError(MagicbyteError):
    """Raised for an invalid pipeline; says where, what was expected and what was found."""


class Option(NamedTuple):
    """An option of a stage: the expected values in words, and a parser that returns None for an invalid value."""

    expected: str
    read: Callable[[Any], Any]
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class PipelineSource:
    """Log directories to read, or a cluster. `topics`: patterns such as `orders-*`, empty for all topics.

    `client`: settings of the cluster's client, with the names of Kafka or librdkafka; they may have secrets.
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    dialect: Dialect | None = None
    bootstrap: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PipelineTarget:
    """A cluster to write to. Its consumer group `group` stores the progress of each partition, as of a mirror.

    `transactional_id`: the prefix of the transactional ids under which records and progress are written together; None:
    no transactions. `client`: as of a source.
    """

    bootstrap: str
    group: str
    transactional_id: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step. `options` has all options of its kind, with defaults where none were given."""

    do: str
    options: Mapping[str, Any]
    topics: tuple[str, ...] = ()

    def applies_to(self, topic: str | None) -> bool:
        """Return whether partitions of a topic go through this stage."""
        return not self.topics or matches(topic, self.topics)

    def identity(self) -> dict[str, Any]:
        """Return the properties that determine the output, as JSON."""
        values = {name: _steady(value) for name, value in sorted(self.options.items()) if name not in _ABOVE}
        return {"do": self.do, **values}


def _steady(value: Any) -> str:
    """Return a value as a string that is the same in every process."""
    return str(sorted(value)) if isinstance(value, frozenset) else str(value)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline, with a sink, a target cluster, or neither if nothing is written.

    `sink`: a folder on this machine or shared by all, or the URL of an object store. `scratch`: the folder in which
    output for a store is built; None: a temporary folder on each machine. `target`: a cluster instead of a sink.
    `now_ms`: the time from which ages are computed; None: the start of the run.
    """

    sources: tuple[PipelineSource, ...]
    stages: tuple[Stage, ...]
    sink: Path | str | None = None
    on_damage: str = "stop"
    report: Path | None = None
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    now_ms: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    name: str = "pipeline"
    scratch: Path | None = None
    target: PipelineTarget | None = None

    @property
    def writes_tables(self) -> bool:
        """Return whether the output is Parquet files."""
        return any(stage.do == "records" for stage in self.stages)


def matches(topic: str | None, patterns: Sequence[str]) -> bool:
    """Return whether a topic's name matches one of the patterns."""
    return topic is not None and any(fnmatchcase(topic, pattern) for pattern in patterns)


# ---- values


def _one_of(names: Sequence[str], default: str | None = None) -> Option:
    expected = " or ".join(map(repr, names))
    return Option(expected, lambda value: value if value in names else None, default, required=default is None)


def _size(default: int | None, most: int | None = None) -> Option:
    def read(value: Any) -> int | None:
        found = value if type(value) is int else size_of(value) if isinstance(value, str) else None
        return found if found is not None and 0 < found <= (most or found) else None

    told = "a size such as 1048576 or '64MiB'"
    return Option(told if most is None else f"{told}, of at most {most} bytes", read, default)


def _time(default: int | None) -> Option:
    return Option("a time such as '7d' or '500ms'", lambda v: duration_ms(v) if isinstance(v, str) else None, default)


def _instant(value: Any) -> int | None:
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    return value if type(value) is int else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> tuple[str, ...] | None:
    given = [value] if isinstance(value, str) else value
    is_list = isinstance(given, list) and bool(given) and all(isinstance(each, str) and each for each in given)
    return tuple(given) if is_list else None


def _numbers(value: Any) -> tuple[int, ...] | None:
    is_list = isinstance(value, list) and bool(value) and all(type(each) is int and each >= 0 for each in value)
    return tuple(value) if is_list else None


def _version(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) and IndexRules.of(value) else None
    except MagicbyteError:
        return None


def _keys(value: Any) -> frozenset[bytes] | None:
    given = _texts(value)
    return None if given is None else frozenset(each.encode() for each in given)


_TIME = "a date and time, or milliseconds since 1970"
_FLAG = Option("true or false", lambda value: value if isinstance(value, bool) else None, default=False)
_MAYBE = _FLAG._replace(default=None)
_KAFKA = Option("a Kafka version such as '3.9'", _version)
_OFFSET = Option("an offset", lambda value: value if type(value) is int and value >= 0 else None)
_TOPICS = Option("names or patterns of topics, such as ['orders', 'clicks-*']", _texts, ())
_SEGMENT_BYTES = _size(1 << 30, MAX_RELATIVE)

STAGES: Mapping[str, Mapping[str, Option]] = {
    "inventory": {"deep": _FLAG, "part-above": _size(1 << 30)},
    "verify": {"depth": _one_of(("usual", "quick", "deep"), "usual"), "part-above": _size(1 << 30)},
    "salvage": {"same-cluster": _FLAG, "kafka": _KAFKA, "part-above": _size(1 << 30)},
    "convert": {
        "format": _one_of(tuple(FORMATS)),
        "codec": _one_of(CODECS, "keep"),
        "fix-lz4": _FLAG,
        "part-above": _size(1 << 30),
        "same-cluster": _FLAG,
        "kafka": _KAFKA,
    },
    "compact": {
        "delete-retention": _time(86_400_000),
        "min-lag": _time(0),
        "segment-bytes": _SEGMENT_BYTES,
        "max-message-bytes": _size(1_048_588),
        "dedupe-buffer": _size(128 << 20),
        "merge-sets": _MAYBE,
        "from-start": _FLAG,
        "shuffle-above": _size(16 << 30),
        "kafka": _KAFKA,
    },
    "retain": {
        "older-than": _time(None),
        "bytes": _size(None),
        "before-offset": _OFFSET,
        "head-truncation": _FLAG,
        "part-above": _size(1 << 30),
        "kafka": _KAFKA,
    },
    "split": {"segment-bytes": _SEGMENT_BYTES, "part-above": _size(1 << 30)},
    "merge": {"segment-bytes": _SEGMENT_BYTES},
    "filter": {
        "since": Option(_TIME, _instant),
        "until": Option(_TIME, _instant),
        "from-offset": _OFFSET,
        "to-offset": _OFFSET,
        "keys": Option("a list of keys", _keys),
        "key-prefix": Option("a text", lambda value: value.encode() if isinstance(value, str) and value else None),
        "part-above": _size(1 << 30),
    },
    "mirror": {"part-above": _size(1 << 30)},
    "digest": {"part-above": _size(1 << 30)},
    "compare": {"with": Option("the path of a log directory", _text), "part-above": _size(1 << 30)},
    "records": {
        "codec": _one_of(TABLE_CODECS, "zstd"),
        "timestamp-millis": _FLAG,
        "part-above": _size(1 << 30),
    },
}
"""All stages, with their options besides `do` and `topics`."""

_LIMITS: Mapping[str, Sequence[str]] = {
    "retain": ("older-than", "bytes", "before-offset"),
    "filter": tuple(name for name in STAGES["filter"] if name not in _ABOVE),
}
"""Stages that need at least one of these options."""
_RANGES = (("from-offset", "to-offset"), ("since", "until"))

_TOP = ("on-damage", "report", "max-batch-bytes", "now", "source", "stage", "sink", "spark")
_BOOTSTRAP = Option("brokers, such as 'host:9092'", _text)
_SINK = {
    "path": Option("a path or a URL", _text),
    "bootstrap": _BOOTSTRAP,
    "group": Option("the name of a consumer group", _text),
    "transactional-id": Option("the prefix of transactional ids", _text),
    "scratch": Option("a local folder, or one that all machines share", _text),
}
_SOURCE = {
    "path": Option("a path or a URL, or a list of them", _texts, ()),
    "topics": _TOPICS,
    "partitions": Option("a list of partition numbers", _numbers, ()),
    "dialect": _one_of([each.value for each in Dialect], "kafka")._replace(default=None, required=False),
    "bootstrap": _BOOTSTRAP,
}


# ---- the file


def load(
    path: Path,
    *,
    source_client: Mapping[str, str] | None = None,
    target_client: Mapping[str, str] | None = None,
) -> Pipeline:
    """Return the pipeline that a file describes. Paths in it are relative to its folder.

    `source_client`, `target_client`: settings of the clients of source clusters and of the target cluster, with the
    names of Kafka or librdkafka, such as security.protocol. A reference to a secret, such as ${env:NAME}, is resolved
    by the driver and by each worker when it connects.

    Raises PipelineError, with the line, for unknown, invalid or missing settings; InvalidConfigError for those of
    clients, with the side; OSError.
    """
    try:
        text = read_regular(path).decode()
        given = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineError(f"{path}: expected TOML: {error}") from error
    pipeline = _File(path, text, given).pipeline()
    return _with_clients(path, pipeline, source_client or {}, target_client or {})


def _with_clients(
    path: Path, pipeline: Pipeline, source_client: Mapping[str, str], target_client: Mapping[str, str]
) -> Pipeline:
    is_live = any(source.bootstrap is not None for source in pipeline.sources)
    for side, table, settings, has_cluster in (
        ("source", "source", source_client, is_live),
        ("target", "sink", target_client, pipeline.target is not None),
    ):
        if not settings:
            continue
        if not has_cluster:
            setting = f"{side}.{next(iter(settings))}"
            raise PipelineError(f"{path}: {setting}: expected a [{table}] with a bootstrap, found no cluster")
        from magicbyte.access.client.settings import client_arguments  # it loads the client

        try:
            client_arguments(settings)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{side}.{error}") from error
    sources = tuple(
        source if source.bootstrap is None else replace(source, client=dict(source_client))
        for source in pipeline.sources
    )
    target = None if pipeline.target is None else replace(pipeline.target, client=dict(target_client))
    return replace(pipeline, sources=sources, target=target)


def line_of(text: str, key: Key) -> int | None:
    """Return the line at which the first value of `key` is complete, None for a missing key.

    It is the last line of the shortest prefix of the text that is valid TOML and has the key.
    """
    lines = text.split("\n")
    for count in range(1, len(lines) + 1):
        try:
            value: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:  # in the middle of a multi-line value
            continue
        for part in key:
            known = isinstance(value, dict) and part in value
            if not known and not (isinstance(value, list) and isinstance(part, int) and part < len(value)):
                break
            value = value[part]
        else:
            return count
    return None


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    text: str
    given: Mapping[str, Any]

    @property
    def home(self) -> Path:
        """The absolute path of the file's folder: workers have other current folders."""
        return self.path.absolute().parent

    def whole(self, path: str) -> str:
        """Return the absolute path of a local path; a URL is returned unchanged."""
        inside = local_path(path)
        return path if inside is None else str(self.home / inside)

    def refuse(self, key: Key, expected: str, found: object) -> NoReturn:
        """Raise PipelineError with the line of `key`, or of its table if the key is missing."""
        line = next((at for end in range(len(key), 0, -1) if (at := line_of(self.text, key[:end]))), None)
        where = f"{self.path}:{line}" if line is not None else str(self.path)
        name = next((part for part in reversed(key) if isinstance(part, str)), "")
        raise PipelineError(f"{where}: {name}: expected {expected}, found {found}")

    def pipeline(self) -> Pipeline:
        """Return the described pipeline."""
        given = self.given
        for name in given:
            if name not in _TOP:
                self.refuse((name,), f"one of {', '.join(_TOP)}", repr(name))
        sources = tuple(self.source(key, each) for key, each in self.tables("source"))
        stages = tuple(self.stage(key, each) for key, each in self.tables("stage"))
        if not sources:
            self.refuse(("source",), "a table [source] with a path or a bootstrap", "none")
        folder, scratch, target = self.sink() if "sink" in given else (None, None, None)
        top = {
            "on-damage": _one_of(ON_DAMAGE, "stop"),
            "report": Option("a path", _text),
            "max-batch-bytes": _size(DEFAULT_MAX_BATCH_BYTES),
            "now": Option(_TIME, _instant),
        }
        top_options = self.options((), {name: given[name] for name in top if name in given}, top)
        report = None if top_options["report"] is None else self.home / top_options["report"]
        if top_options["on-damage"] == "salvage" and "sink" not in given:
            self.refuse(("on-damage",), "a [sink] for the salvaged log", "none")
        self.check(stages, folder if target is None else target.bootstrap)
        self.check_clusters(sources, stages, target)
        if target is not None and not any(stage.do == "mirror" for stage in stages):
            stages = (*stages, Stage("mirror", {}))
        return Pipeline(
            sources,
            stages,
            sink=folder,
            on_damage=top_options["on-damage"],
            report=report,
            max_batch_bytes=top_options["max-batch-bytes"],
            now_ms=top_options["now"],
            spark=self.settings(),
            name=self.path.stem,
            scratch=scratch,
            target=target,
        )

    def tables(self, name: str) -> list[tuple[Key, Mapping[str, Any]]]:
        """Return the tables of [name] or [[name]], with their keys."""
        found = self.given.get(name, [])
        if isinstance(found, dict):
            return [((name,), found)]
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self.refuse((name,), f"[[{name}]]", repr(found))
        return [((name, at), each) for at, each in enumerate(found)]

    def read(self, key: Key, known: Mapping[str, Option]) -> dict[str, Any]:
        """Return the options of a table that must occur once."""
        found = self.given[str(key[0])]
        if not isinstance(found, dict):
            self.refuse(key, f"one table [{key[0]}]", f"{len(found)}" if isinstance(found, list) else repr(found))
        return self.options(key, found, known)

    def options(self, key: Key, given: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
        """Return the value of each known option."""
        for name in given:
            if name not in known:
                self.refuse((*key, name), f"one of {', '.join(known)}", repr(name))
        values = {}
        for name, option in known.items():
            if name not in given:
                if option.required:
                    self.refuse((*key, name), option.expected, "nothing")
                values[name] = option.default
                continue
            values[name] = option.read(given[name])
            if values[name] is None:
                self.refuse((*key, name), option.expected, repr(given[name]))
        return values

    def source(self, key: Key, given: Mapping[str, Any]) -> PipelineSource:
        """Parse one source."""
        values = self.options(key, given, _SOURCE)
        paths = tuple(self.whole(path) for path in values["path"])
        dialect = None if values["dialect"] is None else Dialect(values["dialect"])
        if bool(paths) == (values["bootstrap"] is not None):
            self.refuse(key, "a path or a bootstrap: one of both", "both" if paths else "none")
        return PipelineSource(paths, values["topics"], values["partitions"], dialect, values["bootstrap"])

    def stage(self, key: Key, given: Mapping[str, Any]) -> Stage:
        """Parse one stage."""
        do = given.get("do")
        if not isinstance(do, str) or do not in STAGES:
            self.refuse((*key, "do"), f"one of {', '.join(STAGES)}", "nothing" if do is None else repr(do))
        known = {"do": Option("a stage", _text), "topics": _TOPICS, **STAGES[do]}
        values = self.options(key, given, known)
        del values["do"]
        stage = Stage(do, values, values.pop("topics"))
        limits = _LIMITS.get(do, ())
        if limits and all(values[name] is None for name in limits):
            self.refuse((*key, "do"), f"a limit: {', '.join(limits)}", "none")
        for first, end in _RANGES if do == "filter" else ():
            if values[first] is not None and values[end] is not None and values[first] >= values[end]:
                self.refuse((*key, end), f"more than `{first}`", str(given[end]))
        if do == "convert":
            try:
                _ = convert_options(stage).rules
            except MagicbyteError as error:
                self.refuse((*key, "do"), "a codec that the format and Kafka's version support", str(error))
        if do == "compare" and values["with"] is not None:
            values["with"] = self.whole(values["with"])
        return stage

    def check(self, stages: Sequence[Stage], sink: Path | str | None) -> None:
        """Refuse stages that contradict each other or the sink."""
        removed: str | None = None
        for at, stage in enumerate(stages):
            key = ("stage", at, "do")
            if sink is None and stage.do in WRITERS | {"records"}:
                self.refuse(key, "a [sink] for its output", "none")
            if stage.do == "compare" and stage.options["with"] is None and removed is not None:
                self.refuse(key, f"a path to compare `with`, for {removed} removes records", "none")
            if stage.do == "records" and at < len(stages) - 1:
                self.refuse(("stage", at + 1, "do"), "no stage after `records`", repr(stages[at + 1].do))
            if stage.do in _REMOVERS:
                removed = stage.do
        if not stages and sink is None:
            self.refuse(("stage",), "a [[stage]] or a [sink]", "neither")

    def check_clusters(
        self, sources: Sequence[PipelineSource], stages: Sequence[Stage], target: PipelineTarget | None
    ) -> None:
        """Refuse combinations that do not work with clusters."""
        is_live = any(source.bootstrap is not None for source in sources)
        if is_live and "sink" not in self.given:
            self.refuse(("source",), "a [sink] for the records of a cluster", "none")
        for at, stage in enumerate(stages):
            if is_live and stage.do == "compare" and stage.options["with"] is None:
                self.refuse(("stage", at, "do"), "a path to compare `with`, as a cluster is not read twice", "none")
            if target is not None and stage.do == "records":
                self.refuse(("stage", at, "do"), "a folder as [sink] for tables", "a cluster")
            if target is not None and stage.do == "mirror" and (at < len(stages) - 1 or stage.topics):
                self.refuse(("stage", at, "do"), "`mirror` of all topics as the last stage", "another")

    def sink(self) -> tuple[Path | str | None, Path | None, PipelineTarget | None]:
        """Return the sink and its scratch folder, or the target cluster."""
        given = self.read(("sink",), _SINK)
        path, scratch, bootstrap, group = (given[name] for name in ("path", "scratch", "bootstrap", "group"))
        if (path is None) == (bootstrap is None):
            self.refuse(("sink",), "a path or a bootstrap: one of both", "none" if path is None else "both")
        if bootstrap is not None:
            if scratch is not None:
                self.refuse(("sink", "scratch"), "none with a cluster", repr(scratch))
            return None, None, PipelineTarget(bootstrap, group or DEFAULT_GROUP, given["transactional-id"])
        for name in ("group", "transactional-id"):
            if given[name] is not None:
                self.refuse(("sink", name), "a bootstrap with it", repr(given[name]))
        inside = local_path(path)
        if inside is None:
            return path.rstrip("/"), None if scratch is None else self.home / scratch, None
        if scratch is not None:
            self.refuse(
                ("sink", "scratch"), "the URL of a store as path, for a folder is written in itself", repr(path)
            )
        return self.home / inside, None, None

    def settings(self) -> dict[str, str]:
        """Return the settings in the table [spark]."""
        table = self.given.get("spark", {})
        if not isinstance(table, dict):
            self.refuse(("spark",), "a table [spark]", repr(table))
        for name, value in table.items():
            if not name.startswith("spark."):
                self.refuse(("spark", name), "a setting of Spark, quoted, such as 'spark.executor.memory'", repr(name))
            if name == "spark.master":
                self.refuse(("spark", name), "none here: the option --master says it", repr(value))
            if not isinstance(value, (str, int, float)):
                self.refuse(("spark", name), "a text, a number, true or false", repr(value))
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()}


def convert_options(stage: Stage, *, dialect: Dialect | None = None, limit: int = 1 << 26) -> ConvertOptions:
    """Return the conversion options of a `convert` stage."""
    from magicbyte.engine.codecs import Codec

    given = stage.options
    return ConvertOptions(
        FORMATS[given["format"]],
        None if given["codec"] == "keep" else Codec[given["codec"].upper()],
        fix_lz4=given["fix-lz4"],
        version=given["kafka"],
        dialect=dialect,
        limit=limit,
        new_cluster=not given["same-cluster"],
    )
