"""What was recorded of clients and real brokers of each release is complete, and shows what a release lets them do."""

import json
from pathlib import Path

import pytest

from interop import matrix, releases
from interop.releases import RELEASES, STEPS
from magicbyte.server.settings.offer import offer_of as as_release

RECORDED = releases.load()
LISTED = json.loads((Path(__file__).parents[1] / "server/broker/releases.json").read_text())
ASKING = ("Java 0.11.0.3", "Java 2.8.2", "Java 3.9.1", "Java 4.3.1", "confluent-kafka", "kafka-python", "franz-go")
"""Clients that ask a broker what it knows, and send nothing else."""
API_VERSIONS = 18


@pytest.mark.parametrize("release", RELEASES)
def test_every_client_was_tried_with_every_release_up_to_where_it_failed(release: str) -> None:
    for client in matrix.COMMANDS:
        due = [step for step in STEPS if matrix.reason((client, step, "2")) is None]
        if not RECORDED[client, STEPS[0], release].succeeded:
            due = due[:1]
        assert [step for step in STEPS if (client, step, release) in RECORDED] == due, client


@pytest.mark.parametrize("release", LISTED)
def test_clients_that_ask_send_versions_that_are_listed(release: str) -> None:
    known = {int(key): range(least, most + 1) for key, (least, most) in LISTED[release].items()}
    for (client, step, of), seen in RECORDED.items():
        if of == release and client in ASKING:
            wrong = [
                (key, at) for key, at in seen.sent if key in known and key != API_VERSIONS and at not in known[key]
            ]
            assert not wrong, (client, step)


@pytest.mark.parametrize(
    ("client", "step", "first"),
    [
        *((client, "idempotent produce", "0.11.0.3") for client in ("Java 2.8.2", "confluent-kafka", "kafkajs")),
        ("franz-go", "idempotent produce", "0.8.2.2"),  # continues without
        *((client, "produce zstd", "2.1.1") for client in ("Java 4.3.1", "kafka-python", "aiokafka", "kafkajs")),
        *((client, "produce zstd", "0.8.2.2") for client in ("confluent-kafka", "kcat", "franz-go")),  # uncompressed
        *((client, "admin", "0.11.0.3") for client in ("Java 0.11.0.3", "confluent-kafka", "franz-go", "kafkajs")),
        *((f"Java {version}", "produce gzip", "0.10.0.1") for version in ("0.10.0.1", "0.11.0.3", "3.9.1")),
        ("Java 4.3.1", "produce gzip", "0.11.0.3"),
        ("kafkajs", "produce gzip", "0.10.0.1"),
    ],
)
def test_a_release_is_the_first_with_which_a_client_can_do_it(client: str, step: str, first: str) -> None:
    done = [release for release in RELEASES if (seen := RECORDED.get((client, step, release))) and seen.succeeded]
    assert done[0] == first


def test_every_release_that_is_known_is_recorded() -> None:
    lines = {".".join(each.split(".")[: 3 if each.startswith("0.") else 2]) for each in RELEASES}
    every = {"0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "4.0", "4.1"}
    every |= {f"2.{minor}" for minor in range(9)} | {f"3.{minor}" for minor in range(10)}
    assert every == lines
    assert all(as_release(each) for each in every)
