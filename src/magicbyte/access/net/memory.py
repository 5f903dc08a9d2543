"""One budget for the memory of peers' requests, and of the work on them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from magicbyte.engine.errors import BusyError

PATIENCE_S: Final = 30.0  # the longest wait for memory


class Budget:
    """The bytes in use, of a `limit` (0 or less: unlimited). A request may exceed it as long as any are left before it.

    There are three kinds of memory, each held while the next is awaited: requests take their size when they are read,
    large messages that of their objects, and work on them, such as decompression, its upper bound. One message and one
    piece of work may always begin, whatever is in use: otherwise requests that wait for each other's memory would wait
    for ever. Each kind is first come, first served; work takes precedence over messages, and these over requests.
    """

    def __init__(self, limit: int, *, patience_s: float = PATIENCE_S) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._patience_s = patience_s
        self._requests = _Line(always_one=False)
        self._messages, self._work = _Line(always_one=True), _Line(always_one=True)

    @property
    def _is_full(self) -> bool:
        return 0 < self.limit <= self.used

    async def take(self, size: int) -> None:
        """Wait for memory, and count `size` bytes as used. Raises BusyError after a timeout."""
        if self._requests.turns or self._is_full:
            await self._wait(self._requests, size)
        else:
            self.add(size)

    def add(self, size: int) -> None:
        """Count `size` bytes as used without waiting, for small amounts."""
        self.used += size
        self.peak = max(self.peak, self.used)

    def give(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used -= size
        self._serve()

    def message(self, size: int) -> AbstractAsyncContextManager[None]:
        """Hold `size` bytes while a message is parsed and answered. Raises BusyError as `work` does."""
        return self._hold(self._messages, size)

    def work(self, size: int) -> AbstractAsyncContextManager[None]:
        """Hold `size` bytes for a piece of work, which must not nest.

        Raises BusyError after a timeout.
        """
        return self._hold(self._work, size)

    @asynccontextmanager
    async def _hold(self, line: _Line, size: int) -> AsyncIterator[None]:
        if not line.may_begin and (line.turns or self._is_full):
            await self._wait(line, size)
        else:
            line.begin()
            self.add(size)
        try:
            yield
        finally:
            line.end()
            self.give(size)

    async def _wait(self, line: _Line, size: int) -> None:
        turn = _Turn(size)
        line.turns.append(turn)
        try:
            async with asyncio.timeout(self._patience_s):
                await turn.come
        except BaseException as error:
            if turn.come.done() and not turn.come.cancelled():  # granted at the same moment
                line.end()
                self.give(size)
            elif turn in line.turns:
                line.turns.remove(turn)
            if isinstance(error, TimeoutError):
                raise BusyError(f"no memory for {size} bytes within {self._patience_s:g} s: {self.used} of "
                                f"{self.limit} are in use") from None  # fmt: skip
            raise

    def _serve(self) -> None:
        for line in (self._work, self._messages, self._requests):
            while line.turns and (not self._is_full or line.may_begin):
                turn = line.turns.popleft()
                if not turn.come.done():
                    line.begin()
                    self.add(turn.size)
                    turn.come.set_result(None)


class _Turn:
    __slots__ = ("come", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Line:
    """The queue for memory of one kind. `always_one`: one holder may begin whatever is in use."""

    __slots__ = ("_always_one", "_begun", "turns")

    def __init__(self, *, always_one: bool) -> None:
        self._always_one = always_one
        self._begun = 0  # holders, counted with `always_one`
        self.turns = deque[_Turn]()

    @property
    def may_begin(self) -> bool:
        """Whether the next one may begin, even if all memory is in use."""
        return self._always_one and not self._begun

    def begin(self) -> None:
        self._begun += self._always_one

    def end(self) -> None:
        self._begun -= self._always_one
