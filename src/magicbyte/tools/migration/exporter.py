"""Find which client sent which requests, in metrics pages of brokers, magicbyte's or Kafka's with the JMX exporter.

Kafka's brokers count requests by API and version (RequestsPerSec, from 2.0 on) without their clients, and from 3.7 on
the requests that Kafka 4 refuses by client library (DeprecatedRequestsPerSec, KIP-896).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from magicbyte.access.net.scrape import Scrape
from magicbyte.engine.protocol import APIS
from magicbyte.tools.migration.sightings import UNNAMED, SeenClient, Sightings

_OURS: Final = "magicbyte_client_requests_total"
_OUR_LAST: Final = "magicbyte_client_last_request_timestamp_seconds"
_MOST: Final = 1 << 62
_YEAR_9999: Final = 253_370_764_800
_KEYS: Final = {api.name: api.key for api in APIS.values()}
_COUNTERS = re.compile(r"kafka_network_requestmetrics_(deprecated)?requests(?:persec)?(?:_(?:total|count))?")
_GREEDY = re.compile(r"request_(\w+?)__version_(\d+)__clientsoftwarename")
"""The label that the exporter's common rules, which allow at most two labels, make of four."""


def read_numbers(scrape: Scrape, into: Sightings) -> int:
    """Add the requests on a broker's page. Return the number of combinations of client, API and version."""
    last = {_key(sample.labels): sample.value for sample in scrape.all(_OUR_LAST)}
    count = 0
    for sample in scrape.all(_OURS):
        labels = sample.labels
        key, version = _KEYS.get(labels.get("request", "")), _number(labels.get("version", ""))
        if key is None or version is None:
            continue
        caller = SeenClient(
            *(labels.get(name, "") for name in ("client_id", "software", "software_version", "address"))
        )
        into.add(caller, key, version, _count(sample.value), _date_ms(last.get(_key(labels))))
        count += 1
    return count or _read_kafka(scrape, into)


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _read_kafka(scrape: Scrape, into: Sightings) -> int:
    by_library: dict[tuple[int, int], int] = {}
    counted: list[tuple[int, int, SeenClient, int]] = []
    for name in scrape.names():
        for sample in scrape.all(name):
            labels = {key.lower(): text for key, text in sample.labels.items()}
            counter = _COUNTERS.fullmatch(_name(name, labels))
            if counter is None or not _count(sample.value):
                continue
            for key, version, caller in _asked(labels):
                counted.append((key, version, caller, _count(sample.value)))
                if counter[1]:
                    by_library[key, version] = by_library.get((key, version), 0) + _count(sample.value)
    requests = 0
    for key, version, caller, count in counted:
        if caller is UNNAMED and (key, version) in by_library:
            continue  # the same requests are counted by client library, too
        into.add(caller, key, version, count)
        requests += 1
    return requests


def _name(name: str, labels: Mapping[str, str]) -> str:
    """Return a counter's name. Without rules, the exporter puts the MBean's name in a label, and the attribute last."""
    lower = name.lower()
    bean = labels.get("name", "").lower()
    return f"kafka_network_requestmetrics_{bean}" if bean and lower == "kafka_network_requestmetrics_count" else lower


def _asked(labels: Mapping[str, str]) -> Iterable[tuple[int, int, SeenClient]]:
    """Yield API, version and client from the lower-case labels of a counter, nothing for other labels."""
    software = labels.get("clientsoftwarename")
    request, version = labels.get("request", ""), labels.get("version", "")
    for name, text in labels.items():
        if (greedy := _GREEDY.fullmatch(name)) is not None:
            request, version, software = greedy[1], greedy[2], text
    key = next((key for name, key in _KEYS.items() if name.lower() == request.lower()), None)
    number = _number(version)
    if key is None or number is None:
        return
    if software is None:
        yield key, number, UNNAMED
    else:
        known = ["" if text == "unknown" else text for text in (software, labels.get("clientsoftwareversion", ""))]
        yield key, number, SeenClient("", *known)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _count(value: float) -> int:
    return int(value) if 0 <= value < _MOST else 0


def _date_ms(seconds: float | None) -> int | None:
    return round(seconds * 1000) if seconds is not None and 0 <= seconds < _YEAR_9999 else None
