"""Settings of clients: names of Java's client and of librdkafka, and that no secret is ever shown."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from magicbyte.access.security.jaas import parse_jaas
from magicbyte.access.security.sasl import PlainClient
from magicbyte.access.security.scram import ScramClient
from magicbyte.access.security.settings import SETTINGS, ClientSecurity
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.testing.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def of(**settings: str) -> ClientSecurity:
    return ClientSecurity.of({name.replace("_", "."): value for name, value in settings.items()}, {"PW": "from env"})


def test_the_settings_of_javas_client_say_who_logs_in() -> None:
    found = of(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{PLAIN} required\n username="alice" password="a \\"b\\";c=d" ;',
    )  # fmt: skip
    assert found.login is not None
    assert (found.login.user, found.login.password) == ("alice", 'a "b";c=d')
    assert isinstance(found.login.begin(), PlainClient)
    assert found.tls is not None
    assert (found.tls.checks_peer, found.tls.checks_host) == (True, True)


def test_the_settings_of_librdkafka_say_the_same() -> None:
    found = of(
        security_protocol="sasl_plaintext", sasl_mechanisms="SCRAM-SHA-512", sasl_username="bob",
        sasl_password="${env:PW}",
    )  # fmt: skip
    assert found.tls is None
    assert found.login is not None
    assert found.login.password == "from env"
    assert isinstance(found.login.begin(), ScramClient)


def test_a_value_may_be_in_a_file_of_properties(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("kafka=in a file\n")
    found = of(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="a",
        sasl_password=f"${{file:{tmp_path}/secrets:kafka}}",
    )  # fmt: skip
    assert found.login is not None
    assert found.login.password == "in a file"


def test_no_text_of_the_settings_shows_a_secret() -> None:
    secret = "hunter2!"
    found = of(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="a", sasl_password=secret,
        ssl_keystore_location="x", ssl_keystore_password=secret, ssl_key_password=secret, ssl_truststore_location="y",
        ssl_truststore_password=secret,
    )  # fmt: skip
    assert secret not in repr(found)
    assert secret not in repr(parse_jaas("x", f"Module required password={secret};"))


@pytest.mark.parametrize(
    "text",
    ["", "Module", "Module required", 'Module required a="b"', 'Module required password="hunter2;', "M required a=;",
     'Module required password="hunter2" M2 required;', "M maybe a=b;", "M required a=b; N required c=hunter2;",
     "M required " + "a=hunter2 " * 100_000 + ";"],
)  # fmt: skip
def test_a_jaas_text_that_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        parse_jaas("sasl.jaas.config", text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security.protocl": "SSL"}, "did you mean 'security.protocol'?"),
        ({"security.protocol": "TLS"}, "expected PLAINTEXT, SSL"),
        ({"ssl.ca.location": "x"}, "PLAINTEXT does not use it"),
        ({"security.protocol": "SSL", "sasl.username": "x"}, "SSL does not use it"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "expected PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs a username and a password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "expected file:///PATH"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "file://elsewhere/token",
            },
            "expected file:///PATH",
        ),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"}, "expected https"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "together with ssl.keystore.certificate.chain"),
        ({"security.protocol": "SASL_SSL", "sasl.password": "${env:NOT_THERE}"}, "no environment variable NOT_THERE"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_is_expected(settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says.replace("?", r"\?")):
        ClientSecurity.of(settings, {})


def context(**settings: str) -> ssl.SSLContext:
    found = of(security_protocol="SSL", **settings).context()
    assert found is not None
    return found


def test_stores_are_read_as_pem_and_as_pkcs12(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    authority = Authority()
    key, certificate = authority.issue("me")
    own, root = (load_pem_x509_certificate(each.encode()) for each in (certificate, authority.certificate))
    locked = serialization.BestAvailableEncryption(b"pw")
    private = serialization.load_pem_private_key(key.encode(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    (tmp_path / "own.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"me", private, own, [root], locked))
    (tmp_path / "trust.p12").write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(root, b"ca")], locked)
    )
    (tmp_path / "ca.pem").write_text(authority.certificate)
    own_pem = str(authority.write(tmp_path, "own"))
    stores = [
        {"ssl_truststore_location": f"{tmp_path}/trust.p12", "ssl_truststore_password": "pw",
         "ssl_keystore_location": f"{tmp_path}/own.p12", "ssl_keystore_password": "pw"},
        {"ssl_truststore_location": f"{tmp_path}/ca.pem", "ssl_keystore_location": own_pem},
        {"ssl_truststore_certificates": authority.certificate, "ssl_keystore_key": key,
         "ssl_keystore_certificate_chain": certificate},
        {"ssl_ca_location": f"{tmp_path}/ca.pem", "ssl_certificate_location": own_pem, "ssl_key_location": own_pem},
        {"ssl_ca_pem": authority.certificate, "ssl_certificate_pem": certificate, "ssl_key_pem": key},
    ]  # fmt: skip
    for each in stores:
        made = context(**each)
        assert [one["subject"] for one in made.get_ca_certs()] == [((("commonName", "magicbyte test CA"),),)]
        assert made.check_hostname
    with pytest.raises(InvalidConfigError, match="the wrong password"):
        context(ssl_truststore_location=f"{tmp_path}/trust.p12", ssl_truststore_password="no")
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(InvalidConfigError, match="keytool -importkeystore"):
        context(ssl_truststore_location=f"{tmp_path}/old.jks")


def test_names_are_not_checked_where_the_settings_say_so() -> None:
    assert not context(ssl_endpoint_identification_algorithm="").check_hostname
    lax = ClientSecurity.of({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}).context()
    assert lax is not None
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_NONE)
    assert "ssl.endpoint.identification.algorithm" in SETTINGS
