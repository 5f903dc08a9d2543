"""Fetches that were captured at real brokers, sent to ours as they are over the same logs: the same codes and offsets;
where Kafka sends the stored bytes, the same bytes; where it converts, the same records.

Judged by a reader that shares nothing with the product (`wire_reader`).
"""

import asyncio
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import golden_data
from builders import run
from golden_data import WireCase
from server.broker.serving import Peer, Running
from wire_reader import FetchAnswer, Read, entries, fetch_answer, head, records

MAGIC_OF_VERSION = (0, 0, 1, 1)
CASES = [case for name in golden_data.wire_brokers() for case in golden_data.wire_cases(name, "fetch-")]
ALIKE = ("correlation_id", "throttle_ms", "request_error", "session", "topic", "partition", "preferred_replica")
AT_ONCE = 40  # some wait at the end of a log
OFFSETS = ("high_watermark", "last_stable", "log_start")


def exchanges(case: WireCase) -> Iterator[tuple[str, bytes, FetchAnswer, dict[str, Any]]]:
    """Label, request, the broker's answer, what is said of it."""
    for label, (request, response) in case.exchanges().items():
        name = label.removeprefix(".")
        if response:
            yield name, request, fetch_answer(response, head(request).version), case.info["requests"][name]


@cache
def segment_of(case_id: str) -> bytes:
    """The log of a case."""
    return next(case.segment for case in CASES if case.id == case_id)


@cache
def all_records(data: bytes, magic: int) -> list[Read]:
    """The records of whole entries, as much of them as a format has."""
    whole = b"".join(each.data for each in itertools.takewhile(lambda each: each.offset >= 0, entries(data)))
    return [
        each._replace(timestamp=each.timestamp if magic else -1, headers=each.headers if magic == 2 else ())
        for each in records(whole, control=False)
    ]


def records_of(data: bytes, offset: int, magic: int) -> list[Read]:
    """Those from an offset on."""
    return [each for each in all_records(data, magic) if each.offset >= offset]


def what_it_is(case: WireCase, name: str, request: bytes, theirs: FetchAnswer, ours: FetchAnswer, at: int) -> str:
    """Compare two answers to a fetch from an offset; return what it was: an error, bytes or records."""
    where, version = f"{case} {name}", head(request).version
    refuses_headers = case.broker == "0.11.0.3" and "headers" in case.name and theirs.error == -1
    assert ours.error == (0 if refuses_headers else theirs.error), where
    for field in ALIKE:
        assert getattr(ours, field) == getattr(theirs, field), (where, field)
    if ours.error:
        assert (ours.records, ours.high_watermark) == (b"", -1), where
        assert (ours.last_stable, ours.log_start) == (theirs.last_stable, theirs.log_start), where
        return "error"
    for field in OFFSETS:
        kafka = getattr(theirs, field)
        if field == "last_stable" and case.broker == "0.11.0.3" and kafka == -1:
            continue  # only readers of committed records get it
        assert refuses_headers or getattr(ours, field) == kafka, (where, field)
    check_aborted(case, theirs, ours, where)
    stored = segment_of(case.id)
    magic = MAGIC_OF_VERSION[version] if version < len(MAGIC_OF_VERSION) else 2
    is_stored = bool(theirs.records) and theirs.records in stored
    if is_stored and ours.records in stored:
        assert ours.records.startswith(theirs.records), where
        ends_early = "txn" in case.name or case.broker == "0.10.0.1"  # with a segment; before the cut
        assert ends_early or ours.records == theirs.records, where
        return "bytes"
    wanted = records_of(stored, at, magic)
    found = records_of(ours.records, at, magic)
    assert found == wanted[: len(found)], where
    assert found or not records_of(stored[: case.info["requests"][name]["maxBytes"]], at, magic), where
    if theirs.records and not is_stored:
        assert len(found) >= len(records_of(theirs.records, at, magic)) or "txn" in case.name, where
    return "records"


def check_aborted(case: WireCase, theirs: FetchAnswer, ours: FetchAnswer, where: str) -> None:
    """Compare the lists of aborted transactions: theirs end with a segment, of which ours is all."""
    if theirs.aborted is None:
        assert ours.aborted is None, where
        return
    assert ours.aborted is not None, where
    assert ours.aborted[: len(theirs.aborted)] == theirs.aborted, where
    assert case.broker != "2.8.2" or len(ours.aborted) == len(theirs.aborted), where


@pytest.mark.parametrize("name", golden_data.wire_brokers_of_each_kind())
def test_a_captured_fetch_finds_what_the_broker_gave(name: str, folder: Path) -> None:
    cases = [case for case in CASES if case.broker == name]
    for case in cases:
        partition = folder / f"{case.name}-0"
        partition.mkdir()
        (partition / f"{0:020}.log").write_bytes(case.segment)

    async def work() -> list[str]:
        async with Running(folder, {"auto.create.topics.enable": "false"}) as broker:
            connections = asyncio.Semaphore(AT_ONCE)

            async def each(case: WireCase, label: str, request: bytes, theirs: FetchAnswer, offset: int) -> str:
                async with connections:
                    peer = await Peer.of(broker)
                    ours = fetch_answer(await peer.exchange(request), head(request).version)
                    peer.close()
                return what_it_is(case, label, request, theirs, ours, offset)

            return await asyncio.gather(
                *(
                    each(case, label, request, theirs, said["fetchOffset"])
                    for case in cases
                    for label, request, theirs, said in exchanges(case)
                )
            )

    assert {*run(work())} >= {"bytes", "records"}
