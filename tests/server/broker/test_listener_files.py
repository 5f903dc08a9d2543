"""Certificates and users of a listener that change while the broker runs, and who the owner of a certificate is."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.access.net.stream import SocketStream
from magicbyte.access.net.tls import TlsStream
from magicbyte.access.security.settings import ClientSecurity
from magicbyte.engine.errors import InvalidConfigError, NetworkError, SecurityError
from magicbyte.testing import Broker
from magicbyte.testing.certificates import Authority
from server.broker.raw_logins import Raw, error_of
from server.broker.serving import OnClock, within


async def serial_of(broker: Broker, authority: Path) -> str:
    """Return the number of the certificate that the broker shows."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    stream = TlsStream(await SocketStream.connect(host, int(port)), ssl.create_default_context(cafile=authority),
                       host=host)  # fmt: skip
    await stream.handshake()
    shown = stream._tls.getpeercert()
    stream.close()
    assert shown is not None
    return str(shown["serialNumber"])


def test_a_certificate_that_is_replaced_is_shown_to_later_connections_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Check 40, but that its name may change."""
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    own = authority.write(tmp_path, "broker")

    async def work(broker: OnClock) -> None:
        first = await serial_of(broker, tmp_path / "ca.pem")
        authority.write(tmp_path, "later").replace(own)
        assert await serial_of(broker, tmp_path / "ca.pem") == first, "looked at a moment ago"
        broker.clock.advance(1000)
        second = await serial_of(broker, tmp_path / "ca.pem")
        assert second != first
        own.write_text("-----BEGIN")
        broker.clock.advance(1000)
        assert await serial_of(broker, tmp_path / "ca.pem") == second
        own.unlink()
        broker.clock.advance(1000)
        assert await serial_of(broker, tmp_path / "ca.pem") == second

    within(work, OnClock({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(own)}))
    assert caplog.text.count("listener SSL keeps its former files") == 2


async def test_users_in_a_file_that_changes_log_in_with_what_it_says_now(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text('jaas=m required user_alice="old";')

    async def code_of(broker: Broker, password: str) -> int:
        raw = await Raw.to(broker)
        await raw.shake()
        answer = await raw.authenticate(b"\0alice\0" + password.encode())
        raw.stream.close()
        return error_of(answer)

    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"${{file:{users}:jaas}}",
        "connection.failed.authentication.delay.ms": "1",
    }  # fmt: skip
    async with OnClock(settings) as broker:
        assert await code_of(broker, "old") == 0
        users.write_text('jaas=m required user_alice="newer";')
        broker.clock.advance(1000)
        assert await code_of(broker, "old") == 58
        assert await code_of(broker, "newer") == 0


def test_files_of_another_listener_are_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = {
        "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN",
        "listener.security.protocol.map": "ONE:SASL_PLAINTEXT,TWO:SASL_PLAINTEXT",
    }  # fmt: skip
    for name in ("one", "two"):
        (tmp_path / name).write_text('jaas=m required user_alice="old";')
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f"${{file:{tmp_path / name}:jaas}}"

    async def work(broker: OnClock) -> None:
        (tmp_path / "two").write_text('jaas=m required user_alice="newer";')
        broker.clock.advance(1000)
        for name in ("ONE", "TWO"):
            raw = await Raw.to(broker, name)
            assert error_of(await raw.shake()) == 0
            raw.stream.close()

    within(work, OnClock(settings))
    told = [each.getMessage() for each in caplog.records if "files were reloaded" in each.getMessage()]
    assert told == ["listener TWO: files were reloaded"]


async def test_a_second_login_on_a_connection_counts_by_what_the_file_says_now(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text('jaas=m required user_alice="old";')

    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"${{file:{users}:jaas}}",
        "connection.failed.authentication.delay.ms": "1", "connections.max.reauth.ms": "60000",
    }  # fmt: skip
    async with OnClock(settings) as broker:
        first, second = await Raw.to(broker), await Raw.to(broker)
        for raw in (first, second):
            await raw.shake()
            assert error_of(await raw.authenticate(b"\0alice\0old")) == 0
        users.write_text('jaas=m required user_alice="newer";')
        broker.clock.advance(1000)
        for raw, password, code in ((first, b"old", 58), (second, b"newer", 0)):
            assert error_of(await raw.shake()) == 0
            assert error_of(await raw.authenticate(b"\0alice\0" + password)) == code


def test_rules_name_the_owner_of_a_certificate_and_one_without_a_rule_is_not_served(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    own = authority.write(tmp_path, "broker")
    trusted = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}

    def security_of(name: str) -> ClientSecurity:
        return ClientSecurity.of(trusted | {"ssl.keystore.location": str(authority.write(tmp_path, name))})

    async def work(broker: OnClock) -> None:
        async with Client(broker.bootstrap_servers, security=security_of("Duke.users")) as client:
            await client.topics()
            assert {str(each.principal) for each in broker.served._clients} == {"User:duke"}
        with pytest.raises((SecurityError, NetworkError)):
            async with Client(broker.bootstrap_servers, security=security_of("else"), retry_ms=0) as client:
                await client.topics()

    settings = {
        "listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required", "ssl.keystore.location": str(own),
        "ssl.truststore.location": str(tmp_path / "ca.pem"), "ssl.principal.mapping.rules": r"RULE:CN=(.*)\.users/$1/L",
    }  # fmt: skip
    within(work, OnClock(settings))
    with pytest.raises(InvalidConfigError, match="expected DEFAULT or RULE"):
        within(work, OnClock({**settings, "ssl.principal.mapping.rules": "default"}))
