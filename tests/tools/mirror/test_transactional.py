"""A mirror in transactions: records and progress arrive together, whatever ends it, and whichever mirror takes over."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror import transactional
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.oversize import OnOversize
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import ALL, CrashError, Dying, Pair, crash, stable_end
from tools.mirror.sets import START, some

ID = "mirror"
TRANSACTIONS = replace(ALL, transactional_id=ID)
Row = tuple[int, bytes | None, bytes | None]


async def committed(client: Client, topic: str, partition: int = 0) -> list[Row]:
    end = await stable_end(client, topic, partition)
    found = read_records(client, topic, partition, 0, end, FetchOptions(committed=True))
    return [(each.timestamp, each.key, each.value) async for columns in found for each in columns]


async def same(here: Client, there: Client, topic: str, partition: int = 0) -> None:
    assert await committed(there, topic, partition) == await committed(here, topic, partition)


def died(pair: Pair, choice: Choice, at: int, *, arrives: bool) -> bool:
    """Mirror until the target is asked for the `at`-th time; say whether it came so far."""

    async def work(here: Client, there: Client) -> None:
        Dying(at, arrives=arrives).patched(there)
        await Mirror(here, there, choice).catch_up()

    try:
        pair.run(work)
    except CrashError:
        return True
    return False


@pytest.mark.parametrize("form", [Format.V2, Format.V1])
def test_committed_records_are_equal_and_sets_stay_closed(pair: Pair, form: Format) -> None:
    pair.fill("topic", [Codec.GZIP, Codec.NONE, Codec.LZ4], form, partitions=2)

    async def make(_: Client, there: Client) -> None:
        await admin.create_topic(there, admin.NewTopic("topic", 2))

    pair.run(make)
    copied = pair.mirror(TRANSACTIONS)["topic"]
    assert (copied.closed_sets, copied.opened_sets) == ((20, 0) if form is Format.V2 else (0, copied.opened_sets))
    assert (copied.lag, copied.records) == (0, 200)

    async def work(here: Client, there: Client) -> None:
        for partition in (0, 1):
            await same(here, there, "topic", partition)

    pair.run(work)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_its_requests_it_loses_nothing_and_doubles_nothing(
    pair: Pair, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional, "FETCH_BYTES", 700)  # two transactions with records
    at, arrives, died_there = 1, False, True
    while died_there:
        topic = f"topic-{at}-{arrives}"
        choice = replace(TRANSACTIONS, topics=re.compile(topic))

        async def make(here: Client, there: Client, name: str = topic) -> None:
            for client in (here, there):
                await admin.create_topic(client, admin.NewTopic(name))
            for turn in range(2):
                await send(here, name, 0, some(10 * turn, 10))

        pair.run(make)
        died_there = died(pair, choice, at, arrives=arrives)
        assert pair.mirror(choice)[topic].lag == 0
        pair.run(lambda here, there, name=topic: same(here, there, name))
        at, arrives = at + every * arrives, not arrives
    assert at >= 14  # four requests for the first place, and five for each transaction with one set


@pytest.mark.parametrize("partitions", [1, 3])
def test_where_keys_decide_each_record_is_there_once_after_kills(pair: Pair, partitions: int) -> None:
    pair.fill("topic", [Codec.GZIP, Codec.NONE], partitions=2)
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic", partitions)))
    kills = sum(died(pair, TRANSACTIONS, at, arrives=at % 2 == 0) for at in range(6, 30, 8))
    assert kills == 3
    pair.mirror(TRANSACTIONS)

    async def work(here: Client, there: Client) -> None:
        found = []
        for client, count in ((here, 2), (there, partitions)):
            found.append(Counter[Row]())
            for partition in range(count):
                found[-1].update(await committed(client, "topic", partition))
        assert found[0] == found[1]

    pair.run(work)


def test_a_transaction_holds_one_fetch_of_up_to_two_mebibytes(pair: Pair) -> None:
    async def fill(here: Client, _: Client) -> None:
        await admin.create_topic(here, admin.NewTopic("topic"))
        for offset in range(3):
            await send(here, "topic", 0, [Record(offset, START, 0, None, bytes(900_000))])

    pair.run(fill)
    pair.mirror(TRANSACTIONS)
    end = pair.run(lambda _, there: stable_end(there, "topic", 0))
    assert end == 3 + 2  # a marker behind two records, and one behind the third
    pair.run(lambda here, there: same(here, there, "topic"))


def test_a_mirror_that_starts_fences_the_one_before(pair: Pair) -> None:
    pair.fill("topic", [Codec.NONE])

    async def work(here: Client, there: Client) -> None:
        old, new = Mirror(here, there, TRANSACTIONS), Mirror(here, there, TRANSACTIONS)
        await old.catch_up()
        await new.catch_up()
        await send(here, "topic", 0, some(100, 10))
        with pytest.raises(BrokerError, match="another producer began with this transactional id"):
            await old.catch_up()
        await new.catch_up()
        await same(here, there, "topic")

    pair.run(work)


def test_a_topic_continues_with_transactions_and_without_them(pair: Pair) -> None:
    pair.fill("topic", [Codec.NONE])
    for number, choice in enumerate([ALL, TRANSACTIONS, TRANSACTIONS, ALL, TRANSACTIONS]):
        pair.run(lambda here, _, number=number: send(here, "topic", 0, some(10 * number, 10)))
        assert pair.mirror(choice)["topic"].lag == 0
        pair.run(lambda here, there: same(here, there, "topic"))


def test_records_that_a_mirror_without_transactions_did_not_note_are_an_error(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.fill("topic", [Codec.NONE])
    pair.mirror(replace(ALL, topics=re.compile("none")))
    crash(pair, monkeypatch, 0, arrives=True)
    with pytest.raises(MirrorError, match="records at the target: run the mirror without"):
        pair.mirror(TRANSACTIONS)
    pair.mirror()
    pair.mirror(TRANSACTIONS)
    pair.run(lambda here, there: same(here, there, "topic"))


def test_a_set_that_is_too_large_is_split_inside_its_transaction_or_ends_the_run(pair: Pair) -> None:
    pair.fill("topic", [Codec.NONE, Codec.GZIP])

    async def make(_: Client, there: Client) -> None:
        await admin.create_topic(there, admin.NewTopic("topic", configs={"max.message.bytes": "300"}))

    pair.run(make)
    with pytest.raises(MirrorError, match="more than the target takes"):
        pair.mirror(TRANSACTIONS)
    assert pair.mirror(replace(TRANSACTIONS, on_oversize=OnOversize.SPLIT))["topic"].lag == 0
    pair.run(lambda here, there: same(here, there, "topic"))


def test_markers_and_aborted_records_of_the_source_are_passed_over(pair: Pair) -> None:
    async def work(here: Client, there: Client) -> None:
        from magicbyte.access.client.transactions import TransactionalProducer

        await admin.create_topic(here, admin.NewTopic("topic"))
        producer = await TransactionalProducer.begin(here, "source")
        for number in range(4):
            await producer.send("topic", 0, some(10 * number, 10), ProduceOptions(Codec.LZ4))
            await (producer.abort() if number % 2 else producer.commit())
        await stable_end(here, "topic", 0)
        mirror = Mirror(here, there, TRANSACTIONS)
        await mirror.catch_up()
        assert mirror.copied()["topic"].lag == 0
        await same(here, there, "topic")
        assert len(await committed(there, "topic")) == 20

    pair.run(work)


def test_what_cannot_be_is_said_before_anything_is_done(pair: Pair) -> None:
    pair.fill("topic", [Codec.NONE])
    for options in ("--identical",), ("--sync-groups",), ("--on-oversize=park", "--park=parked"):
        refused = pair.command("--transactional-id", ID, "--until-caught-up", *options)
        assert refused.exit_code == 2
        assert "--transactional-id: not with" in refused.stderr

    async def old(_: Client, there: Client) -> None:
        await admin.create_topic(there, admin.NewTopic("topic", configs={"message.format.version": "0.10.2"}))

    pair.run(old)
    refused = pair.command("--transactional-id", ID, "--until-caught-up")
    assert "the target stores magic 1, which holds no transactions" in refused.stderr
    assert refused.exit_code == 2


def test_brokers_that_do_not_tell_of_unstable_progress_are_refused(pair: Pair) -> None:
    pair.fill("topic", [Codec.NONE])
    with Broker({"as.version": "2.4"}) as old:
        pair.addresses = pair.addresses[0], old.bootstrap_servers
        with pytest.raises(MirrorError, match="do not report pending offset commits"):
            pair.mirror(TRANSACTIONS)
