"""The canary: which broker it is, and when it goes back."""

from __future__ import annotations

import pytest

from magicbyte.access.net.scrape import Scrape
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.ports import Moment
from magicbyte.tools.migration.canary import (
    BrokerRates,
    CanaryChoice,
    CanaryVerdict,
    choose_canary,
    judge_canary,
    rates_between,
)

COUNTERS = ("messagesin", "fetchmessageconversions", "totalproducerequests", "totalfetchrequests",
            "failedproducerequests", "failedfetchrequests")  # fmt: skip
TIMES = "kafka_network_requestmetrics_localtimems"


def page(at_s: int, *counts: float, more: str = "") -> Scrape:
    lines = [
        f"kafka_server_brokertopicmetrics_{name}_total {count}" for name, count in zip(COUNTERS, counts, strict=True)
    ]
    return Scrape("\n".join([*lines, more, ""]), Moment(0, at_s * 1000))


def rates(broker: int = 1, **given: float | None) -> BrokerRates:
    usual: dict[str, float | None] = {
        "records_in": 1000.0, "converted": 0.0, "failed": 0.0, "produce_ms": 1.0, "fetch_ms": 1.0, "cpu": 0.2,
        "under_replicated": 0.0,
    }  # fmt: skip
    return BrokerRates(broker, **{**usual, **given})  # type: ignore[arg-type]


def test_the_broker_that_leads_least_is_chosen_and_the_controller_last() -> None:
    assert choose_canary({1: 40, 2: 3, 3: 57}, controller=1) == CanaryChoice(2, 3, 100)
    assert choose_canary({1: 40, 2: 3, 3: 57}, controller=2) == CanaryChoice(1, 40, 100)
    assert choose_canary({7: 5}, controller=7).percent == 100
    assert choose_canary({2: 0, 1: 0}, controller=None) == CanaryChoice(1, 0, 0)


def test_rates_are_what_counters_grew_by() -> None:
    before = page(
        10, 100, 10, 50, 50, 0, 0, more=f'{TIMES}_count{{request="Produce"}} 5\n{TIMES}_sum{{request="Produce"}} 9'
    )
    after = page(
        20, 1100, 30, 100, 100, 1, 0,
        more=f'{TIMES}_count{{request="Produce"}} 15\n{TIMES}_sum{{request="Produce"}} 39\n'
        f'{TIMES}_count{{request="FetchConsumer"}} 4\n{TIMES}{{request="FetchConsumer",quantile="0.99"}} 7\n'
        "kafka_server_replicamanager_underreplicatedpartitions 2",
    )  # fmt: skip
    assert rates_between(3, before, after) == BrokerRates(3, 100, 2, 0.01, 3.0, 7.0, None, 2.0)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (page(20, 50, 0, 0, 0, 0, 0), "broker 3: counters went back, so it was restarted"),
        (Scrape("", Moment(0, 20_000)), "broker 3: its metrics have no kafka_server_brokertopicmetrics_"),
    ],
    ids=["restarted", "another page"],
)
def test_counters_that_tell_nothing_are_no_rates(after: Scrape, why: str) -> None:
    with pytest.raises(NetworkError, match=why):
        rates_between(3, page(10, 100, 0, 0, 0, 0, 0), after)


def test_a_canary_like_the_others_keeps_its_format() -> None:
    found = judge_canary(rates(1), [rates(2), rates(3, cpu=0.3)])
    assert (found.verdict, found.reasons) == (CanaryVerdict.KEEP, ())
    assert found.keeps
    assert found.to_json()["canary"]["recordsInPerSecond"] == 1000


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"converted": 501.0}, "501 records a second are converted"),
        ({"failed": 0.002}, "0.20% of its Produce and Fetch parts failed"),
        ({"under_replicated": 4.0}, "4 partitions that it leads have replicas out of sync"),
        ({"produce_ms": 2.5}, "Produce takes 2.50 ms, on the slowest other broker 1.00 ms"),
        ({"fetch_ms": 9.0}, "Fetch takes 9.00 ms"),
        ({"cpu": 0.5}, "the CPU used is 0.50 cores"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_worse_than_on_the_others_is_a_reason_to_go_back(given: dict[str, float], reason: str) -> None:
    found = judge_canary(rates(1, **given), [rates(2)])
    assert found.verdict is CanaryVerdict.ROLL_BACK
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


@pytest.mark.parametrize(
    "given",
    [{"converted": 499.0}, {"failed": 0.0009}, {"produce_ms": 1.9}, {"cpu": 0.29}],
    ids=str,
)
def test_what_is_within_bounds_is_none(given: dict[str, float | None]) -> None:
    assert judge_canary(rates(1, **given), [rates(2)]).keeps


def test_conversions_that_another_broker_has_too_are_not_the_canarys() -> None:
    assert judge_canary(rates(1, converted=900.0), [rates(2, converted=900.0)]).keeps


def test_conversions_for_followers_are_no_reason_to_go_back() -> None:
    """The documents' first variant: the other brokers fetch in the old version."""
    assert judge_canary(rates(1, converted=2000.0, for_followers=2000.0), [rates(2)]).keeps
    found = judge_canary(rates(1, converted=2600.0, for_followers=2000.0), [rates(2)])
    assert found.reasons[0].startswith("600 records a second are converted for consumers")


def test_conversions_for_followers_are_counted_by_their_client_ids() -> None:
    row = 'magicbyte_moved_records_total{{client_id="{}",direction="{}",source="{}",target="{}"}} {}'
    rows = [
        ("broker-2-fetcher-0", "fetch", "1", "0", 50), ("ReplicaFetcherThread-0-1", "fetch", "1", "0", 30),
        ("broker-2-fetcher-0", "fetch", "0", "0", 999), ("orders", "fetch", "1", "0", 999),
        ("broker-2-fetcher-0", "produce", "1", "0", 999),
    ]  # fmt: skip
    more = "\n".join(row.format(*each) for each in rows)
    found = rates_between(3, page(10, 0, 0, 0, 0, 0, 0), page(20, 100, 80, 9, 9, 0, 0, more=more))
    assert (found.converted, found.for_followers, found.for_consumers) == (8, 8, 0)


@pytest.mark.parametrize("figure", ["produce_ms", "fetch_ms", "cpu", "under_replicated"])
def test_a_format_is_not_kept_without_a_figure_of_the_canary_and_of_another_broker(figure: str) -> None:
    found = judge_canary(rates(1, **{figure: None}), [rates(2), rates(3)])
    assert (found.verdict, len(found.reasons)) == (CanaryVerdict.UNKNOWN, 1)
    assert judge_canary(rates(1), [rates(2), rates(3, **{figure: None})]).keeps
    assert judge_canary(rates(1), [rates(2, **{figure: None})]).verdict is CanaryVerdict.UNKNOWN
    assert judge_canary(rates(1, failed=0.5, **{figure: None}), [rates(2)]).verdict is CanaryVerdict.ROLL_BACK


def test_a_canary_that_did_nothing_is_not_judged() -> None:
    found = judge_canary(rates(1, records_in=0.0), [rates(2)])
    assert found.reasons == ("no records were produced to broker 1 in that time",)
    found = judge_canary(rates(1, records_in=0.0, fetch_ms=None), [rates(2)])
    assert (found.verdict, found.keeps) == (CanaryVerdict.UNKNOWN, False)
