"""Secured listeners: logins of every kind, and what a peer gets before it has said who it is (spec 10.9)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import logging
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.access.net.stream import SocketStream
from magicbyte.access.security.settings import ClientSecurity
from magicbyte.engine.errors import InvalidConfigError, NetworkError, SecurityError
from magicbyte.engine.records.columns import Record
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.testing import Broker
from server.broker.raw_logins import HANDSHAKE_V0, Raw, error_of

USERS = {"alice": 'wonder "land"', "a=b,c": "comma"}
PLAIN = b"\0alice\0" + USERS["alice"].encode()


def secured(protocol: str, **settings: str) -> Broker:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return Broker(given, security=protocol, users=USERS if protocol.startswith("SASL") else None)


def run(work: Callable[[Broker], Awaitable[None]], broker: Broker) -> None:
    async def inside() -> None:
        async with broker:
            await work(broker)

    asyncio.run(asyncio.wait_for(inside(), 60))


def proved(challenge: str, bare: str, password: str, nonce: str | None = None, extra: str = "") -> str:
    """Return the client's final token."""
    parts = dict(part.partition("=")[::2] for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"c=biws,r={nonce or parts['r']}{extra}"
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{challenge},{signed}".encode(), "sha256")
    return f"{signed},p={base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()}"


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN"), *itertools.product(["SASL_PLAINTEXT", "SASL_SSL"], ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])],
)
async def test_records_written_over_a_secured_listener_are_read_back(protocol: str, mechanism: str) -> None:
    async with secured(protocol) as broker:
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client(mechanism=mechanism)) as client:
            await admin.create_topic(client, admin.NewTopic("t"))
            written = [Record(at, 1_500_000_000_000 + at, 0, b"%d" % at, b"v" * 70_000) for at in range(5)]
            await send(client, "t", 0, written)
            _, end = await bounds(client, "t", 0)
            read = [each async for columns in read_records(client, "t", 0, 0, end) for each in columns]
            assert [(each.key, each.value) for each in read] == [(each.key, each.value) for each in written]


@pytest.mark.parametrize("release", ["0.10.0", "0.11.0", "1.0", "2.8", "4.1"])
async def test_a_broker_as_an_older_release_has_logins_too(release: str) -> None:
    """Of releases before 1.0 clients send their tokens without headers."""

    async with secured("SASL_PLAINTEXT", as__version=release) as broker:
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client()) as client:
            await client.topics()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_once_and_no_secret_is_logged(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def work(broker: Broker) -> None:
        assert broker.security is not None
        settings = {**broker.security.librdkafka(mechanism=mechanism), "sasl.password": "hunter2!"}
        async with Client(broker.bootstrap_servers, security=ClientSecurity.of(settings)) as client:
            with pytest.raises(SecurityError, match="was refused: Authentication failed") as refused:
                await client.topics()
        assert "hunter2!" not in str(refused.value)

    run(work, secured("SASL_SSL"))
    assert "is refused" in caplog.text
    assert "hunter2!" not in caplog.text
    assert USERS["alice"] not in caplog.text


async def test_a_login_step_by_step_has_kafkas_bytes() -> None:
    """Checks 1, 6 and 12."""

    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        assert error_of(await raw.ask("001200630000000100016300")) == 35
        assert error_of(await raw.ask("0012000000000001000163")) == 0
        assert (await raw.shake()).hex().startswith("00000001" + "0000" + "00000003" + "0005504c41494e")
        assert (await raw.authenticate(PLAIN)).hex() == "00000002" + "0000" + "0000" + "00000000" + "00" * 8
        assert error_of(await raw.shake()) == 34
        assert error_of(await raw.authenticate(PLAIN)) == 34
        assert await raw.ask("0003000100000003000163ffffffff")
        raw.stream.close()


async def test_tokens_of_old_clients_come_as_they_are() -> None:
    """Check 3."""

    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        assert error_of(await raw.shake(head=HANDSHAKE_V0)) == 0
        await raw.stream.write([struct.pack(">i", len(PLAIN)), PLAIN])
        assert await raw.stream.read(100) == b"\0\0\0\0"
        assert await raw.ask("0003000100000003000163ffffffff")
        raw.stream.close()
        raw = await Raw.to(broker)
        await raw.shake(head=HANDSHAKE_V0)
        assert await raw.ask(PLAIN + b"x") == b""


FIRST_FRAMES = {
    "Metadata": "0003000100000003000163ffffffff",  # check 5
    "an unknown API": "7fff000000000001000163",
    "a GSSAPI token": "60820100",  # check 10
    "SaslHandshake version 9": "0011000900000001000163",  # check 11
    "SaslAuthenticate": "0024000100000002000163000000010a",
    "nothing": "",
    "Produce": "0000000300000003000163ffffffff",
}


@pytest.mark.parametrize("frame", FIRST_FRAMES.values(), ids=FIRST_FRAMES)
async def test_a_client_that_begins_with_another_request_gets_no_byte(frame: str) -> None:
    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        assert await raw.ask(frame) == b""
        raw = await Raw.to(broker)  # others are served
        assert error_of(await raw.shake()) == 0
        raw.stream.close()


@pytest.mark.parametrize("size", [b"\0\x08\0\x01", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02", b"GET "])
async def test_a_frame_that_is_too_large_before_the_login_ends_the_connection(size: bytes) -> None:
    """Check 9."""

    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        await raw.stream.write([size + b"/ HTTP/1.1\r\n\r\n"])
        assert await raw.answer() == b""


async def test_two_good_requests_for_versions_or_another_request_in_a_login_end_it() -> None:
    """Checks 4, 7 and 8."""

    async with secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1") as broker:
        raw = await Raw.to(broker)
        await raw.ask("0012000000000001000163")
        assert await raw.ask("0012000000000001000163") == b""
        raw = await Raw.to(broker)
        await raw.shake()
        assert await raw.ask("0003000100000003000163ffffffff") == b""
        raw = await Raw.to(broker)
        assert error_of(await raw.shake("plain")) == 33
        assert await raw.answer() == b""


@pytest.mark.parametrize(
    "token", [b"alice\0pw", b"a\0b\0c\0d", b"\0\0pw", b"\0alice\0", b"bob" + PLAIN, b"\xff\0a\0b",
              b"\0alice\0wrong", b"\0nobody\0pw", b""],
)  # fmt: skip
async def test_tokens_of_plain_that_are_wrong_are_refused_with_code_58(token: bytes) -> None:
    """Checks 2 and 19."""

    async with secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1") as broker:
        raw = await Raw.to(broker)
        await raw.shake()
        assert error_of(await raw.authenticate(token)) == 58
        assert await raw.answer() == b""


SCRAM_FAULTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "y": ("y,,n=alice,r=abc", str),  # check 22
    "binding": ("p=tls-unique,,n=alice,r=abc", str),
    "no name": ("n,,n=,r=abc", str),
    "blank": ("n,,n=alice,r=a bc", str),
    "not ASCII": ("n,,n=\xe1l,r=abc", str),
    "unknown": ("n,,n=nobody,r=abc", str),  # check 25
    "authorization id": ("n,a=bob,n=alice,r=abc", str),
    "token": ("n,,n=alice,r=abc,tokenauth=true", str),  # check 32
    "nonce": ("n,,n=alice,r=abc", lambda text: proved(text, "n=alice,r=abc", USERS["alice"], "abc")),  # check 23
    "password": ("n,,n=alice,r=abc", lambda text: proved(text, "n=alice,r=abc", "wrong")),
    "no final": ("n,,n=alice,r=abc", lambda text: text),
}


@pytest.mark.parametrize(("first", "final"), SCRAM_FAULTS.values(), ids=SCRAM_FAULTS)
async def test_tokens_of_scram_that_are_wrong_are_refused_with_code_58(first: str, final: Callable[[str], str]) -> None:
    async with secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1") as broker:
        raw = await Raw.to(broker)
        assert error_of([each for each in await raw.scram(first, final) if each][-1]) == 58
        assert await raw.answer() == b""


@pytest.mark.parametrize(("release", "is_taken"), [(None, True), ("2.8", True), ("3.9", True), ("4.0", False)])
async def test_a_final_nonce_with_the_clients_own_in_front_is_taken_as_by_the_release(
    release: str | None, is_taken: bool
) -> None:
    """librdkafka before 2.6.1 sends such; Kafka 4.x refuses them (CVE-2024-56128)."""

    given = {} if release is None else {"as__version": release}
    async with secured("SASL_PLAINTEXT", connection__failed__authentication__delay__ms="1", **given) as broker:

        def repeated(challenge: str) -> str:
            nonce = challenge.removeprefix("r=").partition(",")[0]
            return proved(challenge, "n=alice,r=abc", USERS["alice"], f"abc{nonce}")

        def shortened(challenge: str) -> str:
            nonce = challenge.removeprefix("r=abc").partition(",")[0]
            return proved(challenge, "n=alice,r=abc", USERS["alice"], nonce)

        raw = await Raw.to(broker)
        assert error_of((await raw.scram("n,,n=alice,r=abc", repeated))[1]) == (0 if is_taken else 58)
        raw.stream.close()
        raw = await Raw.to(broker)
        assert error_of((await raw.scram("n,,n=alice,r=abc", shortened))[1]) == 58
        raw.stream.close()


def test_an_unknown_user_of_scram_is_challenged_and_refused_like_a_known_one(tmp_path: Path) -> None:
    salts: dict[str, set[str]] = {"nobody": set(), "no=2Cone": set(), "alice": set()}
    refusals = set()

    async def work(broker: Broker) -> None:
        for name, found in salts.items():
            bare = f"n={name},r=abc"
            raw = await Raw.to(broker)
            challenge, answer = await raw.scram(f"n,,{bare}", lambda text, bare=bare: proved(text, bare, "wrong"))
            parts = dict(part.partition("=")[::2] for part in challenge[12:-8].decode().split(","))
            assert parts["i"] == "4096"
            found.add(parts["s"])
            refusals.add(answer)
            raw.stream.close()

    for _ in range(2):  # the salts are the same after a restart
        settings = {"connection.failed.authentication.delay.ms": "1"}
        run(work, Broker(settings, security="SASL_PLAINTEXT", users=USERS, directory=tmp_path / "logs"))
    assert len(salts["nobody"]) == len(salts["no=2Cone"]) == 1
    assert not salts["nobody"] & salts["no=2Cone"]
    (refusal,) = refusals
    assert error_of(refusal) == 58


async def test_a_proof_of_another_size_ends_the_connection_and_nothing_else() -> None:
    """Check 24."""

    async with secured("SASL_PLAINTEXT") as broker:

        def short(text: str) -> str:
            return proved(text, "n=alice,r=abc", "x").rpartition(",p=")[0] + ",p=AAAA"

        raw = await Raw.to(broker)
        _, answer = await raw.scram("n,,n=alice,r=abc", short)
        assert answer == b""
        raw = await Raw.to(broker)
        assert error_of(await raw.shake()) == 0
        raw.stream.close()


@pytest.mark.parametrize("bare", ["n=alice,r=abc", "m=x,n=alice,r=abc", "n=alice,r=abc,foo=bar,baz=1"])
async def test_a_proof_over_the_bytes_that_were_sent_is_accepted(bare: str) -> None:
    """Check 86."""

    async with secured("SASL_PLAINTEXT") as broker:
        raw = await Raw.to(broker)
        _, answer = await raw.scram(f"n,,{bare}", lambda text: proved(text, bare, USERS["alice"]))
        assert error_of(answer) == 0
        assert b"v=" in answer
        raw.stream.close()


async def test_a_name_with_an_equals_sign_and_a_comma_logs_in() -> None:
    """Check 21."""

    async with secured("SASL_PLAINTEXT") as broker:
        assert broker.security is not None
        assert broker.served.metadata.exists("/config/users/a%3Db%2Cc") is not None
        settings = broker.security.client("a=b,c", "SCRAM-SHA-256")
        async with Client(broker.bootstrap_servers, security=settings) as client:
            await client.topics()


def test_plain_bytes_on_a_tls_listener_get_an_end_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Check 35."""

    async def plain(broker: Broker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        stream = await SocketStream.connect(host, int(port))
        await stream.write([bytes.fromhex("0000000b0012000000000001000163")])
        while await stream.read(100):
            pass
        stream.close()

    run(plain, secured("SSL"))
    assert caplog.text.count("plain bytes on a TLS listener") == 1


async def test_a_client_certificate_is_who_a_connection_speaks_for(tmp_path: Path) -> None:
    """Check 34."""
    from magicbyte.testing.certificates import Authority

    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    own, duke = authority.write(tmp_path, "broker"), authority.write(tmp_path, "duke")
    settings = {
        "listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required", "ssl.keystore.location": str(own),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }  # fmt: skip

    async with Broker(settings) as broker:
        trusted = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
        shown = ClientSecurity.of(trusted | {"ssl.keystore.location": str(duke)})
        async with Client(broker.bootstrap_servers, security=shown) as client:
            await client.topics()
            assert {str(each.principal) for each in broker.served._clients} == {"User:CN=duke"}
        with pytest.raises((SecurityError, NetworkError)):
            async with Client(broker.bootstrap_servers, security=ClientSecurity.of(trusted), retry_ms=0) as client:
                await client.topics()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "SSL://:0"}, "needs a certificate"),
        ({"listeners": "SASL_PLAINTEXT://:0"}, "sasl.enabled.mechanisms: listener SASL_PLAINTEXT needs"),
        ({"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "GSSAPI"}, "found GSSAPI"),
        ({"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config"),
    ],
)
def test_a_listener_without_what_secures_it_stops_the_start(settings: dict[str, str], says: str) -> None:
    async def work(broker: Broker) -> None:
        raise AssertionError("it started")

    with pytest.raises(InvalidConfigError, match=says):
        run(work, Broker(settings))


def test_a_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="expected PLAINTEXT, SSL"):
        BrokerConfig({"listeners": "X://:1", "listener.security.protocol.map": "X:TLS"})


def test_no_setting_that_secures_a_listener_is_unknown_and_none_is_shown() -> None:
    settings = {
        "ssl.keystore.password": "hunter2!", "listener.name.l.plain.sasl.jaas.config": "hunter2!",
        "listener.name.l.ssl.keystore.key": "x", "listener.name.l.sasl.enabled.mechanisms": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN", "ssl.client.auth": "none", "ssl.keystroe.key": "x",
    }  # fmt: skip
    warnings = BrokerConfig(settings).warnings()
    assert [each.partition(":")[0] for each in warnings] == ["ssl.keystroe.key"]
    assert "hunter2!" not in "".join(warnings)
