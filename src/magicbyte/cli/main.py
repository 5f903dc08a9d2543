"""The entry point of the command line: finds and runs a command, and converts errors to exit statuses.

Exit status: 0 sound, 1 damage found, 2 wrong use or a failure to write, 130 after Ctrl-C, 143 after SIGTERM, 141 when
the reader of stdout closed it. The modules of a command are imported only when it is called.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from magicbyte import __version__
from magicbyte.access.net.descriptors import raise_limit
from magicbyte.cli.base import CommandGroup, color_of_environment
from magicbyte.cli.output import complain, os_error_text, say
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.extras import EXTRAS, advise_by, install_by, missing_extra

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GROUPS = {
    "First": {
        "tour": "Demonstrate the commands on real logs of every Kafka version.",
    },
    "Logs on disk, without a broker": {
        "inventory": "Summarize logs: formats, codecs, offsets, times.",
        "space": "Show what fills logs: topics, ages, formats, keys.",
        "cat": "Print records, or write them as Arrow, Parquet, CSV.",
        "dump": "Print batches, indexes and snapshots, byte by byte.",
        "verify": "Check logs for damage, and advise how to repair it.",
        "doctor": "Say what is wrong with logs, and what to do.",
        "salvage": "Write every whole batch of damaged logs into new ones.",
        "rescue": "Restore an old backup into a cluster or a directory.",
        "convert": "Convert logs to another format or codec.",
        "diff": "Compare the records of two logs.",
        "rebuild-index": "Rebuild index files from logs, and compare.",
        "compact": "Keep the latest record of each key of a stopped broker's logs.",
        "retain": "Remove old records from a stopped broker's logs.",
    },
    "A running cluster, of any version": {
        "topics": "List, describe, create and delete topics.",
        "consume": "Print the records of a cluster's topic.",
        "produce": "Write lines to a cluster's topic.",
        "groups": "List, describe, delete and reset consumer groups.",
        "transactions": "List and describe transactions, find and abort hanging ones.",
        "configs": "Describe and change settings of topics and brokers.",
        "mirror": "Copy topics to another cluster, without decompression.",
        "plan": "Show the state of a format migration, its next step and cost.",
        "migrate": "Check an upgrade; migrate a message format step by step.",
    },
    "A broker, or a cluster of them": {
        "serve": "Run a broker for Kafka clients of every version.",
        "cluster": "Start, show and stop a cluster of brokers.",
        "metadata": "Show and compare a KRaft node's metadata; copy metadata to a ZooKeeper, or back.",
    },
    "Whole archives": {
        "pipeline": "Whole archives on Spark: verify, convert, compact, clean.",
    },
    "Message schemas": {
        "schema": "Compile message schemas; sizes, differences, advice.",
    },
    "This installation": {
        "completion": "Complete commands and options in bash, zsh and fish.",
        "warm": "Compile the fast paths now, not at their first use.",
    },
}
"""The commands, grouped by purpose, in the order of the help."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
"""A command's name, with underscores for hyphens, is also that of its module and of its function there."""

DAMAGE, WRONG_USE, INTERRUPTED, PIPE_CLOSED, TERMINATED = 1, 2, 130, 141, 143


class Commands(CommandGroup):
    """The group of all commands, each imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command, None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        atexit.register(gc.freeze)  # the interpreter's last collection would scan all imported objects, too
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # otherwise numpy starts threads, which no command uses
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"magicbyte.cli.{name}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command named by `args`. The error for an unknown one suggests a similar name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # it takes as long as everything else here

            close = difflib.get_close_matches(name, COMMANDS, 1)
            meant = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {name!r}: {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the lists of commands, without importing any."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in group.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line (default: the process's) and exit. The arguments are click's."""
        extra["standalone_mode"] = False
        _open_standard_streams()
        try:
            with _cleaning_up_at_signals():
                status = super().main(*args, **extra)
        except _Terminated:
            status = TERMINATED
        except (click.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "magicbyte"
            complain(f"{error.format_message()} ({command} --help explains)", color=error.show_color)
            status = WRONG_USE
        except click.ClickException as error:
            complain(error.format_message(), color=error.show_color)
            status = error.exit_code
        _drop_unwritten(sys.stdout)
        _drop_unwritten(sys.stderr)
        sys.exit(status or 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command. --help and --version print and exit here."""
        with _told():
            return super().make_context(*args, color=color_of_environment(), **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Convert expected errors to one line and an exit status."""
        raise_limit()
        clone = os.environ.get("MAGICBYTE_CLONE")
        if clone:
            install_by(functools.partial(_set_up, clone))
        advise_by(functools.partial(_advise, bool(clone)))
        with _told():
            return super().invoke(ctx)


def _set_up(clone: str, extra: str) -> None:
    """Install the packages of `extra` in a clone that uses ./magicbyte. Its progress is printed."""
    import subprocess  # takes milliseconds, so only if something is installed

    stage = "spark" if extra == "spark" else "run"
    subprocess.run(["sh", f"{clone}/tools/set_up.sh", stage], stdin=subprocess.DEVNULL, stdout=2, check=False)


def _advise(is_clone: bool, extra: str, what: str) -> None:
    """Print what is slow without the packages of `extra`, and the command that installs them."""
    command = "./magicbyte warm" if is_clone else f"pip install 'magicbyte[{extra}]'"
    say(f"{what}: slower without {EXTRAS[extra]}; `{command}` installs it", err=True)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Convert expected errors inside the block to one line and an exit status. Flush stdout at the end."""
    try:
        try:
            yield
        except click.exceptions.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except CorruptRecordError as error:
        status = DAMAGE
        complain(error)
    except MagicbyteError as error:
        status = WRONG_USE
        complain(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        status = WRONG_USE
        complain(missing)
    except _Terminated:
        status = TERMINATED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        status = PIPE_CLOSED
    except OSError as error:
        status = WRONG_USE
        complain(os_error_text(error))
    else:
        return
    raise click.exceptions.Exit(status)


def _drop_unwritten(stream: TextIO) -> None:
    """Discard text that cannot be written. The interpreter's own flush at exit would change the exit status."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


@contextlib.contextmanager
def _cleaning_up_at_signals() -> Iterator[None]:
    """Let SIGTERM end a command like Ctrl-C, so that incomplete outputs are removed. Some commands override it.

    Ctrl-C raises KeyboardInterrupt inside the block alone: while modules are imported (`__main__`), and while the
    interpreter ends, nothing would catch it.
    """
    handlers = {signal.SIGTERM: _terminate, signal.SIGINT: signal.default_int_handler}
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in handlers if is_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, handlers[number])
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class _Stdout(io.FileIO):
    """The process's stdout. Its errors name it, because the system's message has no file name."""

    def __init__(self) -> None:
        super().__init__(1, "w", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of `data`. Return the number of bytes."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, f"cannot write: {error.strerror}", "stdout") from error


def _open_standard_streams() -> None:
    """Open the standard streams that the shell closed (`>&-`), so that no other file gets their descriptors.

    Reading stdin and writing stdout then fail, which matters only to commands that do so. Output to stderr is lost.
    """
    for number, stream, mode in (
        (0, sys.stdin, os.O_WRONLY),
        (1, sys.stdout, os.O_RDONLY),
        (2, sys.stderr, os.O_WRONLY),
    ):
        if stream is None:
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue  # open, but unusable, as on Windows without a console
            descriptor = os.open(os.devnull, mode)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), errors="backslashreplace")
    given = sys.stdout
    if given is None:
        sys.stdout = _text_of_stdout("utf-8", "strict", line_buffering=False)
    elif given is sys.__stdout__ and isinstance(given, io.TextIOWrapper):
        sys.stdout = _text_of_stdout(given.encoding, given.errors or "strict", line_buffering=given.line_buffering)


def _text_of_stdout(encoding: str, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(cast("io.FileIO", _Stdout()))
    return io.TextIOWrapper(buffer, encoding=encoding, errors=errors, line_buffering=line_buffering)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 sound, 1 damage found, 2 wrong use. Data goes to stdout, all else to stderr.",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Read, verify, convert, compact, mirror and serve every Kafka message format.

    A PATH is a .log file, a partition folder, a log directory (Kafka's log.dir) or a folder of log directories, on
    this machine or as a URL that fsspec knows (s3://, hdfs://, memory:// and others).
    """
