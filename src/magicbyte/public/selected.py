"""Which records to read: the arguments that `Log.records`, `arrow_batches`, `to_arrow` and `records` have in common.

They are keyword arguments, as in pandas and pyarrow, and not an object to build first. `Selected` declares them once,
for type checkers; `spelled_out` for `help()` and notebooks. `Query` is what they ask for, after all checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from magicbyte.engine.log.files.reader import EVERYTHING, Selection, stop_at_damage
from magicbyte.engine.log.files.reader import Isolation as IsolationLevel
from magicbyte.engine.log.files.units import parse_time, time_ms
from magicbyte.public.sources import default_threads

if TYPE_CHECKING:
    from magicbyte.engine.log.files.reader import DamageHandler

Isolation = Literal["read_uncommitted", "read_committed"]
Time = str | int | datetime
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Selected(TypedDict, total=False):
    """Keyword arguments that select records, and how to read them; `Log.records` describes them."""

    start: int | None
    end: int | None
    since: Time | None
    until: Time | None
    isolation: Isolation
    threads: int | None
    on_damage: DamageHandler | None


_DEFAULTS: Final[Selected] = {
    "start": None,
    "end": None,
    "since": None,
    "until": None,
    "isolation": "read_uncommitted",
    "threads": None,
    "on_damage": None,
}


def spelled_out(function: _Function) -> _Function:
    """Return `function` with the arguments of its last parameter, `**selected: Unpack[Selected]`, in its signature."""
    signature = inspect.signature(function)
    *others, _ = signature.parameters.values()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_annotation(name))
        for name, default in _DEFAULTS.items()
    ]
    function.__signature__ = signature.replace(parameters=[*others, *shared])  # type: ignore[attr-defined]
    return function


def _annotation(name: str) -> str:
    return str(Selected.__annotations__[name].__forward_arg__)


@dataclass(frozen=True, slots=True)
class Query:
    """Which records of which partitions to read, and how."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    selection: Selection
    threads: int
    on_damage: DamageHandler

    @classmethod
    def of(cls, topic: str | None, partition: int | None, selected: Selected) -> Query:
        """Return the query of a call. Raises ValueError; TypeError for an unknown argument."""
        if unknown := set(selected) - set(_DEFAULTS):
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}: expected some of {', '.join(_DEFAULTS)}")
        given: Selected = {**_DEFAULTS, **selected}
        start, end, isolation = given["start"], given["end"], given["isolation"]
        _check_range(start, end)
        levels = {level.value: level for level in IsolationLevel}
        if isolation not in levels:
            raise ValueError(f"isolation={isolation!r}: expected {' or '.join(map(repr, levels))}")
        return cls(
            () if topic is None else (topic,),
            () if partition is None else (partition,),
            Selection(
                start or 0,
                EVERYTHING.end if end is None else end,
                since=_milliseconds("since", given["since"]),
                until=_milliseconds("until", given["until"]),
                isolation=levels[isolation],
            ),
            checked_threads(given["threads"]),
            given["on_damage"] or stop_at_damage,
        )


def checked_threads(threads: int | None) -> int:
    """Return the number of threads to use. Raises ValueError."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: expected 1 or more")
    return default_threads() if threads is None else threads


def _check_range(start: int | None, end: int | None) -> None:
    for name, offset in (("start", start), ("end", end)):
        if offset is not None and offset < 0:
            raise ValueError(f"{name}={offset}: expected an offset, 0 or more")
    if end is not None and end < (start or 0):
        raise ValueError(f"end={end}: expected an offset from {start} (start) on")


def _milliseconds(name: str, value: Time | None) -> int | None:
    """Return the ms since 1970 of an argument. Raises ValueError."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return time_ms(value)
    try:
        return parse_time(value)
    except (ValueError, OverflowError) as error:
        expected = "expected a time such as 2016-11-01 or 2016-11-01T12:00:00Z, a datetime, or ms since 1970"
        raise ValueError(f"{name}={value!r}: {expected}") from error
