"""Fetch sessions: the partitions that a request names, and those in the response."""

from pathlib import Path
from typing import Any

from magicbyte.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from magicbyte.server.apis import sessions
from magicbyte.server.apis.sessions import Sessions
from server.broker.serving import Peer, Running
from server.broker.test_broker import produce


def asking(number: int, epoch: int, *topics: str, offset: int = 0, **more: Any) -> FetchRequest:
    return FetchRequest(
        session_id=number,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=name, partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)])
            for name in topics
        ],
        **more,
    )


def told(response: FetchResponse) -> list[str]:
    return [topic.topic for topic in response.responses for _ in topic.partitions]


async def test_a_session_returns_only_changes_and_reads_on_from_the_given_offsets(folder: Path) -> None:
    async with Running(folder) as broker:
        for name in ("topic", "other", "third"):
            await broker.topics.create(name)
        peer = await Peer.of(broker)

        async def ask(request: FetchRequest) -> FetchResponse:
            return await peer.ask(request, 11, FetchResponse)

        first = await ask(asking(0, 0, "topic", "other", "third"))
        number = first.session_id
        assert number > 0
        assert told(first) == ["topic", "other", "third"]
        assert told(await ask(asking(number, 1))) == []
        await produce(peer, "other")
        assert told(await ask(asking(number, 2))) == ["other"]
        assert told(await ask(asking(number, 3, "other", offset=3))) == []
        await produce(peer, "other")
        await produce(peer, "topic")
        assert told(await ask(asking(number, 4))) == ["topic", "other"]  # who gave records came to the end
        forgotten = [ForgottenTopic(topic="other", partitions=(0,))]
        assert told(await ask(asking(number, 5, forgotten_topics_data=forgotten))) == ["topic"]
        assert told(await ask(asking(number, 6, "nowhere", "topic", offset=3))) == ["nowhere"]
        assert told(await ask(asking(number, 7))) == ["nowhere"]  # an error is reported as long as it lasts
        assert (await ask(asking(number, 7))).error_code == 71
        assert (await ask(asking(number + 1, 1))).error_code == 70
        again = await ask(asking(number, 0, "topic"))
        assert again.session_id not in (0, number)
        assert (await ask(asking(number, 8))).error_code == 70
        assert (await ask(asking(again.session_id, -1, "topic"))).session_id == 0
        assert len(broker.fetch_sessions) == 0
        peer.close()


def test_a_full_house_keeps_who_is_there_until_one_has_not_been_used_for_long() -> None:
    numbers = iter(range(1, 10_000))
    kept = Sessions(lambda: next(numbers))
    opened = [kept.begin(asking(0, 0, "topic"), monotonic_ms=at).session for at in range(sessions.SLOTS)]
    assert all(opened)
    assert kept.begin(asking(0, 0, "topic"), monotonic_ms=2000).session is None
    assert kept.begin(asking(1, 1), monotonic_ms=3000).error == 0  # used: the second is the oldest now
    later = kept.begin(asking(0, 0, "topic"), monotonic_ms=sessions.KEPT_MS + 1)
    assert later.session is not None
    assert len(kept) == sessions.SLOTS
    assert kept.begin(asking(2, 1), monotonic_ms=0).error == 70
    assert kept.begin(asking(1, 2), monotonic_ms=0).error == 0


def test_epochs_continue_at_one_after_the_last() -> None:
    kept = Sessions(lambda: 5)
    session = kept.begin(asking(0, 0, "topic"), monotonic_ms=0).session
    assert session is not None
    session.next_epoch = (1 << 31) - 1
    assert kept.begin(asking(5, (1 << 31) - 1), monotonic_ms=0).error == 0
    assert kept.begin(asking(5, 1), monotonic_ms=0).error == 0
