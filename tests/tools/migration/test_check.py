"""The rules of `check`, beside what a real Kafka 4.3.1 did, and what clients of fifteen kinds got from real 4.x."""

import json
from pathlib import Path

import pytest

from magicbyte.engine.protocol import APIS
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release, release_meant
from magicbyte.tools.migration.check import Check, Facts, Weight, check
from magicbyte.tools.migration.check_page import html_page
from magicbyte.tools.migration.sightings import MOST_SIGHTINGS, OTHERS, SeenClient, Sightings

HERE = Path(__file__).parent
VERSIONS = json.loads((HERE / "versions_4_3_1.json").read_text())
"""A real broker got an empty request in each version that we know: `refused` are those it closed the connection for."""
TRAFFIC = HERE.parents[1] / "interop/release_traffic.jsonl"
KEYS = {api.name: api.key for api in APIS.values()}
BETWEEN_BROKERS = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
FOUR = Release.of("4.3.1")
APP = SeenClient("app")


def checked(facts: Facts, target: Release = FOUR) -> Check:
    return check(facts, target)


def seen(*requests: tuple[str, int], caller: SeenClient = APP) -> Facts:
    facts = Facts()
    for name, version in requests:
        facts.sightings.add(caller, KEYS[name], version)
    return facts


@pytest.mark.parametrize("name", sorted(name for name in VERSIONS.keys() - BETWEEN_BROKERS if VERSIONS[name]["taken"]))
def test_a_client_breaks_by_exactly_the_versions_that_a_real_broker_refuses(name: str) -> None:
    taken = VERSIONS[name]["taken"]
    too_old = [version for version in VERSIONS[name]["refused"] if version < taken[0]]
    found = [v for v in APIS[KEYS[name]].versions if checked(seen((name, v))).breaks]
    assert found == too_old


def test_each_real_client_that_real_4_x_refuses_is_named_and_no_other() -> None:
    """By its requests to 3.9.1 in each step, compared with the outcome of the same step with 4.1."""
    rows = [json.loads(line) for line in TRAFFIC.read_text().splitlines()]
    outcomes: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for client, step, first, last, outcome, sent in rows:
        for release in ("3.9.1", "4.1.0"):
            if _key(first) <= _key(release) <= _key(last):
                outcomes.setdefault((client, step), {})[release] = (outcome, sent)
    compared = 0
    for (client, step), by_release in outcomes.items():
        if len(by_release) < 2 or not _went_well(by_release["3.9.1"][0]):
            continue
        requests = [
            (name, int(version)) for name, version in (each.split(":") for each in by_release["3.9.1"][1].split())
        ]
        breaks = checked(seen(*requests), release_meant("4.1")).breaks
        assert breaks is not _went_well(by_release["4.1.0"][0]), (client, step, by_release)
        compared += 1
    assert compared > 50


def _went_well(outcome: str) -> bool:
    return outcome.startswith("{")


def _key(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def test_a_finding_names_the_client_its_requests_and_what_to_do() -> None:
    facts = Facts()
    caller = SeenClient("orders", "apache-kafka-java", "0.10.2", "10.0.0.7")
    facts.sightings.add(caller, KEYS["Produce"], 2, 7, 1_700_000_000_000)
    facts.sightings.add(caller, KEYS["Metadata"], 1)
    (finding,) = checked(facts).findings
    assert finding.weight is Weight.BREAKS
    assert finding.subject == "orders (apache-kafka-java 0.10.2, 10.0.0.7)"
    assert [each.text for each in finding.refused] == [
        "sends Produce v2, 7 requests, last 2023-11-14 22:13; Kafka 4.3.1 accepts v3 and later"
    ]
    assert "speaks Produce 3 or newer (Kafka's Java clients: from 0.11.0 on)" in finding.do


def test_nothing_breaks_on_the_way_to_3() -> None:
    facts = seen(("Produce", 0), ("Fetch", 0))
    facts.topics["t"], facts.stored["t"] = {"message.format.version": "0.9.0"}, frozenset({Format.V0})
    facts.brokers["0"] = {"zookeeper.connect": "localhost", "advertised.host.name": "me"}
    (finding,) = checked(facts, release_meant("3.9")).findings
    assert finding.subject == "broker 0: advertised.host.name=me"
    assert finding.weight is Weight.CHANGES


def test_a_client_of_brokers_that_take_nothing_newer_may_speak_it() -> None:
    facts = seen(("Fetch", 2))
    facts.answered = {KEYS["Fetch"]: range(3)}
    (finding,) = checked(facts).findings
    assert finding.weight is Weight.UNKNOWN
    facts.answered = {KEYS["Fetch"]: range(5)}
    assert checked(facts).breaks


def test_what_brokers_say_to_each_other_is_no_client_but_an_old_fetcher_is_named() -> None:
    assert checked(seen(("UpdateMetadata", 1), ("LeaderAndIsr", 0))).findings == ()
    (finding,) = checked(seen(("Fetch", 3), caller=SeenClient("broker-1-fetcher-0"))).findings
    assert "inter.broker.protocol.version" in finding.do


def test_settings_are_named_by_who_has_them() -> None:
    facts = Facts()
    facts.brokers["1"] = {"zookeeper.connect": "zoo:2181", "log.segment.bytes": "1048575", "log.retention.ms": "1"}
    facts.topics["t"] = {"message.format.version": "0.10.2", "segment.bytes": "14", "retention.ms": "1"}
    found = [(each.weight.value, each.subject) for each in checked(facts).findings]
    assert found == [
        ("breaks", "broker 1: zookeeper.connect=zoo:2181"),
        ("breaks", "broker 1: log.segment.bytes=1048575"),
        ("breaks", "topic t: segment.bytes=14"),
        ("changes", "topic t: message.format.version=0.10.2"),
    ]


def test_old_formats_change_and_enriched_ones_break() -> None:
    facts = Facts()
    facts.stored = {
        "a": frozenset({Format.V0, Format.V2}),
        "b": frozenset({Format.V2}),
        "c": frozenset({Format.ENRICHED}),
    }
    assert [(each.weight.value, each.subject) for each in checked(facts).findings] == [
        ("breaks", "c"),
        ("changes", "a"),
    ]


def test_a_page_shows_what_clients_call_themselves_as_text() -> None:
    page = html_page(checked(seen(("Produce", 0), caller=SeenClient("<script>alert(1)</script>\x1b", "&", "", ""))))
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "breaks something" in page


def test_clients_beyond_the_bound_are_counted_together() -> None:
    sightings = Sightings()
    for at in range(MOST_SIGHTINGS):
        sightings.add(SeenClient(str(at)), 0, 9)
    sightings.add(SeenClient("one more"), 0, 2)
    sightings.add(SeenClient("another"), 0, 2)
    assert len(sightings) == MOST_SIGHTINGS + 1
    assert [seen.count for asking, seen in sightings if asking.caller == OTHERS] == [2]


@pytest.mark.parametrize(("text", "meant"), [("4", "4.4"), ("3", "3.9"), ("4.1", "4.1"), ("3.9.1", "3.9.1")])
def test_a_major_version_stands_for_its_latest_line(text: str, meant: str) -> None:
    assert release_meant(text).version == meant
