"""One budget for the memory that peers make a process take: requests that were read, and what is made of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magicbyte.errors import BusyError

PATIENCE_S: Final = 30.0  # that a taker waits for its turn


class Budget:
    """Bytes in use, of a `limit` (0 or less: none). A taker that comes while any are left may go beyond.

    Requests take their size when they are read. Work on a request that is held already, such as decompression, takes
    its upper bound; of all work one part may always begin, whatever is in use, since requests are given back only when
    the work on them is done: two that wait for each other's memory would wait for good. Both are first come, first
    served, work before requests.
    """

    def __init__(self, limit: int, *, patience_s: float = PATIENCE_S) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._patience_s = patience_s
        self._working = 0
        self._requests = deque[_Turn]()
        self._work = deque[_Turn]()

    @property
    def _is_full(self) -> bool:
        return 0 < self.limit <= self.used

    async def take(self, size: int) -> None:
        """Wait until there is memory, and count `size` bytes as used. Raises BusyError when that takes too long."""
        if self._requests or self._is_full:
            await self._wait(self._requests, size)
        else:
            self.add(size)

    def add(self, size: int) -> None:
        """Count `size` bytes as used without waiting: of what is too small to matter."""
        self.used += size
        self.peak = max(self.peak, self.used)

    def give(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used -= size
        self._serve()

    @asynccontextmanager
    async def work(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes for a part of work. Raises BusyError when its turn takes too long to come."""
        if self._working and (self._work or self._is_full):
            await self._wait(self._work, size)
        else:
            self._begin(size)
        try:
            yield
        finally:
            self._working -= 1
            self.give(size)

    def _begin(self, size: int) -> None:
        self._working += 1
        self.add(size)

    async def _wait(self, queue: deque[_Turn], size: int) -> None:
        turn = _Turn(size)
        queue.append(turn)
        try:
            async with asyncio.timeout(self._patience_s):
                await turn.come
        except BaseException as error:
            if turn.come.done() and not turn.come.cancelled():  # it came in the same moment
                self._working -= queue is self._work
                self.give(size)
            elif turn in queue:
                queue.remove(turn)
            if isinstance(error, TimeoutError):
                raise BusyError(f"no memory for {size} bytes within {self._patience_s:g} s: {self.used} of "
                                f"{self.limit} are in use") from None  # fmt: skip
            raise

    def _serve(self) -> None:
        while self._work and not (self._working and self._is_full):
            turn = self._work.popleft()
            if not turn.come.done():
                self._begin(turn.size)
                turn.come.set_result(None)
        while self._requests and not self._is_full:
            turn = self._requests.popleft()
            if not turn.come.done():
                self.add(turn.size)
                turn.come.set_result(None)


class _Turn:
    __slots__ = ("come", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
