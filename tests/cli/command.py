"""Runs the command line inside the test's process: no command may change what it reads, or print other JSON than
docs/reference/json.md says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from cli import json_members
from magicbyte.cli.main import main
from magicbyte.cli.options import OutputPath
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN

WRITTEN = {
    ("mirror", "target"), ("rescue", "target"), ("serve", "directory"), ("metadata import", "directory"),
    ("metadata export", "directory"),  # SQLite makes and removes the files of its write-ahead log
    ("cluster up", "directory"), ("cluster down", "directory"), ("metadata format", "directory"),
}  # fmt: skip
"""Log directories that are written because they are named, by command and parameter."""
IN_PLACE = ("in_place", "write")
"""Flags with which a command changes what it reads."""
LOCK = ".lock"
_LARGEST_HASHED = 1 << 24  # of larger files the size and the time of change are compared

State = dict[str, tuple[int, str | None]]


def run(*arguments: str | Path) -> Result:
    """What a command line does: `exit_code`, `stdout`, `stdout_bytes`, `stderr`. No exception may leave it.

    All files and folders that it was given to read are the same afterwards, or this fails.
    """
    given = [str(each) for each in arguments]
    before = {path: state(path) for path in inputs(given)}
    result = CliRunner().invoke(main, given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    for path, found in before.items():
        assert state(path) == found, f"{' '.join(given)}: changed {path}, which it was to read"
    json_members.check(resolved(given)[0], given, result.exit_code, result.stdout)
    return result


def state(path: Path) -> State:
    """All names below a path, itself included, with their times of change and digests of their contents."""
    return {str(each): _file_state(each) for each in (path, *(path.rglob("*") if path.is_dir() else ()))}


def _file_state(path: Path) -> tuple[int, str | None]:
    about = path.lstat()
    if not path.is_file() or about.st_size > _LARGEST_HASHED:
        return about.st_mtime_ns, str(about.st_size)
    return about.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()


def inputs(arguments: Sequence[str]) -> list[Path]:
    """Return what a command line reads on this machine, but log directories that a running broker holds."""
    return [path for path in dict.fromkeys(_named(arguments)) if _exists(path) and not is_in_use(path)]


def resolved(arguments: Sequence[str]) -> tuple[str, click.Command, list[str]]:
    """Return the name of the command in a command line, the command, and its arguments."""
    command: click.Command = main
    name, rest = "", list(arguments)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            break
        command, name, rest = found, f"{name} {rest[0]}".strip(), rest[1:]
    return name, command, rest


def _named(arguments: Sequence[str]) -> Iterator[Path]:
    """Yield the paths in a command line that are no outputs; none of one that click refuses."""
    name, command, rest = resolved(arguments)
    try:
        values, _, _ = command.make_parser(click.Context(command)).parse_args(rest)
    except click.UsageError:
        return
    if any(values.get(flag) for flag in IN_PLACE):
        return
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if not isinstance(parameter.type, OutputPath) and (name, parameter.name) not in WRITTEN:
            yield from map(Path, _texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.removeprefix("file://")
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text that is no path
        return False


def is_in_use(path: Path) -> bool:
    """Say whether there are logs below a path that a broker has opened and not closed."""
    return path.is_dir() and any(not each.with_name(CLEAN_SHUTDOWN).exists() for each in path.rglob(LOCK))
