"""OAUTHBEARER at the broker: whose signed tokens are accepted, and for how long (spec 10.2, checks 18 and 28 to 31)."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from access.net.test_token_endpoint import endpoint
from magicbyte.access.client import Client
from magicbyte.access.security.settings import ClientSecurity
from magicbyte.engine.errors import InvalidConfigError, SecurityError
from magicbyte.testing import Broker
from server.broker.raw_logins import Raw, error_of
from server.broker.serving import Clock, OnClock, within

METADATA = "0003000100000003000163ffffffff"
NOW = 1_700_000_000
CLAIMS = {"sub": "alice", "exp": NOW + 60, "iat": NOW, "aud": ["kafka", "other"], "iss": "us"}
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def text_of(data: bytes | dict[str, Any]) -> str:
    found = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode()


def number(value: int, size: int) -> str:
    return text_of(value.to_bytes(size, "big"))


def signed(claims: dict[str, Any], head: dict[str, Any] | None = None) -> str:
    """Return a token, signed by the key that its head names, as far as it is one of these."""
    header = {"alg": "RS256", "kid": "one"} if head is None else head
    text = f"{text_of(header)}.{text_of(claims)}"
    algorithm = header.get("alg")
    if algorithm == "ES256":
        pair = decode_dss_signature(EC_KEY.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(each.to_bytes(32, "big") for each in pair)
    elif algorithm == "PS256":
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        signature = RSA_KEY.sign(text.encode(), pss, hashes.SHA256())
    elif algorithm == "RS256":
        signature = RSA_KEY.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = b""
    return f"{text}.{text_of(signature)}"


def keys() -> str:
    public, point = RSA_KEY.public_key().public_numbers(), EC_KEY.public_key().public_numbers()
    listed = [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "kid": "two", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"},
        {"kty": "RSA", "kid": "one", "n": number(public.n, 256), "e": number(public.e, 3)},
        {"kty": "EC", "kid": "two", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32), "use": "sig"},
    ]
    return json.dumps({"keys": listed})


class Bearers(OnClock):
    """A broker that takes tokens, by a clock that the test turns."""

    def __init__(self, folder: Path, **settings: str) -> None:
        (folder / "keys.json").write_text(keys())
        named = {name.replace("__", "."): value for name, value in settings.items()}
        given = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys.json",
            "sasl.oauthbearer.expected.audience": "kafka,another", "sasl.oauthbearer.expected.issuer": "us",
            "connection.failed.authentication.delay.ms": "1",
        }  # fmt: skip
        super().__init__(given | named, Clock(NOW * 1000))


async def offered(broker: Broker, token: str, before: str = "n,,") -> tuple[Raw, bytes]:
    raw = await Raw.to(broker)
    assert error_of(await raw.shake("OAUTHBEARER")) == 0
    return raw, await raw.authenticate(f"{before}\x01auth=Bearer {token}\x01\x01".encode())


@pytest.mark.parametrize("head", [{"alg": "RS256", "kid": "one"}, {"alg": "PS256"}, {"alg": "ES256", "kid": "two"}])
async def test_a_token_that_is_signed_by_a_key_of_the_file_logs_in_until_it_expires(
    tmp_path: Path, head: dict[str, Any]
) -> None:
    """Check 18."""

    async with Bearers(tmp_path) as broker:
        raw, answer = await offered(broker, signed(CLAIMS, head), "n,a=alice,")
        assert error_of(answer) == 0
        assert int.from_bytes(answer[-8:], "big") == 60_000
        assert {str(each.principal) for each in broker.served._clients} == {"User:alice"}
        assert await raw.ask(METADATA)
        broker.clock.advance(60_001)
        assert await raw.ask(METADATA) == b""
        assert not broker.served.config.warnings()


async def test_the_shorter_of_both_limits_counts_and_a_new_token_extends_the_session(tmp_path: Path) -> None:
    async with Bearers(tmp_path, connections__max__reauth__ms="20000") as broker:
        raw, answer = await offered(broker, signed(CLAIMS))
        assert int.from_bytes(answer[-8:], "big") == 20_000
        broker.clock.advance(15_000)
        assert error_of(await raw.shake("OAUTHBEARER")) == 0
        later = signed(CLAIMS | {"exp": NOW + 25})
        answer = await raw.authenticate(f"n,,\x01auth=Bearer {later}\x01\x01".encode())
        assert int.from_bytes(answer[-8:], "big") == 10_000


REFUSED = {
    "expired": signed(CLAIMS | {"exp": NOW - 31}),  # check 28
    "without an end": signed({name: value for name, value in CLAIMS.items() if name != "exp"}),
    "an end that is none": signed(CLAIMS | {"exp": "never"}),
    "an endless end": signed(CLAIMS | {"exp": float("inf")}),
    "not yet": signed(CLAIMS | {"nbf": NOW + 31}),
    "of the future": signed(CLAIMS | {"iat": NOW + 31}),  # check 31
    "another audience": signed(CLAIMS | {"aud": "zookeeper"}),
    "no audience": signed(CLAIMS | {"aud": None}),
    "another issuer": signed(CLAIMS | {"iss": "them"}),
    "nobody": signed(CLAIMS | {"sub": " "}),
    "a number": signed(CLAIMS | {"sub": 7}),
    "alg none": signed(CLAIMS, {"alg": "none"}),
    "alg None": signed(CLAIMS, {"alg": "None", "kid": "one"}),
    "without alg": signed(CLAIMS, {"kid": "one"}),  # check 30
    "HS256 with a public key": signed(CLAIMS, {"alg": "HS256", "kid": "one"}),
    "the key of another": signed(CLAIMS, {"alg": "ES256", "kid": "one"}),
    "an unknown key": signed(CLAIMS, {"alg": "RS256", "kid": "three"}),
    "critical": signed(CLAIMS, {"alg": "RS256", "crit": ["b64"]}),
    "one dot": signed(CLAIMS).rpartition(".")[0],  # check 29
    "without a signature": signed(CLAIMS).rpartition(".")[0] + ".",
    "another's signature": f"{signed(CLAIMS | {'sub': 'bob'}).rpartition('.')[0]}.{signed(CLAIMS).rpartition('.')[2]}",
    "nested": f"{text_of(b'[' * 20_000)}.{text_of(CLAIMS)}.x",
    "a list": f"{text_of(b'[]')}.{text_of(CLAIMS)}.x",
    "large": "a" * 70_000,
}  # fmt: skip


@pytest.mark.parametrize("token", REFUSED.values(), ids=REFUSED)
def test_any_other_token_is_refused_without_a_reason_for_its_bearer(
    tmp_path: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Bearers) -> None:
        raw, answer = await offered(broker, token)
        assert error_of(answer) == 0
        assert answer[12:-8] == b'{"status":"invalid_token"}'
        answer = await raw.authenticate(b"\x01")
        assert error_of(answer) == 58
        assert b'{"status":"invalid_token"}' in answer
        assert await raw.answer() == b""

    within(work, Bearers(tmp_path))
    assert caplog.text.count("a token is refused:") == 1
    assert token not in caplog.text


async def test_after_a_refused_token_a_good_one_passes(tmp_path: Path) -> None:
    async with Bearers(tmp_path) as broker:
        raw, _ = await offered(broker, REFUSED["expired"])
        assert error_of(await raw.authenticate(f"n,,\x01auth=bearer {signed(CLAIMS)}\x01x=y\x01\x01".encode())) == 0
        assert await raw.ask(METADATA)


@pytest.mark.parametrize(
    ("first", "code"),
    [(b"", 58), (b"\x01", 58), (b"n,,\x01auth=Bearer \x01\x01", 58), (b"y,,\x01auth=Bearer x\x01\x01", 58),
     (b"n,a=bob,\x01auth=Bearer " + signed(CLAIMS).encode() + b"\x01\x01", 58),
     (b"n,,\x01auth=Basic x\x01\x01", None)],
    ids=["nothing", "acknowledged", "no token", "a binding", "another user", "another scheme"],
)  # fmt: skip
async def test_what_is_no_first_message_is_refused(tmp_path: Path, first: bytes, code: int | None) -> None:
    async with Bearers(tmp_path) as broker:
        raw = await Raw.to(broker)
        await raw.shake("OAUTHBEARER")
        answer = await raw.authenticate(first)
        assert answer == b"" if code is None else error_of(answer) == code


async def test_our_client_logs_in_with_the_token_of_a_file_and_keys_that_change_count(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(signed(CLAIMS))
    security = ClientSecurity.of({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    })  # fmt: skip

    async with Bearers(tmp_path) as broker:
        async with Client(broker.bootstrap_servers, security=security) as client:
            await client.topics()
        kept = json.loads(keys())["keys"][4:]
        (tmp_path / "keys.json").write_text(json.dumps({"keys": kept}))
        broker.clock.advance(1000)
        async with Client(broker.bootstrap_servers, security=security) as client:
            with pytest.raises(SecurityError, match="invalid_token"):
                await client.topics()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://keys"}, "expected file:///PATH"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///not/there"}, "No such file"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "expected a number of seconds"),
    ],
)
def test_settings_of_tokens_that_cannot_be_stop_the_start(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        within(lambda _: asyncio.sleep(0), Bearers(tmp_path, **settings))


def test_a_file_with_more_keys_than_are_tried_stops_the_start(tmp_path: Path) -> None:
    """Ignored without a message, a key would refuse good tokens."""
    broker = Bearers(tmp_path)
    (tmp_path / "keys.json").write_text(json.dumps({"keys": json.loads(keys())["keys"][-1:] * 101}))
    with pytest.raises(InvalidConfigError, match=r"keys\.json: expected 1 to 100 .* found 101"):
        within(lambda _: asyncio.sleep(0), broker)


@pytest.mark.parametrize(
    "data", ["", "[]", '{"keys":[]}', '{"keys":[{"kty":"oct","k":"eA"}]}', '{"keys":[{"kty":"RSA"}]}']
)
def test_a_file_without_keys_stops_the_start(tmp_path: Path, data: str) -> None:
    broker = Bearers(tmp_path)
    (tmp_path / "keys.json").write_text(data)
    with pytest.raises(InvalidConfigError, match=r"keys\.json: expected"):
        within(lambda _: asyncio.sleep(0), broker)


def test_our_client_logs_in_with_the_token_of_an_endpoint(tmp_path: Path) -> None:
    answer = json.dumps({"access_token": signed(CLAIMS), "token_type": "Bearer"}).encode()

    async def work(broker: Bearers) -> None:
        security = ClientSecurity.of({
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url, "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hunter2!",
        })  # fmt: skip
        async with Client(broker.bootstrap_servers, security=security) as client:
            await client.topics()
            assert {str(each.principal) for each in broker.served._clients} == {"User:alice"}

    with endpoint(200, answer) as url:
        within(work, Bearers(tmp_path))
