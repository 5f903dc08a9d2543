"""Readers of each version of Fetch at a real broker and at ours, on one log with aborted transactions.

The log directory goes from the real broker to ours. Both must answer each request alike: codes, offsets, aborted
transactions and the bytes of the sets, from each offset and for both isolation levels; check 51 of transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interop import jvm
from interop.test_transaction_handover import PLACE, SETTINGS, TIMEOUT_MS, at
from magicbyte.engine.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from magicbyte.testing import Broker
from server.broker.serving import Peer
from server.broker.transacting import Pair, add, begun, ended, send

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

VERSIONS = {"2.8.2": range(13), "3.9.1": range(13)}
"""Those that name topics; 13 and later name ids."""
ISOLATED = 4
"""The first version with an isolation level."""
WHOLE, LITTLE = 1 << 20, 120
"""Bytes that a reader asks for: all, and less than a batch or little more."""
Answer = dict[str, Any]


async def fill(peer: Peer) -> None:
    """Write committed, aborted and interleaved transactions, records without one, and an open one at the end."""
    pairs = dict[str, Pair]()
    sequences = dict[str, int]()

    async def write(key: str, *values: bytes) -> None:
        if key not in pairs:
            pairs[key], sequences[key] = await begun(peer, key, timeout_ms=TIMEOUT_MS), 0
        while (codes := await add(peer, pairs[key], PLACE, key=key)) != [0]:
            assert codes in ([51], [3])
            await asyncio.sleep(0.02)
        assert (await send(peer, pairs[key], PLACE, sequences[key], *values, key=key))[0] == 0
        sequences[key] += len(values)

    await write("a", b"a committed", b"another")
    await ended(peer, pairs["a"], key="a")
    await write("a", b"aborted")
    await write("b", b"interleaved", b"and committed", b"three records")
    await write("a", b"aborted as well")
    await write("c", b"aborted, too")
    await ended(peer, pairs["a"], commit=False, key="a")
    await ended(peer, pairs["b"], key="b")
    await write("b", b"in the next transaction, aborted")
    await ended(peer, pairs["c"], commit=False, key="c")
    await ended(peer, pairs["b"], commit=False, key="b")
    await write("a", b"committed behind all of those")
    await ended(peer, pairs["a"], key="a")
    await write("open", b"pending")
    await write("a", b"committed behind what is open")
    await ended(peer, pairs["a"], key="a")
    await write("a", b"aborted behind what is open")
    await ended(peer, pairs["a"], commit=False, key="a")


async def answer(peer: Peer, version: int, isolation: int, offset: int, size: int) -> Answer:
    part = FetchPartition(partition=PLACE[1], fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        topics=[FetchTopic(topic=PLACE[0], partitions=[part])], isolation_level=isolation, max_bytes=WHOLE
    )
    found = (await peer.ask(request, version, FetchResponse)).responses[0].partitions[0]
    aborted = found.aborted_transactions
    return {
        "code": found.error_code,
        "high watermark": found.high_watermark,
        "last stable offset": found.last_stable_offset,
        "log start offset": found.log_start_offset,
        "aborted": None if aborted is None else aborted_below(aborted, found.last_stable_offset),
        "records": converted_sets(found.records) if version < ISOLATED else bytes(found.records or b""),
    }


def aborted_below(aborted: Sequence[AbortedTransaction], end: int) -> list[tuple[int, int]]:
    """Return the transactions that records of the answer can be of. Kafka also names those behind the answer's end."""
    return [(each.producer_id, each.first_offset) for each in aborted if each.first_offset < end]


def converted_sets(records: Any) -> list[bytes]:
    """Return the whole messages of an answer whose sets were converted for an old reader.

    Kafka fills such an answer up with an incomplete message of offset -1, where the sets became smaller, and sends the
    first message twice to a reader who begins at a marker. What is incomplete is no message for any reader.
    """
    data, at, found = bytes(records or b""), 0, list[bytes]()
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if end > len(data) or data[at : at + 8] == b"\xff" * 8:
            break
        if not found or found[-1] != data[at:end]:
            found.append(data[at:end])
        at = end
    return found


async def answers(peer: Peer, versions: range) -> dict[tuple[int, int, int, int], Answer]:
    """Ask for all offsets, those around the log's ends included."""
    found = {}
    end = (await answer(peer, 4, 0, 0, WHOLE))["high watermark"]
    for version in versions:
        for isolation in (0, 1) if version >= ISOLATED else (0,):
            for offset in range(end + 2):
                for size in (WHOLE, LITTLE):
                    found[version, isolation, offset, size] = await answer(peer, version, isolation, offset, size)
    return found


@pytest.mark.parametrize("release", VERSIONS)
def test_each_version_of_fetch_is_answered_as_a_real_broker_answers_it(release: str, tmp_path: Path) -> None:
    theirs, mine = dict[Any, Answer](), dict[Any, Answer]()

    async def there(peer: Peer) -> None:
        await fill(peer)
        theirs.update(await answers(peer, VERSIONS[release]))

    async def here(peer: Peer) -> None:
        mine.update(await answers(peer, VERSIONS[release]))

    given = [f"{name}={value}" for name, value in SETTINGS.items()]
    with jvm.broker(release, tmp_path, *given) as state:
        data = Path(state["data"])
        at(state["bootstrap"], there)
    with Broker(SETTINGS, directory=data) as broker:
        at(broker.bootstrap_servers, here)
    assert {key: found for key, found in mine.items() if found != theirs[key]} == {}
    assert mine.keys() == theirs.keys()
    everything = theirs[11, 1, 0, WHOLE]
    assert len(everything["aborted"]) == 3
    assert everything["last stable offset"] < everything["high watermark"]
    for version, magic in ((1, 0), (3, 1)):
        assert {each[16] for each in theirs[version, 0, 0, WHOLE]["records"]} == {magic}
        assert len(theirs[version, 0, 0, WHOLE]["records"]) == 13
