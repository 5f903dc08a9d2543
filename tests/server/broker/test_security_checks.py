"""Situations of a secured broker by their numbers, where no other test has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import force_setattr

from handshakes import client_hello
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.access.net import descriptors, server
from magicbyte.access.net.stream import SocketStream
from magicbyte.access.security.server import credential_of_password
from magicbyte.engine.cluster.acls import AclOperation, Permission
from magicbyte.engine.cluster.changes import ScramCredentialChanged
from magicbyte.engine.errors import ErrorCode, NetworkError
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as rescram
from magicbyte.engine.protocol.messages import (
    delete_topics,
    describe_acls,
    fetch,
    leader_and_isr,
    metadata,
    update_metadata,
)
from magicbyte.engine.protocol.messages import describe_user_scram_credentials as scram
from magicbyte.engine.protocol.messages import offset_commit as commit
from magicbyte.engine.protocol.messages import offset_fetch as committed
from magicbyte.engine.records.columns import Record
from magicbyte.server.stores.znodes import layout
from magicbyte.testing import Broker
from magicbyte.testing.certificates import Authority
from server.broker.raw_logins import Raw, error_of
from server.broker.serving import Peer, Running
from server.broker.test_rights import GROUP, NO_CLUSTER, NO_TOPIC, give, serving
from server.broker.test_security import PLAIN, USERS, proved, run, secured

USER: Final = "alice"
FIRST: Final = "n=alice,r=abc"


async def test_13_a_client_that_sends_single_bytes_is_disconnected() -> None:
    """The time for a login is that of the whole login."""

    async with secured("SASL_PLAINTEXT") as broker:
        assert broker.served._server is not None
        force_setattr(broker.served._server.limits, "entrance_ms", 500)
        raw = await Raw.to(broker)
        with contextlib.suppress(NetworkError):
            while broker.served._server.connections:
                await raw.stream.write([b"\0"])
                await asyncio.sleep(0.05)
        assert await raw.answer() == b""


async def scram_login(broker: Broker, password: str) -> bytes:
    raw = await Raw.to(broker)
    answers = await raw.scram(f"n,,{FIRST}", lambda text: proved(text, FIRST, password))
    raw.stream.close()
    return [each for each in answers if each][-1]


async def test_26_a_changed_credential_counts_for_the_next_login_and_ends_no_connection() -> None:
    async with secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1") as broker:
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client(mechanism="SCRAM-SHA-256")) as old:
            await old.topics()
            kept = credential_of_password("SCRAM-SHA-256", "new", b"salt")
            store = broker.served.cluster_store
            await store.propose([ScramCredentialChanged(USER, "SCRAM-SHA-256", kept)], store.image)
            assert error_of(await scram_login(broker, "new")) == 0
            assert error_of(await scram_login(broker, USERS[USER])) == 58
            await old.topics()


def test_25_27_damaged_or_weak_credentials_admit_no_user_and_the_log_is_not_filled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = credential_of_password("SCRAM-SHA-256", USERS[USER], b"salt").dump()
    weak = credential_of_password("SCRAM-SHA-256", USERS[USER], b"salt", 4095).dump()

    async def work(broker: Broker) -> None:
        said, path = set(), f"/config/users/{USER}"

        async def put(text: str) -> None:
            broker.served.metadata.set(path, layout.dump_config({"SCRAM-SHA-256": text}))
            await broker.served.cluster_store.reread([("users", USER)])

        for text in (*[good.rpartition(",")[0]] * 30, f"{good},more=1", weak):
            await put(text)
            answer = await scram_login(broker, USERS[USER])
            assert error_of(answer) == 58
            said.add(answer)
        assert len(said) == 1
        assert b"invalid credentials" in said.pop()
        await put(good)
        assert error_of(await scram_login(broker, USERS[USER])) == 0

    with caplog.at_level(logging.WARNING):
        run(work, secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1"))
    lines = [
        each.getMessage() for each in caplog.records if "the SCRAM-SHA-256 credential of user" in each.getMessage()
    ]
    assert 0 < len(lines) <= 20
    assert not any("salt=" in each for each in lines)


async def test_39_a_setting_without_the_prefix_requires_no_certificate_of_clients_that_log_in(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    trust = str(tmp_path / "ca.pem")

    settings = {"ssl.client.auth": "required", "ssl.truststore.location": trust}
    async with Broker(settings, security="SASL_SSL", users=USERS) as broker:
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client()) as client:
            await client.topics()


@pytest.mark.parametrize("note", [b"Topic:t", b"TOPIC:t", b"TransactionalId:x", b"TRANSACTIONAL_ID:x"])
async def test_51_a_note_in_any_spelling_has_the_acls_read_again(tmp_path: Path, note: bytes) -> None:
    async with serving(tmp_path) as (broker, peer):
        data = b'{"version":1,"acls":[{"principal":"User:*","permissionType":"Allow","operation":"All","host":"*"}]}'
        broker.metadata.create("/kafka-acl/Topic/t", data)
        broker.metadata.create("/kafka-acl-changes/acl_changes_", note, sequence=True)
        asked = metadata.MetadataRequest(topics=None)
        while not (await peer.ask(asked, 9, metadata.MetadataResponse)).topics:
            await asyncio.sleep(0.01)


async def test_53_two_who_add_acls_to_one_topic_at_once_both_have_them_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, _):
        await asyncio.gather(give(broker, AclOperation.READ), give(broker, AclOperation.WRITE))
        data = broker.metadata.get("/kafka-acl/Topic/t").data
        assert b'"Read"' in data
        assert b'"Write"' in data


async def test_60_a_topic_is_asked_for_by_its_id_without_being_told_its_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        topic = broker.topics.known("t")
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None, topic_id=topic.id)])
        (told,) = (await peer.ask(asked, 12, metadata.MetadataResponse)).topics
        assert (told.error_code, told.name, told.topic_id) == (NO_TOPIC, None, topic.id)


async def test_62_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.READ, GROUP, "g")
        for name in "tu":
            await give(broker, AclOperation.READ, name=name)
        await broker.coordinators.groups.ensure_topic()
        rows = [
            commit.OffsetCommitRequestTopic(
                name=name, partitions=[commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
            )
            for name in "tu"
        ]
        wanted = commit.OffsetCommitRequest(group_id="g", topics=rows)
        stored = await peer.ask(wanted, 7, commit.OffsetCommitResponse)
        assert {part.error_code for each in stored.topics for part in each.partitions} == {0}
        await give(broker, AclOperation.ALL, name="u", permission=Permission.DENY)
        asked = committed.OffsetFetchRequest(group_id="g", topics=None)
        told = await peer.ask(asked, 5, committed.OffsetFetchResponse)
        assert (told.error_code, [each.name for each in told.topics]) == (0, ["t"])


async def test_66_what_brokers_ask_of_each_other_is_refused_to_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.ALL)
        parts = [fetch.FetchPartition(partition=0, partition_max_bytes=1000)]
        asked = fetch.FetchRequest(replica_id=1, topics=[fetch.FetchTopic(topic="t", partitions=parts)])
        told = await peer.ask(asked, 11, fetch.FetchResponse)
        assert [part.error_code for each in told.responses for part in each.partitions] == [NO_TOPIC]
        roles = await peer.ask(leader_and_isr.LeaderAndIsrRequest(), 4, leader_and_isr.LeaderAndIsrResponse)
        known = await peer.ask(update_metadata.UpdateMetadataRequest(), 6, update_metadata.UpdateMetadataResponse)
        assert (roles.error_code, known.error_code) == (NO_CLUSTER, NO_CLUSTER)


async def test_68_a_topic_that_is_missing_is_unknown_only_to_those_who_might_delete_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        asked = delete_topics.DeleteTopicsRequest(topic_names=["missing"], timeout_ms=1000)
        codes = [(await peer.ask(asked, 4, delete_topics.DeleteTopicsResponse)).responses[0].error_code]
        await give(broker, AclOperation.DELETE, name="missing")
        codes += [(await peer.ask(asked, 4, delete_topics.DeleteTopicsResponse)).responses[0].error_code]
        assert codes == [NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_72_without_an_authorizer_there_are_no_acls_to_describe(tmp_path: Path) -> None:
    async with Running(tmp_path) as broker:
        peer = await Peer.of(broker)
        every: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        asked = describe_acls.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **every
        )
        told = await peer.ask(asked, 1, describe_acls.DescribeAclsResponse)
        assert told.error_code == ErrorCode.SECURITY_DISABLED
        peer.close()


async def test_73_74_credentials_that_cannot_be_are_refused_and_users_told_once(tmp_path: Path) -> None:
    def row(name: str, **named: Any) -> rescram.ScramCredentialUpsertion:
        values = {"mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p" * 32}
        return rescram.ScramCredentialUpsertion(name=name, **(values | named))

    async with serving(tmp_path, {"super.users": "User:ANONYMOUS"}) as (broker, peer):
        asked = rescram.AlterUserScramCredentialsRequest(
            deletions=[rescram.ScramCredentialDeletion(name=each, mechanism=2) for each in ("both", "..")],
            upsertions=[row("many", iterations=16_385), row("other", mechanism=3), row("both"), row("good")],
        )
        told = await peer.ask(asked, 0, rescram.AlterUserScramCredentialsResponse)
        assert {each.user: each.error_code for each in told.results} == {
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL, "other": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "both": ErrorCode.RESOURCE_NOT_FOUND, "..": ErrorCode.UNKNOWN_SERVER_ERROR, "good": 0,
        }  # fmt: skip
        assert broker.metadata.exists(layout.config_path("users", "both")) is None
        names = [scram.UserName(name=each) for each in ("good", "good", "absent")]
        described = await peer.ask(
            scram.DescribeUserScramCredentialsRequest(users=names), 0, scram.DescribeUserScramCredentialsResponse
        )
        assert sorted((each.user, each.error_code) for each in described.results) == [
            ("absent", ErrorCode.RESOURCE_NOT_FOUND), ("good", ErrorCode.DUPLICATE_RESOURCE),
        ]  # fmt: skip


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
async def test_85_half_open_connections_make_way_for_new_ones_and_other_listeners_serve(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that begin and say no more the latest stay; a login passes between them, and requests elsewhere.

    1500, of which 1024 stay, where there are descriptors for both sides. benchmarks/security.py opens 10,000.
    """
    count = min(1500, descriptors.limit() // 3)
    monkeypatch.setattr(server, "MOST_ENTERING", min(server.MOST_ENTERING, count * 2 // 3))
    begun = client_hello() if protocol == "SSL" else b"\0\0\0\x20\0\x11"

    async with secured(protocol) as broker:
        port = broker.served.ports[protocol]
        opened = []
        for _ in range(count):
            stream = await SocketStream.connect("127.0.0.1", port)
            await stream.write([begun])
            opened.append(stream)
        while broker.served._server.connections > server.MOST_ENTERING:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        if protocol != "SSL":
            raw = await Raw.to(broker)
            assert error_of(await raw.shake()) == 0
            assert error_of(await raw.authenticate(PLAIN)) == 0
            raw.stream.close()
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client()) as client:
            await client.topics()
        for stream in opened:
            stream.close()


async def test_67_without_an_authorizer_all_operations_are_allowed_and_reported_as_such(tmp_path: Path) -> None:
    async with Running(tmp_path) as broker:
        await broker.parts.topic_changes.create("t")
        peer = await Peer.of(broker)
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        told = await peer.ask(asked, 8, metadata.MetadataResponse)
        assert told.topics[0].topic_authorized_operations == 3576
        assert told.cluster_authorized_operations == 8096
        peer.close()


async def test_memory_of_a_frame_that_ends_before_a_login_is_given_back() -> None:
    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        await raw.stream.write([(200_000).to_bytes(4, "big"), b"\0\x11\0\1" + b"x" * 100])
        while not broker.served.runtime.login_memory.used:
            await asyncio.sleep(0.001)
        raw.stream.close()
        while broker.served.runtime.login_memory.used:
            await asyncio.sleep(0.001)


async def test_large_frames_of_half_open_logins_take_no_memory_of_those_who_are_logged_in() -> None:
    """They wait for each other; a Produce that is as large as theirs together is answered."""

    async with secured("SASL_PLAINTEXT") as broker:
        runtime = broker.served.runtime
        waiting = [await Raw.to(broker) for _ in range(100)]
        for raw in waiting:
            await raw.stream.write([(500 << 10).to_bytes(4, "big"), b"\0\x11\0\1"])
        while runtime.login_memory.used < runtime.login_memory.limit:
            await asyncio.sleep(0.001)
        assert runtime.login_memory.used <= runtime.login_memory.limit + (500 << 10)
        assert runtime.memory.used == 0
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client()) as client:
            await admin.create_topic(client, admin.NewTopic("t"))
            await send(client, "t", 0, [Record(0, 1_500_000_000_000, 0, b"", b"v" * 900_000)])
        assert runtime.memory.peak >= 900_000
        assert runtime.memory.used == 0
        for raw in waiting:
            raw.stream.close()
        while runtime.login_memory.used:
            await asyncio.sleep(0.001)
