"""Choose the canary broker for a message format, and judge whether to keep the format. Decisions only.

Source: KIP-31 and KIP-32, "Compatibility, Deprecation, and Migration Plan": one broker that leads few partitions gets
the new format, and the others serve as the baseline. Metrics have the names of the JMX exporter's common rules, which
magicbyte's brokers use, too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.errors import NetworkError
from magicbyte.tools.migration.sightings import is_fetcher

if TYPE_CHECKING:
    from magicbyte.access.net.scrape import Scrape

MOST_CONVERTED: Final = 0.5
"""Records converted for consumers / records produced: above it, too many consumers are too old for the format."""
MOST_FAILED: Final = 0.001
"""Failed parts of Produce and Fetch requests / all of them: failures below it are ignored."""
SLOWER: Final = 2.0
"""Limit of the canary's time and CPU, as a multiple of the others' highest."""
_FIGURES: Final = (
    ("the time of Produce", "produce_ms"), ("the time of Fetch", "fetch_ms"), ("the CPU used", "cpu"),
    ("the number of under-replicated partitions", "under_replicated"),
)  # fmt: skip
_NOTICEABLE_MS: Final = 1.0
_NOTICEABLE_CPU: Final = 0.1  # cores
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_MOVED: Final = "magicbyte_moved_records_total"
_LOCAL_TIME: Final = "kafka_network_requestmetrics_localtimems"


@dataclass(frozen=True, slots=True)
class CanaryChoice:
    """A broker chosen as the canary: it leads `leads` of the cluster's `partitions`."""

    broker: int
    leads: int
    partitions: int

    @property
    def percent(self) -> float:
        """The percentage of the partitions that it leads."""
        return 100 * self.leads / self.partitions if self.partitions else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate canary --format json`."""
        return {
            "broker": self.broker,
            "leads": self.leads,
            "partitions": self.partitions,
            "percent": round(self.percent, 1),
        }


def choose_canary(leads: Mapping[int, int], controller: int | None) -> CanaryChoice:
    """Return the broker that leads the fewest partitions; the controller only if there is no other.

    `leads`: the number of partitions that each broker leads, including 0.
    """
    broker = min(leads, key=lambda each: (each == controller, leads[each], each))
    return CanaryChoice(broker, leads[broker], sum(leads.values()))


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """The rates of a broker between two scrapes of its metrics, per second. None: the page lacks the metric.

    `converted`: records converted for Fetch, `for_followers` of them for other brokers, which Kafka's brokers do not
    count separately. `failed`: failed parts of Produce and Fetch requests / all parts. `produce_ms`, `fetch_ms`: local
    time of a request, the mean between the scrapes or else the p99 of the last one. `cpu`: in cores.
    `under_replicated`: partitions at the last scrape.
    """

    broker: int
    records_in: float
    converted: float
    failed: float
    produce_ms: float | None
    fetch_ms: float | None
    cpu: float | None
    under_replicated: float | None
    for_followers: float = 0.0

    @property
    def for_consumers(self) -> float:
        """Records converted for consumers; for Kafka's brokers including followers."""
        return max(self.converted - self.for_followers, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate canary --format json`."""
        names = {"records_in": "recordsInPerSecond", "converted": "convertedPerSecond", "failed": "failedShare",
                 "produce_ms": "produceMs", "fetch_ms": "fetchMs", "under_replicated": "underReplicated",
                 "for_followers": "convertedForFollowersPerSecond"}  # fmt: skip
        return {
            names.get(name, name): round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def rates_between(broker: int, before: Scrape, after: Scrape) -> BrokerRates:
    """Return the rates between two scrapes. Raises NetworkError if counters are missing or were reset."""
    seconds = (after.at.monotonic_ms - before.at.monotonic_ms) / 1000

    def grown(name: str) -> float:
        counts = [each.one(f"{_TOPICS}{name}_total") for each in (before, after)]
        if None in counts:
            raise NetworkError(f"broker {broker}: its metrics have no {_TOPICS}{name}_total")
        growth = (counts[1] or 0.0) - (counts[0] or 0.0)
        if growth < 0:
            raise NetworkError(f"broker {broker}: counters went back, so it was restarted: watch it again")
        return growth

    asked = grown("totalproducerequests") + grown("totalfetchrequests")
    failed = grown("failedproducerequests") + grown("failedfetchrequests")
    cpus = [each.one("process_cpu_seconds_total") for each in (before, after)]
    cpu = None if cpus[0] is None or cpus[1] is None else (cpus[1] - cpus[0]) / seconds
    return BrokerRates(
        broker,
        grown("messagesin") / seconds,
        grown("fetchmessageconversions") / seconds,
        failed / asked if asked else 0.0,
        _local_ms(before, after, ("Produce",)),
        _local_ms(before, after, ("FetchConsumer", "Fetch")),
        cpu,
        after.one("kafka_server_replicamanager_underreplicatedpartitions"),
        max(_for_followers(after) - _for_followers(before), 0.0) / seconds,
    )


def _for_followers(look: Scrape) -> float:
    """Return the records converted for other brokers since the start, which only brokers of magicbyte count."""
    return sum(
        each.value
        for each in look.all(_MOVED)
        if each.labels.get("direction") == "fetch"
        and each.labels.get("source") != each.labels.get("target")
        and is_fetcher(each.labels.get("client_id", ""))
    )


def _local_ms(before: Scrape, after: Scrape, requests: Sequence[str]) -> float | None:
    """Return the local time of the first of `requests` that has been received, None without any."""
    for request in requests:
        count, spent = (_growth(before, after, f"{_LOCAL_TIME}_{what}", request) for what in ("count", "sum"))
        if count and spent is not None:
            return spent / count
        if count:
            for each in after.all(_LOCAL_TIME):
                if each.labels.get("request") == request and each.labels.get("quantile") == "0.99":
                    return each.value
    return None


def _growth(before: Scrape, after: Scrape, name: str, request: str) -> float | None:
    values = [
        [each.value for each in look.all(name) if each.labels.get("request") == request] for look in (before, after)
    ]
    return values[1][0] - (values[0][0] if values[0] else 0.0) if values[1] else None


class CanaryVerdict(enum.Enum):
    """What to do with the canary's format."""

    KEEP = "keep"
    ROLL_BACK = "roll back"
    UNKNOWN = "watch longer"


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """The comparison of the canary with the others. `reasons`: for any verdict but KEEP."""

    verdict: CanaryVerdict
    reasons: tuple[str, ...]
    canary: BrokerRates
    others: tuple[BrokerRates, ...]

    @property
    def keeps(self) -> bool:
        """Whether the verdict is to keep the format."""
        return self.verdict is CanaryVerdict.KEEP

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte migrate canary --watch S --format json`."""
        return {
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "canary": self.canary.to_json(),
            "others": [each.to_json() for each in self.others],
        }


def judge_canary(canary: BrokerRates, others: Sequence[BrokerRates]) -> CanaryReport:
    """Compare the canary with the other brokers. More failures, conversions, time or CPU are reasons to roll back.

    A format is kept only if every figure was measured, of the canary and of another broker.
    """
    if reasons := tuple(_objections(canary, others)):
        return CanaryReport(CanaryVerdict.ROLL_BACK, reasons, canary, tuple(others))
    missing = tuple(_missing(canary, others))
    return CanaryReport(CanaryVerdict.UNKNOWN if missing else CanaryVerdict.KEEP, missing, canary, tuple(others))


def _missing(canary: BrokerRates, others: Sequence[BrokerRates]) -> Iterator[str]:
    """Yield the figures without which a format is not kept."""
    if not canary.records_in and canary.fetch_ms is None:
        yield f"broker {canary.broker} had no traffic in that time"
        return
    if not canary.records_in:
        yield f"no records were produced to broker {canary.broker} in that time"
    for what, name in _FIGURES:
        if getattr(canary, name) is None:
            yield f"broker {canary.broker}: {what} was not measured in that time"
        elif all(getattr(other, name) is None for other in others):
            yield f"{what} was not measured on any other broker in that time"


def _objections(canary: BrokerRates, others: Sequence[BrokerRates]) -> Iterator[str]:
    if canary.for_consumers > MOST_CONVERTED * canary.records_in and canary.for_consumers > max(
        (each.for_consumers for each in others), default=0.0
    ):
        yield (
            f"{canary.for_consumers:,.0f} records a second are converted for consumers, {canary.records_in:,.0f} are "
            "produced: upgrade consumers first (magicbyte migrate status names them)"
        )
    if canary.failed > max(MOST_FAILED, *(each.failed for each in others), 0.0):
        yield f"{canary.failed:.2%} of its Produce and Fetch parts failed"
    if canary.under_replicated:
        yield f"{canary.under_replicated:.0f} partitions that it leads have replicas out of sync"
    for what, name, unit, least in (
        ("Produce takes", "produce_ms", "ms", _NOTICEABLE_MS),
        ("Fetch takes", "fetch_ms", "ms", _NOTICEABLE_MS),
        ("the CPU used is", "cpu", "cores", _NOTICEABLE_CPU),
    ):
        own, known = getattr(canary, name), [value for each in others if (value := getattr(each, name)) is not None]
        if own is not None and known and own > SLOWER * max(known) and own - max(known) > least:
            yield f"{what} {own:.2f} {unit}, on the slowest other broker {max(known):.2f} {unit}"
