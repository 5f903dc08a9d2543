"""What ours leaves in ZooKeeper, read by real brokers of each release: restarted, and asked by their own tools.

    python -m interop.old_readers CELL...        (in tests/) writes old_readers.json

A cell is a release, with its own protocol, or a release and an older protocol, such as 3.5.2/3.0. With a protocol after
3.0 real followers fetch by topic id, which ours does not support: ours is then asked for changes of the tree only.

Our broker, the controller, and a real one are in a cluster of the real one's protocol. All changes of
`broker.tree_changes` are made at ours. Those that the protocol does not allow are refused; the real broker starts again
with the others. Then ours is stopped while a deletion and reassignments are in progress, and the real broker is the
controller of what ours left.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from builders import run
from interop import jvm, kafka_oracle
from interop.real_cluster import PATIENCE_S, RealCluster, until
from magicbyte.access.client.connection import Connection
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.releases import LAST_WITH_NAMES, Release, protocol_version
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from server.broker.serving import Peer
from server.broker.succession import UNREACHABLE, Succession
from server.broker.tree_changes import TOPIC, changes_by, make_all

RESULTS: Final = Path(__file__).parent / "old_readers.json"
RELEASES: Final = (
    "0.9.0.1", "0.10.0.1", "0.10.1.1", "0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1", "2.0.1", "2.3.1", "2.4.1", "2.5.1",
    "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.3.2", "3.5.2", "3.9.1",
)  # fmt: skip
REAL, OURS = 0, 7
CELLS: Final = (
    *RELEASES, *(f"{release}/3.0" for release in RELEASES if Release.of(release).line > LAST_WITH_NAMES)
)  # fmt: skip
_NEW_AUTHORIZER, _WITHOUT_ZOOKEEPER, _WITH_PRODUCER_IDS = (2, 4), (3, 0), (0, 11)


def _release_and_protocol(cell: str) -> tuple[str, tuple[int, ...]]:
    release, _, protocol = cell.partition("/")
    return release, protocol_version(protocol) if protocol else Release.of(release).line


def expected(cell: str) -> dict[str, str]:
    """Return the outcome of each change in a cluster with the release."""
    _, line = _release_and_protocol(cell)
    return {name: "read" if first <= line else "refused" for name, (_, first) in changes_by(OURS).items()}


async def outcome(cell: str, folder: Path) -> dict[str, str]:
    """Make all changes at ours, restart the real broker, ask it; return the outcome of each change."""
    release, line = _release_and_protocol(cell)
    protocol = ".".join(map(str, line))
    new = Release.of(release).line >= _NEW_AUTHORIZER
    authorizer = "kafka.security.authorizer.AclAuthorizer" if new else "kafka.security.auth.SimpleAclAuthorizer"
    common = {
        "inter.broker.protocol.version": protocol,
        "log.message.format.version": "0.9.0" if line < (0, 10) else "0.10.0",
        "authorizer.class.name": authorizer,
        "super.users": "User:ANONYMOUS",
    }
    if Release.of(release).line >= (3, 0):
        del common["log.message.format.version"]
    cluster = RealCluster(release, folder, *(f"{name}={value}" for name, value in common.items()), jvm.SHORT_SESSION)
    ours = Broker(BrokerConfig({
        **common,
        "broker.id": str(OURS),
        "log.dirs": str(folder / "ours"),
        "listeners": f"PLAINTEXT://{kafka_oracle.LOOPBACK}:0",
        "zookeeper.connect": cluster.zookeeper,
        "zookeeper.session.timeout.ms": "20000",
    }))  # fmt: skip
    async with cluster.running(), contextlib.AsyncExitStack() as stack:
        await ours.start()
        stack.push_async_callback(ours.abort)
        await until(partial(_leads, ours), "ours is the controller")
        await cluster.start(REAL)
        await until(partial(_knows, ours, [REAL, OURS]), "both brokers are known to ours")
        peer = await Peer.of(ours)
        codes = await make_all(peer, OURS)
        names = {ErrorCode.NONE: "read", ErrorCode.UNSUPPORTED_VERSION: "refused"}
        outcomes = {name: names.get(code, code.name) for name, code in codes.items()}
        if outcomes != expected(cell):
            peer.close()
            return outcomes
        succession = Succession(cluster.view, OURS, REAL, line)
        await succession.register_unreachable()
        await until(partial(_knows, ours, [REAL, OURS, UNREACHABLE]), "ours knows all brokers")
        last_producer_id = await succession.leave_in_progress(peer) if line <= LAST_WITH_NAMES else None
        peer.close()
        await cluster.stop(REAL)
        await cluster.start(REAL)
        await until(partial(_knows, ours, [REAL, OURS, UNREACHABLE]), "the real broker is back")
        await _ask(cluster, Release.of(release).line)
        stack.pop_all()
        await ours.stop()
        if last_producer_id is None:
            return outcomes
        await succession.see_it_continue()
        if line >= _WITH_PRODUCER_IDS:
            assert await _next_producer_id(cluster) == last_producer_id + 1
    return outcomes


async def _next_producer_id(cluster: RealCluster) -> int:
    host, _, port = cluster.bootstrap.rpartition(":")
    connection = await Connection.open(host, int(port), client_id="ids")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await connection.send(InitProducerIdRequest(transactional_id=None))
            assert isinstance(answer, InitProducerIdResponse)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # it asks the controller for a block of ids
                break
            await asyncio.sleep(0.1)
    await connection.aclose()
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id


async def _leads(ours: Broker) -> bool:
    return ours.cluster_view.controller_id == OURS


async def _knows(ours: Broker, ids: list[int]) -> bool:
    return ours.cluster_view.broker_ids() == ids


async def _ask(cluster: RealCluster, line: tuple[int, ...]) -> None:
    """Ask the release's own tools for settings and ACLs."""
    zookeeper = ["--zookeeper", cluster.zookeeper]
    where = zookeeper if line < _WITHOUT_ZOOKEEPER else ["--bootstrap-server", cluster.bootstrap]
    told = await _tool(
        cluster, "ConfigCommand", *where, "--describe", "--entity-type", "topics", "--entity-name", TOPIC
    )
    assert "retention.ms=7200000" in told, told
    told = await _tool(
        cluster, "ConfigCommand", *where, "--describe", "--entity-type", "clients", "--entity-name", "app"
    )
    assert "producer_byte_rate=1024" in told, told
    where = (
        ["--authorizer-properties", f"zookeeper.connect={cluster.zookeeper}"] if line < _WITHOUT_ZOOKEEPER else where
    )
    told = await _tool(cluster, "AclCommand", *where, "--list")
    assert "alice" in told, told


async def _tool(cluster: RealCluster, name: str, *arguments: str) -> str:
    from interop.real_cluster import run as run_program

    return await run_program(*kafka_oracle.tool_command(cluster.release, f"kafka.admin.{name}", list(arguments)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", default=CELLS)
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for cell in parser.parse_args().cells:
        with tempfile.TemporaryDirectory() as folder:
            found[cell] = run(outcome(cell, Path(folder)), 600)
        ordered = {each: found[each] for each in sorted(found, key=CELLS.index)}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        print(cell, "as expected" if found[cell] == expected(cell) else found[cell], flush=True)


if __name__ == "__main__":
    main()
