"""Which quota rules, how long who goes beyond it is held back, and that memory is bounded: without a broker."""

from __future__ import annotations

import tracemalloc

import pytest

from magicbyte.access.security import quotas
from magicbyte.access.security.quotas import ConnectionRates, MutationMeter, QuotaMeter, QuotaTable, QuotaType
from magicbyte.engine.cluster.quotas import QuotaEntity

RATE = 1_000_000.0
LEVELS = [
    (QuotaEntity("u", "c"), QuotaEntity("u", "c")),
    (QuotaEntity("u", None), QuotaEntity("u", "c")),
    (QuotaEntity("u"), QuotaEntity("u")),
    (QuotaEntity(None, "c"), QuotaEntity("u", "c")),
    (QuotaEntity(None, None), QuotaEntity("u", "c")),
    (QuotaEntity(None), QuotaEntity("u")),
    (QuotaEntity(client_id="c"), QuotaEntity(client_id="c")),
    (QuotaEntity(client_id=None), QuotaEntity(client_id="c")),
]
"""From the one that counts most on: whose quota it is, and by whom together it is used."""


def table(*entities: QuotaEntity, for_clients: float | None = None) -> QuotaTable:
    made = QuotaTable({} if for_clients is None else {QuotaType.PRODUCE: for_clients})
    for number, entity in enumerate(entities):
        made.put(entity, {QuotaType.PRODUCE: RATE + number})
    return made


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_first_of_kafkas_levels_that_has_a_quota_rules(level: int) -> None:
    entities = [entity for entity, _ in LEVELS[level:]]
    found = table(*entities, for_clients=1.0).limits_of("u", "c")
    assert found == {QuotaType.PRODUCE: (RATE, LEVELS[level][1])}


def test_the_brokers_setting_is_for_clients_that_no_quota_is_for() -> None:
    assert table(for_clients=5.0).limits_of("u", "c") == {QuotaType.PRODUCE: (5.0, QuotaEntity(client_id="c"))}
    assert table(QuotaEntity(client_id="other")).limits_of("u", "c") == {}


def test_each_type_is_ruled_by_itself() -> None:
    made = QuotaTable({})
    made.put(QuotaEntity("u"), {QuotaType.PRODUCE: 1.0, QuotaType.REQUEST: 200.0})
    made.put(QuotaEntity("u", "c"), {QuotaType.PRODUCE: 2.0})
    found = made.limits_of("u", "c")
    assert found[QuotaType.PRODUCE].limit == 2.0
    assert found[QuotaType.REQUEST] == (200.0, QuotaEntity("u"))
    made.put(QuotaEntity("u", "c"), {})
    assert made.limits_of("u", "c")[QuotaType.PRODUCE].limit == 1.0


def test_a_client_without_an_id_has_its_users_quota_or_the_defaults_of_clients() -> None:
    assert table(QuotaEntity("u", None), QuotaEntity("u")).limits_of("u", "")[QuotaType.PRODUCE].limit == RATE
    assert table(QuotaEntity(None), QuotaEntity(None, None)).limits_of("u", "")[QuotaType.PRODUCE].limit == RATE + 1
    assert table(QuotaEntity(client_id=None)).limits_of("u", "")[QuotaType.PRODUCE].limit == RATE


def test_names_like_the_default_are_names() -> None:
    assert table(QuotaEntity(None)).limits_of("<default>", "c")[QuotaType.PRODUCE].used_by == ("<default>", "")


def test_76_two_client_ids_of_a_user_share_its_quota() -> None:
    made, meter = table(QuotaEntity("u")), QuotaMeter[QuotaEntity](11, 1000)
    waits = []
    for client_id in ("one", "two"):
        limit = made.limits_of("u", client_id)[QuotaType.PRODUCE]
        waits.append(meter.record(limit.used_by, 6 * RATE, limit.limit, 0))
    assert waits == [0, 2000]  # 12 MB in a time of 10 s at 1 MB/s


def test_77_the_quota_of_a_user_goes_before_that_of_a_client_of_any_user() -> None:
    made = table(QuotaEntity("u"), QuotaEntity(None, "c"))
    assert made.limits_of("u", "c")[QuotaType.PRODUCE] == (RATE, QuotaEntity("u"))


def test_78_thirty_times_the_quota_at_once_is_held_back_for_twenty_seconds() -> None:
    assert QuotaMeter[str](11, 1000).record("u", 30_000, 1000, 12_345) == 20_000


def test_what_a_real_broker_answered_is_computed() -> None:
    """A real 2.8.2 said 5075 ms, and 20066 when the second request came as soon as the first was answered."""
    meter = QuotaMeter[str](11, 1000)
    assert meter.record("u", 15_075, 1000, 0) == 5075
    assert meter.record("u", 15_075, 1000, 84) == 20_066


def test_a_client_within_its_quota_is_never_throttled_and_one_that_pauses_starts_afresh() -> None:
    """Kafka's ClientQuotaManagerTest: 400 B/s for 10 s, a burst, silence."""
    meter = QuotaMeter[str](11, 1000)
    assert [meter.record("c", 400, 500, second * 1000) for second in range(10)] == [0] * 10
    assert meter.record("c", 2300, 500, 10_500) == 2100  # 600 B/s over 10.5 s
    assert meter.record("c", 0, 500, 22_000) == 0


def test_a_burst_counts_as_long_as_its_sample_is_kept() -> None:
    meter = QuotaMeter[str](11, 1000)
    assert meter.record("c", 8000, 500, 0) == 6000
    assert meter.record("c", 0, 500, 6000) == 6000  # of 10 s still
    assert meter.record("c", 500, 500, 11_000) == 0


def test_what_is_taken_back_does_not_count() -> None:
    meter = QuotaMeter[str](11, 1000)
    assert meter.record("c", 20_000, 1000, 0) == 10_000
    meter.take_back("c", 20_000, 0)
    assert meter.record("c", 9000, 1000, 0) == 0
    assert meter.most_at_once(1000) == 10_000


def test_80_time_of_requests_throttles_no_client_for_longer_than_a_sample() -> None:
    assert QuotaMeter[str](11, 1000, 1000).record("c", 50, 0.01, 0) == 1000


@pytest.mark.parametrize(
    ("limit", "wait_ms"), [(0, quotas.LONGEST_MS), (1e-320, quotas.LONGEST_MS), (-1, 0), (float("nan"), 0)]
)
def test_a_quota_of_zero_stops_its_client_and_a_negative_one_throttles_none(limit: float, wait_ms: int) -> None:
    assert QuotaMeter[str](11, 1000).record("c", 10, limit, 0) == wait_ms


def test_81_partitions_are_made_as_long_as_none_are_owed() -> None:
    meter, who = MutationMeter(11, 1000), QuotaEntity("u")
    waits = []
    for partitions in (11, 1, 1):
        waits.append(meter.tokens(who, 1, 0))
        meter.take(who, partitions, 1, 0)
    assert waits == [11, 0, -1]
    assert meter.wait_ms(who, 1, 0) == 2000
    assert meter.wait_ms(who, 1, 1168) == 832
    assert meter.tokens(who, 1, 60_000) == 11  # as many as at first


def test_82_of_fifteen_connections_at_once_ten_are_served_at_a_rate_of_one() -> None:
    rates = ConnectionRates(11, 1000)
    rates.of_addresses[None] = 1
    found = [rates.arrived("PLAINTEXT", "10.0.0.1", 0) for _ in range(15)]
    assert [each.refused_ms for each in found] == [0] * 10 + [1000] * 5
    assert rates.arrived("PLAINTEXT", "10.0.0.2", 0) == (0, 0)
    rates.of_addresses["10.0.0.2"] = 0
    assert rates.arrived("PLAINTEXT", "10.0.0.2", 0).refused_ms == 1000


def test_connections_wait_for_the_rate_of_their_listener_or_broker_and_those_between_brokers_for_none_of_it() -> None:
    rates = ConnectionRates(11, 1000)
    assert not rates.is_limiting
    rates.of_broker, rates.of_listeners, rates.unlimited = 2, {"SLOW": 1}, frozenset({"BETWEEN"})
    assert [rates.arrived("SLOW", "10.0.0.1", 0).wait_ms for _ in range(11)] == [0] * 10 + [1000]
    assert [rates.arrived("FAST", "10.0.0.1", 0).wait_ms for _ in range(10)] == [0] * 9 + [500]
    assert [rates.arrived("BETWEEN", "10.0.0.1", 0).wait_ms for _ in range(99)] == [0] * 99


def test_a_refused_connection_is_not_counted() -> None:
    rates = ConnectionRates(11, 1000)
    rates.of_broker, rates.of_addresses["10.0.0.1"] = 10, 0
    for _ in range(1000):
        assert rates.arrived("PLAINTEXT", "10.0.0.1", 0).refused_ms
    assert rates.arrived("PLAINTEXT", "10.0.0.2", 0) == (0, 0)


def test_a_million_client_ids_take_no_more_memory_than_the_last_ones_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert quotas.MOST_KEPT == 10_000
    monkeypatch.setattr(quotas, "MOST_KEPT", 1000)
    made, meter = table(QuotaEntity(client_id=None)), QuotaMeter[QuotaEntity](11, 1000)
    tracemalloc.start()
    try:
        for number in range(2500):
            limit = made.limits_of("ANONYMOUS", f"{number}" + "x" * 5000)[QuotaType.PRODUCE]
            meter.record(limit.used_by, 1, limit.limit, number)
            if number == 1500:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] < 1.1 * before
    finally:
        tracemalloc.stop()
    assert len(meter.used) == quotas.MOST_KEPT
    assert before < 6 << 20


def test_who_was_silent_for_an_hour_is_forgotten() -> None:
    meter = QuotaMeter[str](11, 1000)
    meter.record("early", 1, 1, 0)
    meter.record("late", 1, 1, quotas.SILENT_MS)
    assert len(meter.used) == 2
    meter.record("late", 1, 1, quotas.SILENT_MS + 1)
    assert [who for who, _ in meter.used.latest(9)] == ["late"]


def test_long_names_that_begin_alike_are_not_taken_for_each_other() -> None:
    assert quotas.short("x" * 300 + "a") != quotas.short("x" * 300 + "b")
