"""What tests of several rooms make or do."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

from magicbyte.engine.records.columns import Record

T = TypeVar("T")


class TestLoop(asyncio.SelectorEventLoop):
    """An event loop over real sockets whose clock a test can turn forward. `limit`: the time limit of the test."""

    __test__ = False
    limit: asyncio.Timeout
    _ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_s

    def pass_time(self, seconds: float) -> None:
        self._ahead_s += seconds
        when = self.limit.when()
        assert when is not None
        self.limit.reschedule(when + seconds)


def run(work: Any, seconds: float = 60) -> Any:
    """Run a coroutine, for so long at most; return what it returns. It can call `pass_time`."""
    loop = TestLoop()

    async def bounded() -> Any:
        async with asyncio.timeout(seconds) as loop.limit:
            return await work

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(bounded())


def pass_time(seconds: float) -> None:
    """Turn the clock of the test's event loop forward: timers that become due fire at once.

    The limit of the test, wall clocks, and brokers on threads of their own do not notice.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TestLoop)
    loop.pass_time(seconds)


async def hurried(work: Awaitable[T], seconds: float) -> T:
    """Return what `work` returns, while so much time passes in little time; then it passes as usual."""
    task, steps = asyncio.ensure_future(work), 100
    for _ in range(steps):
        await asyncio.wait({task}, timeout=0.005)
        if task.done():
            break
        pass_time(seconds / steps)
    return await task


def base64_text(cell: bytes | None) -> str | None:
    """Return bytes as a cell in JSON, None for null."""
    return None if cell is None else base64.b64encode(cell).decode()


def unbase64(text: str | None) -> bytes | None:
    """Return the bytes of a cell in JSON, None for null."""
    return None if text is None else base64.b64decode(text)


def add_run(path: Path, figures: dict[str, Any]) -> None:
    """Add the figures of a run to a file with a JSON list of runs; make the file if there is none."""
    runs = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*runs, figures], indent=1) + "\n")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by their paths in it."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def valued(*values: bytes) -> list[Record]:
    """Return records to be sent: without keys, and with the time at which they are."""
    return [Record(0, -1, 0, None, value) for value in values]


async def as_it_is(node: Any) -> Any:
    """Return `node` unchanged."""
    return node


def tries(most: int) -> settings:
    """Settings for so many of Hypothesis' examples: fewer in a profile that has fewer than its usual 100."""
    return settings(max_examples=most * settings.default.max_examples // 100)


def first_of(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Values as `parametrize` takes them, of a test that is slow: CI runs the first ones, the others are a campaign."""
    return [*values[:count], *(pytest.param(each, marks=pytest.mark.campaign) for each in values[count:])]


def in_turn(rows: Sequence[Any], columns: Sequence[Any]) -> list[ParameterSet]:
    """All pairs as `parametrize` takes them, of a test that is slow: CI runs each row with one column, in turn.

    The other pairs are a campaign.
    """
    return [
        pytest.param(row, column, marks=() if at % len(columns) == place else pytest.mark.campaign)
        for at, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


def one_pair_of_each(rows: Sequence[Any], columns: Sequence[Any]) -> list[ParameterSet]:
    """All pairs as `parametrize` takes them: each row with one column, and each column with some row, is in every run.

    The other pairs are marked slow.
    """
    return [
        pytest.param(
            row, column, marks=() if at % len(columns) == place or place % len(rows) == at else pytest.mark.slow
        )
        for at, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]
