"""What a broker leaves in the metadata tree is readable by the oldest broker of its cluster; the rest is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.transfer import transfer
from server.broker.clusters import cluster, until
from server.broker.serving import Clock, Peer
from server.broker.succession import UNREACHABLE, Succession
from server.broker.tree_changes import changes_by, make_all

PROTOCOLS = ["0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.7", "2.8", "3.2", "3.3", "3.9"]
OLDEST = {"Topic", "Group", "Cluster"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_the_protocol_does_not_allow_is_refused_and_not_written(folder: Path, protocol: str) -> None:
    line = tuple(map(int, protocol.split(".")))
    settings = {
        "inter_broker_protocol_version": protocol,
        "log_message_format_version": "0.9.0",
        "authorizer_class_name": "kafka.security.auth.SimpleAclAuthorizer",
        "super_users": "User:ANONYMOUS",
    }

    async with cluster(folder, 1, **settings) as members:
        peer, session = await Peer.of(members.brokers[1]), members.sessions[1]
        await until(lambda: members.brokers[1].cluster_view.controller_id == 1)
        codes = await make_all(peer, 1)
        peer.close()
        allowed = {name for name, (_, first) in changes_by(1).items() if first <= line}
        refused = dict.fromkeys(codes.keys() - allowed, ErrorCode.UNSUPPORTED_VERSION)
        assert codes == dict.fromkeys(allowed, ErrorCode.NONE) | refused
        since = {"TransactionalId": (0, 11), "DelegationToken": (1, 1), "User": (3, 3)}
        types = OLDEST | {name for name, first in since.items() if first <= line}
        assert set(session.children("/kafka-acl")) == types
        assert (session.exists("/kafka-acl-extended") is not None) == (line >= (2, 0))
        acl_notes = {session.get(f"/kafka-acl-changes/{each}").data for each in session.children("/kafka-acl-changes")}
        assert (b"Topic:t" if line < (2, 0) else b"TOPIC:t") in acl_notes
        assert (b"TransactionalId:t" in acl_notes) == ((0, 11) <= line < (2, 0))
        notes = [
            layout.load("note", session.get(f"{layout.CONFIG_CHANGES}/{each}").data)
            for each in session.children(layout.CONFIG_CHANGES)
        ]
        assert {each["version"] for each in notes} == {1 if line < (0, 10, 1) else 2}
        if line < (0, 10, 1):
            named = {(each["entity_type"], each["entity_name"]) for each in notes}
            assert named == {("topics", "t"), ("clients", "app")}


@pytest.mark.parametrize("protocol", ["0.9.0", "2.8"])
async def test_the_next_controller_continues_the_work_in_progress(folder: Path, protocol: str) -> None:
    settings = {"inter_broker_protocol_version": protocol, "log_message_format_version": "0.9.0"}
    async with cluster(folder, 2, **settings) as members:
        await until(lambda: members.brokers[1].cluster_view.controller_id == 1)
        view = LoopStore(members.tree.session())
        succession = Succession(view, 1, 2, tuple(map(int, protocol.split("."))))
        await succession.register_unreachable()
        await until(lambda: members.brokers[1].cluster_view.broker_ids() == [1, 2, UNREACHABLE])
        peer = await Peer.of(members.brokers[1])
        await succession.leave_in_progress(peer)
        peer.close()
        await members.kill(1)
        await succession.see_it_continue()


def test_an_exported_tree_has_no_empty_roots_of_acls() -> None:
    """A release that does not know a type of resource does not start with its node; it makes the others itself."""
    source, target = MemoryStore(Clock()), MemoryStore(Clock())
    for path in (
        "/kafka-acl/User",
        "/kafka-acl/Topic/t",
        "/kafka-acl-extended/prefixed/Group",
        "/admin/delete_topics/t",
    ):
        source.create(path, b"{}" if path.endswith("Topic/t") else b"", parents=True)
    transfer(source, target, ours={"ours"})
    assert target.children("/kafka-acl") == ["Topic"]
    assert target.exists("/admin/delete_topics/t") is not None
