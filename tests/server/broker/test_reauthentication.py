"""Logins that end: clients log in again on the same connection (KIP-368), or lose it (spec 10.1, checks 14 to 17)."""

from __future__ import annotations

import pytest

from builders import pass_time
from magicbyte.access.client import Client
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.testing import Broker
from server.broker.raw_logins import HANDSHAKE_V0, HANDSHAKE_V1, Raw, error_of
from server.broker.serving import OnClock, within

METADATA = "0003000100000003000163ffffffff"
ALICE, BOB, WRONG = b"\0alice\0secret", b"\0bob\0hidden", b"\0alice\0hidden"
LIFETIME_MS = 600_000


class Timed(OnClock):
    """A broker whose logins hold for ten minutes, by a clock that stands still unless the test turns it."""

    def __init__(self, **settings: str) -> None:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        given = {
            "connections.max.reauth.ms": str(LIFETIME_MS),
            "connection.failed.authentication.delay.ms": "1",
            **named,
        }
        super().__init__(given, security="SASL_PLAINTEXT", users={"alice": "secret", "bob": "hidden"})


def lifetime_of(answer: bytes) -> int:
    return int.from_bytes(answer[-8:], "big")


async def logged_in(broker: Broker) -> Raw:
    raw = await Raw.to(broker)
    await raw.shake()
    assert error_of(await raw.authenticate(ALICE)) == 0
    return raw


async def test_a_login_says_how_long_it_is_valid_and_a_later_request_loses_the_connection() -> None:
    """Check 14."""

    async with Timed() as broker:
        raw = await Raw.to(broker)
        await raw.shake()
        assert lifetime_of(await raw.authenticate(ALICE)) == LIFETIME_MS
        assert await raw.ask(METADATA)
        broker.clock.advance(LIFETIME_MS + 1)
        assert await raw.ask(METADATA) == b""


async def test_clients_without_the_notice_are_held_to_it_too() -> None:
    async with Timed() as broker:
        for head in (None, HANDSHAKE_V0):
            raw = await Raw.to(broker)
            await raw.shake(head=head or HANDSHAKE_V1)
            if head is None:
                assert error_of(await raw.authenticate(ALICE, version=0)) == 0
            else:
                await raw.ask(ALICE)
            assert await raw.ask(METADATA)
            broker.clock.advance(LIFETIME_MS + 1)
            assert await raw.ask(METADATA) == b""


@pytest.mark.parametrize("passed_ms", [1000, LIFETIME_MS + 1])
async def test_a_second_login_before_or_after_the_end_begins_a_new_session(passed_ms: int) -> None:
    """Check 15."""

    async with Timed() as broker:
        raw = await logged_in(broker)
        broker.clock.advance(passed_ms)
        assert error_of(await raw.shake()) == 0
        assert lifetime_of(await raw.authenticate(ALICE)) == LIFETIME_MS
        broker.clock.advance(LIFETIME_MS - 60_000)
        assert await raw.ask(METADATA)
        broker.clock.advance(60_001)
        assert await raw.ask(METADATA) == b""


@pytest.mark.parametrize(("token", "why"), [(BOB, b"from User.alice: User.bob"), (WRONG, b"Invalid username")])
async def test_a_second_login_as_another_user_is_refused(token: bytes, why: bytes) -> None:
    """Check 16."""

    async with Timed() as broker:
        raw = await logged_in(broker)
        assert error_of(await raw.shake()) == 0
        answer = await raw.authenticate(token)
        assert error_of(answer) == 58
        assert why in answer
        assert await raw.answer() == b""


async def test_a_second_login_by_another_mechanism_ends_the_connection() -> None:
    """Check 16."""

    async with Timed() as broker:
        raw = await logged_in(broker)
        assert error_of(await raw.shake("SCRAM-SHA-256")) == 0
        assert await raw.authenticate(b"n,,n=alice,r=abc") == b""
        raw = await logged_in(broker)
        assert await raw.shake("GSSAPI") == b""


async def test_another_request_in_a_second_login_ends_the_connection() -> None:
    async with Timed() as broker:
        raw = await logged_in(broker)
        assert error_of(await raw.shake()) == 0
        assert await raw.ask(METADATA) == b""


async def test_a_third_login_within_a_second_of_the_second_is_not_begun_and_ends_nothing() -> None:
    """Check 17."""

    async with Timed() as broker:
        raw = await logged_in(broker)
        assert error_of(await raw.shake()) == 0
        assert error_of(await raw.authenticate(ALICE)) == 0
        assert error_of(await raw.shake()) == 34
        assert await raw.ask(METADATA)
        broker.clock.advance(1000)
        assert error_of(await raw.shake()) == 0
        assert error_of(await raw.authenticate(ALICE)) == 0


async def test_a_large_request_is_answered_behind_a_second_login() -> None:
    """Frames of a login are small."""
    nothing = bytes.fromhex("0000000300000001000163ffff000100000000" + "00000000") + bytes(600 << 10)

    async with Timed() as broker:
        raw = await logged_in(broker)
        assert await raw.ask(nothing)
        assert error_of(await raw.shake()) == 0
        assert error_of(await raw.authenticate(ALICE)) == 0
        assert await raw.ask(nothing)


async def test_a_mechanism_may_have_a_time_of_its_own() -> None:
    async with Timed(listener__name__sasl_plaintext__plain__connections__max__reauth__ms="7000") as broker:
        raw = await Raw.to(broker)
        await raw.shake()
        assert lifetime_of(await raw.authenticate(ALICE)) == 7000
        assert not broker.served.config.warnings()


def test_a_time_that_is_none_stops_the_start() -> None:
    broker = Timed(listener__name__sasl_plaintext__plain__connections__max__reauth__ms="soon")

    async def work(_: Timed) -> None:
        raise AssertionError("it started")

    with pytest.raises(InvalidConfigError, match="expected a number of ms"):
        within(work, broker)


async def test_our_client_logs_in_again_before_its_login_ends() -> None:
    async with Timed() as broker:
        assert broker.security is not None
        async with Client(broker.bootstrap_servers, security=broker.security.client("alice")) as client:
            await client.topics()
            (node,) = client.cluster.brokers.values()
            first = await client.connection(node)
            assert not first.is_stale
            pass_time(0.9 * LIFETIME_MS / 1000)
            assert first.is_stale
            assert await client.connection(node) is not first
            await client.topics()
