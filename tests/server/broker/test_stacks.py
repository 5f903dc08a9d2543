"""The modules that a Produce and a Fetch pass, from the frame to the log: none is entered again from below.

A stack is the modules from the dispatcher down to a call, each run of one once. A callback into a module above would
show as a module that stands twice. The codec of messages counts as one module. `pytest -s` prints the stacks.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from magicbyte.engine.protocol import Message, write_request
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.serving.request import ClientConnection
from server.broker.serving import Running

ROOT = "magicbyte."
TOP = "magicbyte.server.serving.dispatch"
CODEC = "magicbyte.engine.protocol"


def modules_of(frame: FrameType | None) -> Iterator[str]:
    """Yield our modules from a frame upwards to the dispatcher, each run of one once."""
    last = ""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        name = CODEC if name.startswith(CODEC) else name
        if name.startswith(ROOT) and name != last:
            yield name
            last = name
        if name == TOP and frame.f_code.co_name == "__call__":
            return
        frame = frame.f_back


async def stacks_of(folder: Path, message: Message, version: int) -> set[tuple[str, ...]]:
    """Return the stacks of all calls while a request is answered on the event loop."""
    found = set[tuple[str, ...]]()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(ROOT):
            stack = tuple(modules_of(frame))[::-1]
            if stack[0] == TOP:
                found.add(stack)

    async with Running(folder) as broker:
        await broker.topics.create("topic")
        handle = broker.handler_of(ClientConnection("127.0.0.1", "peer", broker.config.listeners[0]))
        frame = memoryview(bytearray(bytes(write_request(message, version, correlation_id=1, client_id="c"))[4:]))
        await handle(memoryview(bytearray(frame)))  # imports, and opens the log
        sys.setprofile(note)
        try:
            await handle(frame)
        finally:
            sys.setprofile(None)
    return found


ONE = encode_records([Record(0, 1_700_000_000_000, 0, None, b"value")], Format.V2)
REQUESTS = {
    "Produce": (
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="topic", partition_data=[PartitionProduceData(index=0, records=memoryview(bytes(ONE)))]
                )
            ],
        ),
        8,
    ),
    "Fetch": (
        FetchRequest(
            max_wait_ms=0,
            topics=[
                FetchTopic(
                    topic="topic",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        ),
        11,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_module_is_entered_again_from_below(name: str, folder: Path) -> None:
    stacks = asyncio.run(stacks_of(folder, *REQUESTS[name]))
    longest = {stack for stack in stacks if not any(other[: len(stack)] == stack for other in stacks - {stack})}
    for stack in sorted(longest):
        print(" > ".join(each.removeprefix(ROOT) for each in stack))
    assert [stack for stack in stacks if len(set(stack)) < len(stack)] == []
