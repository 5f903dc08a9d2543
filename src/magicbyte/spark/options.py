"""Parse the options of the data source. Names and meanings are those of Spark's Kafka source where it has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from magicbyte.access.security.settings import SETTINGS, ClientSecurity
from magicbyte.engine.addresses import addresses
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.filesystem import listed_paths, path_exists
from magicbyte.engine.log.files.reader import Isolation
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.layout import Dialect

EARLIEST, LATEST = -2, -1  # as in the JSON of Spark's Kafka source
MODES = ("deep", "shallow")
_KNOWN = (
    "path", "paths", "mode", "columns", "assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "includeHeaders", "minPartitions", "failOnDataLoss", "isolation",
    "kafka.isolation.level", "dialect", "maxBatchBytes", "onDamage", "onFarTimestamp", "as",
    "kafka.bootstrap.servers", "pushFilters",
)  # fmt: skip
_OF_STREAMS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "upTo")
NOT_OF_STREAMS = (
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters",
)  # fmt: skip
_OF_FILES = ("path", "paths", "onDamage", "as", "maxBytesPerTrigger", "upTo")
SCHEME = "kafka://"
_OF_CLIENT = "kafka."


class OptionError(MagicbyteError):
    """Raised for an unknown option of the data source, or an invalid value; says what was expected."""


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends: an offset, EARLIEST, LATEST, or the first record from a timestamp (ms) on."""

    offset: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options of a query or stream. `starts` and `ends` are per partition, and default to `start` and `end`.

    Either `paths` or `bootstrap`, the brokers of a cluster, with the client settings `security`. The last three are for
    streams only.
    """

    paths: tuple[str, ...]
    bootstrap: str | None = None
    mode: str = "deep"
    columns: tuple[str, ...] | None = None
    assign: frozenset[TopicPartition] | None = None
    subscribe: frozenset[str] | None = None
    pattern: str | None = None
    start: Bound = Bound(offset=EARLIEST)
    end: Bound = Bound(offset=LATEST)
    starts: Mapping[TopicPartition, Bound] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Bound] = field(default_factory=dict)
    start_strategy: str = "error"
    include_headers: bool = False
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    dialect: Dialect | None = None
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    skip_damage: bool = False
    far_timestamps_are_null: bool = False
    as_: str | None = None
    push_filters: bool = False
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_offsets: int = 0
    max_bytes: int = 0
    up_to_high_watermark: bool = False


def parse_options(given: Mapping[str, str], *, stream: bool = False) -> SourceOptions:
    """Return the parsed options of a query, or of a stream. Names are case-insensitive. Raises OptionError."""
    of_streams = [name for name in (*_KNOWN, *_OF_STREAMS) if name not in NOT_OF_STREAMS]
    given, security = of_security(given)
    options = known_options(given, of_streams if stream else _KNOWN)
    if len({"assign", "subscribe", "subscribePattern"} & options.keys()) > 1:
        raise OptionError("only one of assign, subscribe and subscribePattern can be given")
    bootstrap = _cluster(options)
    check_has_use(security, bootstrap)
    starts = _bounds(
        options, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", EARLIEST, stream=stream
    )
    ends = _bounds(options, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", LATEST)
    mode = _choice(options, "mode", MODES)
    isolation = options.get("isolation", options.get("kafka.isolation.level", "read_uncommitted"))
    if mode == "shallow" and isolation.lower() == Isolation.READ_COMMITTED.value:
        raise OptionError("isolation=read_committed is for records: expected mode=deep")
    return SourceOptions(
        paths=() if bootstrap is not None else _paths(options),
        bootstrap=bootstrap,
        mode=mode,
        columns=_some(options, "columns"),
        assign=_assign(options["assign"]) if "assign" in options else None,
        subscribe=None if (topics := _some(options, "subscribe")) is None else frozenset(topics),
        pattern=_pattern(options.get("subscribePattern")),
        start=starts[0],
        starts=starts[1],
        end=ends[0],
        ends=ends[1],
        start_strategy=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest")),
        include_headers=_flag(options, "includeHeaders", default=False),
        min_partitions=_number(options, "minPartitions", 0),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        isolation=Isolation(_choice({"isolation": isolation}, "isolation", [each.value for each in Isolation])),
        dialect=Dialect(_choice(options, "dialect", [each.value for each in Dialect]))
        if "dialect" in options
        else None,
        max_batch_bytes=_number(options, "maxBatchBytes", DEFAULT_MAX_BATCH_BYTES, least=1),
        skip_damage=_choice(options, "onDamage", ("stop", "skip")) == "skip",
        far_timestamps_are_null=_choice(options, "onFarTimestamp", ("stop", "null")) == "null",
        as_=options.get("as"),
        push_filters=_flag(options, "pushFilters", default=False),
        security=security,
        max_offsets=_number(options, "maxOffsetsPerTrigger", 0),
        max_bytes=_number(options, "maxBytesPerTrigger", 0),
        up_to_high_watermark=_choice(options, "upTo", ("end", "highwatermark")) == "highwatermark",
    )


def of_security(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the other options, and the client settings of a secured cluster, whose names begin with `kafka.`.

    References to secrets, such as ${env:NAME}, are not resolved here, but when a client connects.
    """
    others, security = {}, {}
    for name, value in given.items():
        setting = name.lower().removeprefix(_OF_CLIENT)
        if name.lower().startswith(_OF_CLIENT) and setting in SETTINGS:
            security[setting] = value
        else:
            others[name] = value
    return others, security


def check_has_use(security: Mapping[str, str], bootstrap: str | None) -> None:
    """Raise OptionError for settings of a secured cluster without a cluster."""
    if security and bootstrap is None:
        raise OptionError(f"option {_OF_CLIENT}{next(iter(security))}: for a cluster only, not for logs in files")


def credentials_of(security: Mapping[str, str]) -> ClientSecurity | None:
    """Return the security settings of a client. Reads files. Raises InvalidConfigError."""
    return ClientSecurity.of(security) if security else None


def known_options(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options with the canonical spelling of their names. Raises OptionError for unknown ones."""
    known = {name.lower(): name for name in names}
    unknown = [name for name in given if name.lower() not in known]
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}: expected one of {', '.join(sorted(names))}")
    return {known[name.lower()]: value for name, value in given.items()}


def _cluster(options: dict[str, str]) -> str | None:
    """Return the brokers, None for logs in files. A topic in a `kafka://` address becomes an option of its own."""
    bootstrap, path = options.get("kafka.bootstrap.servers"), options.get("path", "")
    if bootstrap is None and path.startswith(SCHEME):
        del options["path"]
        bootstrap, _, topic = path.removeprefix(SCHEME).partition("/")
        name, _, number = topic.partition("/")
        chosen = {"assign", "subscribe", "subscribePattern"} & options.keys()
        if not bootstrap or (number and not number.isdecimal()) or (topic and chosen):
            raise OptionError(f"path: expected {SCHEME}HOST:PORT, with /TOPIC or /TOPIC/PARTITION, found {path!r}")
        if number:
            options["assign"] = json.dumps({name: [int(number)]})
        elif name:
            options["subscribe"] = name
    if bootstrap is None:
        return None
    try:
        addresses(bootstrap)
    except ValueError as error:
        raise OptionError(f"option kafka.bootstrap.servers: {error}") from error
    if wrong := [name for name in _OF_FILES if name in options]:
        raise OptionError(f"option {wrong[0]}: for logs in files only, not for a cluster")
    if not {"assign", "subscribe", "subscribePattern"} & options.keys():
        raise OptionError("a cluster: expected one of assign, subscribe and subscribePattern, found none")
    return bootstrap


def _refuse(name: str, expected: str, found: object) -> NoReturn:
    raise OptionError(f"option {name}: expected {expected}, found {found!r}")


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("path", "")
    if "paths" in options:  # from load([...])
        paths = tuple(json.loads(options["paths"]))
    else:
        paths = _path_list(text)
    if not paths:
        raise OptionError("no path: give the option path, or load(PATH); several are separated by commas")
    return tuple(map(whole_path, paths))


def _path_list(text: str) -> tuple[str, ...]:
    """Return the paths of the option `path`: a JSON list, or separated by commas."""
    if text.startswith("[") and not path_exists(text):
        return tuple(map(str, _json("path", text, list)))
    return tuple(listed_paths(text))


def whole_path(path: str) -> str:
    """Return a local path as an absolute one: workers have other current folders."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _choice(options: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    value = options.get(name, allowed[0]).lower()
    return value if value in allowed else _refuse(name, " or ".join(allowed), value)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    return value == "true" if value in ("true", "false") else _refuse(name, "true or false", value)


def _number(options: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = options.get(name, str(default))
    is_number = re.fullmatch(r"[0-9]+", text) and int(text) >= least
    return int(text) if is_number else _refuse(name, f"a number, {least} or more", text)


def _some(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the names in an option, None if it is not given. An empty list is refused as ambiguous."""
    if name not in options:
        return None
    return _names(options[name]) or _refuse(name, "some names, separated by commas", options[name])


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            _refuse("subscribePattern", f"a regular expression ({error})", text)
    return text


def _json(name: str, text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, kind) else _refuse(name, f"a JSON {'object' if kind is dict else 'list'}", text)


def _assign(text: str) -> frozenset[TopicPartition]:
    value = _json("assign", text, dict)
    if not value or not all(isinstance(numbers, list) and numbers for numbers in value.values()):
        _refuse("assign", '{"topic": [0, 1]}', text)
    if not all(type(number) is int for numbers in value.values() for number in numbers):
        _refuse("assign", '{"topic": [0, 1]}', text)
    return frozenset(TopicPartition(topic, number) for topic, numbers in value.items() for number in numbers)


def _bounds(
    options: Mapping[str, str], offsets: str, timestamp: str, by_timestamp: str, default: int, *, stream: bool = False
) -> tuple[Bound, dict[TopicPartition, Bound]]:
    """Return the bound of all partitions, and those of single ones. A timestamp for all has precedence, then one each.

    A stream may start at the latest offset, and does so by default, as in Spark's Kafka source.
    """
    if timestamp in options:
        return Bound(timestamp=_number(options, timestamp, 0)), {}
    if by_timestamp in options:
        bounds = _by_partition(by_timestamp, options[by_timestamp])
        return Bound(offset=default), {partition: Bound(timestamp=value) for partition, value in bounds.items()}
    text = options.get(offsets, "earliest" if default == EARLIEST and not stream else "latest")
    if text.lower() in ("earliest", "latest"):
        value = EARLIEST if text.lower() == "earliest" else LATEST
        if value != default and not stream:
            end = "startingOffsets cannot be latest" if default == EARLIEST else "endingOffsets cannot be earliest"
            raise OptionError(f"{end} for a batch query")
        return Bound(offset=value), {}
    bounds = _by_partition(offsets, text)
    for partition, offset in bounds.items():
        if offset < 0 and offset != default and not (stream and offset == LATEST):
            _refuse(offsets, f"an offset or {default} for {partition.topic}-{partition.partition}", offset)
    return Bound(offset=default), {partition: Bound(offset=value) for partition, value in bounds.items()}


def _by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    bounds = {}
    for topic, numbers in _json(name, text, dict).items():
        if not isinstance(numbers, dict):
            _refuse(name, '{"topic": {"0": 23}}', text)
        for number, value in numbers.items():
            if not re.fullmatch(r"[0-9]+", number) or type(value) is not int:
                _refuse(name, '{"topic": {"0": 23}}', text)
            bounds[TopicPartition(topic, int(number))] = value
    return bounds
