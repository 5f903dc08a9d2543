"""What tests of several rooms make or do."""

import asyncio
from typing import Any


def run(work: Any, seconds: float = 60) -> Any:
    """Run a coroutine, for so long at most; return what it returns."""

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())
