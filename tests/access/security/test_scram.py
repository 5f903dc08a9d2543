"""SCRAM against the example of RFC 7677, and against brokers that are none."""

from __future__ import annotations

import base64

import pytest

from magicbyte.access.security.scram import ScramClient
from magicbyte.access.security.server import ScramServer, credential_of_password
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import ProtocolError, SecurityError

NONCE = "rOprNGfwEbeRWgbNEkqO"
WHOLE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={WHOLE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_client_says_what_the_rfc_says() -> None:
    login = client()
    assert login.respond(None) == f"n,,n=user,r={NONCE}".encode()
    assert login.respond(CHALLENGE.encode()) == f"c=biws,r={WHOLE},{PROOF}".encode()
    assert login.respond(SIGNATURE.encode()) is None


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    login = client()
    login.respond(None)
    login.respond(CHALLENGE.encode())
    with pytest.raises(SecurityError, match="did not prove"):
        login.respond(SIGNATURE.replace("6", "7").encode())


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(NONCE, "another"), CHALLENGE.replace(WHOLE, NONCE), CHALLENGE.replace("4096", "4095"),
        CHALLENGE.replace("4096", "1000001"), CHALLENGE.replace("i=4096", "i=x"), "", "e=other-error",
        "\udcff" and "r=\x00", CHALLENGE + "x" * 10,
    ],
)  # fmt: skip
def test_a_challenge_that_is_none_ends_the_login(challenge: str) -> None:
    login = client()
    login.respond(None)
    with pytest.raises(SecurityError):
        login.respond(challenge.encode())


def test_a_salt_that_is_no_base64_ends_the_login() -> None:
    login = client()
    login.respond(None)
    with pytest.raises(ProtocolError):
        login.respond(f"r={WHOLE},s=W22Z=J0,i=4096".encode())


def test_a_comma_and_an_equals_sign_in_a_name_are_escaped() -> None:
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "x", NONCE).respond(None) == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_a_broker_with_the_credential_of_a_znode_says_what_the_rfc_says() -> None:
    """Check 20: the exchange of RFC 7677."""
    kept = credential_of_password("SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramServer(
        "SCRAM-SHA-256", {"user": Credential.load(kept.dump())}.get, nonce, secret=b"", takes_prefix=False
    )
    challenge = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.evaluate(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.mark.parametrize("text", ["salt=YQ==,stored_key=YQ==,server_key=YQ==", "salt=YQ==,stored_key=YQ==,"
                                  "server_key=YQ==,iterations=4096,more=1", "", "iterations=4096"])  # fmt: skip
def test_a_credential_with_other_keys_is_none_and_shows_nothing_of_itself(text: str) -> None:
    """Check 27."""
    with pytest.raises(SecurityError) as refused:
        Credential.load(text)
    assert "YQ==" not in str(refused.value)
