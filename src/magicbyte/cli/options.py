"""Options shared by several commands, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from magicbyte.engine.addresses import addresses
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.units import duration_ms, size_of
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect
from magicbyte.public.sources import default_threads

if TYPE_CHECKING:
    _PathType = click.ParamType[Path]
else:
    _PathType = click.ParamType  # generic only from click 8.2 on

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 2**31 - 1


def size(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Option callback: return the bytes of a size such as 1048576, 64MiB or 1g. Units are powers of 1024."""
    number = size_of(value)
    if number is None or not 0 < number <= _MOST:
        raise click.BadParameter(f"{value!r}: expected 1 to {_MOST} bytes, such as 1048576 or 64MiB")
    return number


def duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Option callback: return the ms of a duration such as 7d, 12h or 500ms."""
    found = None if value is None else duration_ms(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r}: expected a time such as 7d, 12h, 30m, 45s or 500ms")
    return found


def partition_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> TopicPartition | None:
    """Option callback: return the partition named TOPIC-N."""
    from magicbyte.engine.log.files.directory import parse_topic_partition

    try:
        return None if value is None else parse_topic_partition(value)
    except LogDirectoryError as error:
        raise click.BadParameter(str(error)) from error


def dialect_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Dialect | None:
    """Option callback: return the dialect of this name."""
    return None if value is None else Dialect(value)


_AS_JSON = "magicbyte.json"  # in the context's meta: set by --json before other options are parsed


def json_option(form: str = "json") -> Callable[[F], F]:
    """Add --json, short for `--format` with this value. The callback of --format must be `form_of`."""

    def note(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given:
            context.meta[_AS_JSON] = form

    return click.option("--json", is_flag=True, is_eager=True, expose_value=False, callback=note,
                        help=f"The same as --format {form}.")  # fmt: skip


def form_of(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Option callback: return the format from --json or --format."""
    found: str | None = context.meta.get(_AS_JSON, value)
    return found


def format_option(command: F) -> F:
    """Add --format, text or json, as `form`; and --json."""
    choice = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
                          callback=form_of)  # fmt: skip
    return json_option()(choice(command))


class OutputPath(_PathType):
    """A local file or folder that a command writes: a Path, from a path or a file: URL.

    A command with such an option calls `refuse_overlap`; tests/cli/test_outputs.py lists all of them.
    """

    name = "path"

    def __init__(self, *, folder: bool = False) -> None:
        self._folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Refuses URLs of other stores and, if a folder is written, other files."""
        if isinstance(value, Path):
            return value
        from magicbyte.engine.log.files.outputs import local_output

        try:
            return local_output(str(value), folder=self._folder)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def log_directory_or_none(value: str, option: str) -> Path | None:
    """Return the log directory named by a value with a slash, None for brokers. Raises BadParameter."""
    from magicbyte.engine.log.files.filesystem import local_path

    local = local_path(value)
    if local is None:  # the URL of something else: as a path it would be a folder named by its scheme
        raise click.BadParameter(
            f"{value!r}: expected HOST:PORT, such as localhost:9092, or a log directory of this machine, such as ./x",
            param_hint=option,
        )
    path = Path(local)
    if "/" in value or value in (".", ".."):
        if path.exists() and not path.is_dir():
            raise click.BadParameter(f"{value} is no directory", param_hint=option)
        return path
    try:
        addresses(value)
    except ValueError as error:
        wanted = "" if ":" in value else f", or a log directory, such as ./{value}"
        raise click.BadParameter(f"{error}{wanted}", param_hint=option) from error
    return None


class FormatName(click.Choice):  # type: ignore[type-arg]  # not generic before click 8.2
    """A message format: by its name v2, its magic byte 2, or a Kafka release that wrote it, 0.11 or 4.3."""

    def __init__(self, *others: str) -> None:
        super().__init__(["v0", "v1", "v2", *others])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the Format."""
        from magicbyte.engine.records.encode import Format
        from magicbyte.engine.releases import newest_magic, numbers

        if isinstance(value, Format):
            return value
        if value in ("0", "1", "2"):
            value = f"v{value}"
        elif isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)+", value):
            value = f"v{newest_magic(numbers(value))}"
        return Format(str(super().convert(value, param, ctx)).removeprefix("v"))


def key_values(settings: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE arguments by key. Raises BadParameter."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}: expected KEY=VALUE", param_hint="settings")
        values[name.strip()] = value.strip()
    return values


def paths_argument(command: F) -> F:
    """Add PATH…, one or more."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(command)


def as_option(command: F) -> F:
    """Add --as: `as_`, a TopicPartition or None."""
    return click.option(
        "--as",
        "as_",
        callback=partition_name,
        metavar="TOPIC-N",
        help="Topic and partition of the one partition at PATH, when its folder is not named TOPIC-N.",
    )(command)


def dialect_option(command: F) -> F:
    """Add --dialect: a Dialect, or None for that of the folder."""
    return click.option(
        "--dialect",
        type=click.Choice([each.value for each in Dialect]),
        callback=dialect_name,
        help="How to read magic byte 1: Kafka's own format, or the enriched one. "
        "[default: that of a message.dialect file in the folder, else kafka]",
    )(command)


def on_damage_option(command: F) -> F:
    """Add --on-damage: stop or skip."""
    return click.option(
        "--on-damage",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        help="At damaged bytes: stop, or report them and continue after them. The exit status is 1 either way.",
    )(command)


def max_batch_bytes_option(command: F) -> F:
    """Add --max-batch-bytes: an int."""
    return click.option(
        "--max-batch-bytes",
        callback=size,
        default="64MiB",
        show_default=True,
        metavar="SIZE",
        help="Bytes that one batch may have, or decompress to.",
    )(command)


def threads_option(command: F) -> F:
    """Add --threads: an int, at least 1."""
    return click.option(
        "--threads",
        type=click.IntRange(1, 256),
        default=default_threads,
        show_default="one per core, 4 at most",
        metavar="N",
        help="Threads that decompress and decode.",
    )(command)


new_cluster_option = click.option(
    "--new-cluster/--same-cluster", default=True, show_default=True,
    help="Write magic 2 for another cluster: leader epochs 0, producer ids only in transactional batches, open "
    "transactions ended. Or keep all of these.",
)  # fmt: skip
