"""Kafka's own cases of replication and reassignment: every acknowledged record is consumed, once.

After ReplicationTest and ReassignPartitionsTest of Kafka's system tests, with our brokers in place of Kafka's.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from interop.processes import BROKERS
from interop.run_cluster_kills import PARTITIONS, TOPIC, Cluster, under_load

pytestmark = [pytest.mark.interop, pytest.mark.slow]
BOUNCES = 5


async def bounce(cluster: Cluster, number: int, *, is_hard: bool) -> None:
    """Stop a broker, and start it again."""
    if is_hard:
        assert await cluster.members[number].end(signal.SIGKILL) == -signal.SIGKILL
    else:
        await cluster.end_cleanly(number)
    await cluster.members[number].start(cluster.tree.address)


@pytest.mark.parametrize("is_hard", [pytest.param(False, marks=pytest.mark.campaign), True], ids=["clean", "hard"])
@pytest.mark.parametrize("role", ["leader", "controller"])
def test_every_acknowledged_record_is_consumed_behind_five_bounces(
    needs_java: None, tmp_path: Path, role: str, is_hard: bool
) -> None:
    async def scenario() -> Cluster:
        async with under_load(tmp_path, seed=1, has_network=False) as cluster:
            for at in range(BOUNCES):
                number = await (cluster.leader(at % PARTITIONS) if role == "leader" else cluster.controller())
                await bounce(cluster, number, is_hard=is_hard)
                await cluster.heal(f"bounce {at} of broker {number}")
                await cluster.await_progress(f"bounce {at} of broker {number}")
                cluster.check_clients(f"bounce {at}")
        return cluster

    judged = asyncio.run(asyncio.wait_for(scenario(), 900)).judged
    assert judged["acknowledged"] > 500
    assert judged["unknown"] == 0


async def reassign(
    cluster: Cluster, folder: Path, replicas: list[list[int]], accepted: asyncio.Event | None = None
) -> None:
    """Move the replicas of partitions, and wait for the end of that; `accepted` is set when the brokers begin."""
    moves = [{"topic": TOPIC, "partition": at, "replicas": each} for at, each in enumerate(replicas)]
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    bootstrap = ",".join(each.address for each in cluster.members.values())
    command = ["-m", "magicbyte", "topics", "reassign", "-b", bootstrap, "--plan", str(plan), "--execute", "--wait"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    said = bytearray()
    async with asyncio.timeout(240):
        async for line in process.stdout:
            said += line
            if accepted is not None and b"the brokers copy now" in line:
                accepted.set()
        await process.wait()
    assert process.returncode == 0, said.decode()


@pytest.mark.parametrize("bounces", [pytest.param(False, marks=pytest.mark.campaign), True], ids=["still", "bounced"])
def test_every_acknowledged_record_is_consumed_while_replicas_move(
    needs_java: None, tmp_path: Path, bounces: bool
) -> None:
    async def scenario() -> Cluster:
        async with under_load(tmp_path, seed=2, has_network=False) as cluster:
            for at in range(len(BROKERS)):
                pair = [BROKERS[at], BROKERS[(at + 1) % len(BROKERS)]]
                await reassign(cluster, tmp_path, [pair] * PARTITIONS)
                accepted = asyncio.Event()
                back = asyncio.create_task(reassign(cluster, tmp_path, [list(BROKERS)] * PARTITIONS, accepted))
                if bounces:
                    waits = asyncio.create_task(accepted.wait())
                    await asyncio.wait([waits, back], return_when=asyncio.FIRST_COMPLETED)
                    waits.cancel()
                    await bounce(cluster, BROKERS[(at + 2) % len(BROKERS)], is_hard=True)
                await back
                await cluster.heal(f"move {at}")
                await cluster.await_progress(f"move {at}")
                cluster.check_clients(f"move {at}")
        return cluster

    judged = asyncio.run(asyncio.wait_for(scenario(), 900)).judged
    assert judged["acknowledged"] > 500
