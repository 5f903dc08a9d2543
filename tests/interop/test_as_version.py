"""Our broker as each release beside what real brokers of it saw: clients send the same in order, and get as far.

`releases` does it and has what was recorded. A run here takes a third of the releases for each client, so that each
release has five clients; `python -m interop.releases compare` takes all for all.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interop import client_programs, matrix, releases
from interop.releases import RELEASES, Seen, Trial
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

CLIENTS = tuple(matrix.COMMANDS)
SHARES = 3
AT_A_TIME = 4  # clients, which wait more than they compute
REAL = "2.8.2"
ATTEMPTS = 3

Found = dict[tuple[str, str, str], Seen]  # by client, step, release
RECORDED: Found = releases.load()


def share(client: str) -> tuple[str, ...]:
    return RELEASES[CLIENTS.index(client) % SHARES :: SHARES]


def is_late(seen: Found) -> bool:
    """Return whether a client failed where it does not with a real broker: a busy machine may take its time."""
    return any(not each.succeeded and RECORDED[key].succeeded for key, each in seen.items() if key in RECORDED)


def run(client: str, folder: Path) -> Found:
    """Return the requests of a client to our broker as each release of its share, and the outcomes."""
    port = free_port()
    trial = Trial(client, port, folder)
    found: Found = {}
    try:
        for release in share(client):
            for _ in range(ATTEMPTS):
                with releases.ours(release, port) as front:
                    seen = {(client, step, release): each for step, each in trial.run(release, front).items()}
                if not is_late(seen):
                    break
            found |= seen
    finally:
        trial.process.close()
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Found:
    assert client_programs.missing() is None
    folder = tmp_path_factory.mktemp("releases")
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        every = list(threads.map(lambda client: run(client, folder), CLIENTS))
    return {key: seen for found in every for key, seen in found.items()}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_sends_in_order_what_it_sends_to_that_release_and_gets_as_far(client: str, ours: Found) -> None:
    real = {key: seen.as_served() for key, seen in RECORDED.items() if key[0] == client and key[2] in share(client)}
    assert {key: seen.as_served() for key, seen in ours.items() if key[0] == client} == real


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder, port = tmp_path_factory.mktemp("real"), free_port()
    found: Found = {}
    for attempt in range(ATTEMPTS):
        with releases.theirs(REAL, folder / f"broker-{attempt}", port) as front:
            for client in ("confluent-kafka", "kafka-python", "franz-go", "Java 3.9.1"):
                trial = Trial(client, port, folder)
                try:
                    found |= {(client, step, REAL): seen for step, seen in trial.run(REAL, front).items()}
                finally:
                    trial.process.close()
        if not is_late(found):
            break
    return found


def test_a_real_broker_sees_today_what_was_recorded(theirs: Found) -> None:
    assert {key: RECORDED[key].as_served() for key in theirs} == {key: seen.as_served() for key, seen in theirs.items()}
