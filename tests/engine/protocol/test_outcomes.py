"""Error codes of answers: none is passed over, wherever it is."""

import sys
from collections import Counter
from typing import Any

import pytest
from msgspec import Struct

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatResponse
from magicbyte.engine.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from magicbyte.engine.protocol.outcomes import codes_of


def counted(message: Any) -> Counter[int]:
    codes: list[int] = []
    collect = codes_of(type(message))
    assert collect is not None
    collect(message, codes)
    return Counter(codes)


def test_each_partition_of_an_answer_counts_for_itself() -> None:
    parts = [PartitionProduceResponse(error_code=code) for code in (0, 0, ErrorCode.CORRUPT_MESSAGE)]
    topics = [TopicProduceResponse(partition_responses=parts), TopicProduceResponse(partition_responses=parts[2:])]
    assert counted(ProduceResponse(responses=topics)) == {0: 2, 2: 2}


def test_what_an_answer_says_of_itself_counts_too() -> None:
    assert counted(HeartbeatResponse(error_code=27)) == {27: 1}
    topic = FetchableTopicResponse(partitions=[PartitionData(error_code=1)])
    assert counted(FetchResponse(error_code=0, responses=[topic])) == {0: 1, 1: 1}


def full(kind: type[Struct], module: dict[str, Any]) -> tuple[Any, int]:
    """Return a message with one row in each of its lists, and how many error codes it has a place for."""
    values: dict[str, Any] = {}
    places = 0
    for field in kind.__struct_fields__:
        annotation = kind.__annotations__[field]
        row = module.get(annotation.removeprefix("list[").split("]")[0].removesuffix(" | None"))
        if field in ("error_code", "partition_error_code"):
            places += 1
        elif isinstance(row, type) and issubclass(row, Struct):
            value, below = full(row, module)
            values[field] = [value] if annotation.startswith("list") else value
            places += below
    return kind(**values), places


@pytest.mark.parametrize("key", sorted(APIS))
def test_no_place_for_an_error_code_is_passed_over(key: int) -> None:
    kind = APIS[key].response
    message, places = full(kind, vars(sys.modules[kind.__module__]))
    collect = codes_of(kind)
    codes: list[int] = []
    if collect is not None:
        collect(message, codes)
    assert len(codes) == places
