"""The same conversation with real group coordinators and with ours: the same answers, field by field."""

import asyncio
from pathlib import Path

import pytest

from interop import jvm
from interop.group_steps import COMMIT, FETCH, GROUP_APIS, Steps, converse, highest
from interop.sweeps import cells
from magicbyte.access.client.connection import Connection
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

PARTITIONS = "num.partitions=2"
SETTINGS = {"num.partitions": "2", "offsets.topic.num.partitions": "1"}
_FROM_0_11_ON = "refusals say generation -1, not 0"
_OFFSETS = "a partition that is not there is refused for itself, not with its topic"
DIFFERENT: dict[str, dict[str, str]] = {
    "0.10.2.2": {
        **dict.fromkeys(
            (
                "join: no group",
                "join: session too short",
                "join: session too long",
                "join: unknown member",
                "join: no protocols",
                "join: no kind",
                "join: no common protocol",
                "join: other kind",
            ),
            _FROM_0_11_ON,
        ),
        **dict.fromkeys(
            (
                "commit: stable",
                "offsets: of three",
                "offsets: all",
                "offsets: empty",
                "offsets: deleted",
                "offsets: old, before",
                "commit: old",
                "offsets: old",
            ),
            _OFFSETS,
        ),
        "heartbeat: no group": "a group without a name is a fault of its own",
        "sync: no group": "a group without a name is a fault of its own",
        "heartbeat: before the assignment": "members that wait for their assignment do not get REBALANCE_IN_PROGRESS",
        "describe: before the assignment": "the state has another name: CompletingRebalance, not AwaitingSync",
        "list": "who is refused does not leave its kind behind",
    },
    "2.8.2": {"heartbeat: static: other instance": "an unknown instance has no heartbeats"},
    "3.9.1": {},
    "4.3.1": {
        "commit: of a generation, unknown group": "22 in every version, as a client of any knows it",
        "describe: rebalancing": "only stable groups have assignments in the answer",
        "delete: empty": "an empty group goes with its last offset",
        "delete: simple": "an empty group goes with its last offset",
    },
}
"""By version: steps in which real brokers answer differently from 3.9.1, which answers as ours."""


async def versions_of(address: str) -> dict[int, range]:
    host, port = address.rsplit(":", 1)
    connection = await Connection.open(host, int(port), client_id="c")
    try:
        return connection.versions.ranges
    finally:
        await connection.aclose()


def lowest(versions: dict[int, range]) -> dict[int, int]:
    """Return the first version of each API; of offsets the first that a coordinator answers."""
    return {api: max(versions[api][0], int(api in (COMMIT, FETCH))) for api in GROUP_APIS if api in versions}


def different(theirs: Steps, ours: Steps) -> dict[str, str]:
    """Return the steps whose answers differ, with both of them."""
    return {
        what: f"{what}\n   theirs {said}\n   ours   {mine}"
        for (what, said), (_, mine) in zip(theirs, ours, strict=True)
        if said != mine
    }


@pytest.mark.parametrize("version", cells(DIFFERENT))
def test_a_real_coordinator_and_ours_say_the_same(version: str, tmp_path: Path) -> None:
    with jvm.broker(version, tmp_path, PARTITIONS, scratch=True) as state:
        ranges = asyncio.run(versions_of(state["bootstrap"]))
        old = 0 in ranges[COMMIT]
        theirs = [asyncio.run(converse(state["bootstrap"], pick(ranges), old=old)) for pick in (highest, lowest)]
    with Broker(SETTINGS) as broker:
        ours = [asyncio.run(converse(broker.bootstrap_servers, pick(ranges), old=old)) for pick in (highest, lowest)]
    found = {}
    for said, mine in zip(theirs, ours, strict=True):
        found |= different(said, mine)
    unexpected = [text for what, text in found.items() if what not in DIFFERENT[version]]
    assert found.keys() == DIFFERENT[version].keys(), "\n".join(unexpected)
