"""Stores of keys that OpenSSL refuses."""

from pathlib import Path

import pytest

from cli.command import run

SIGNED_WITH_SHA_1 = """
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgL2otBRjeQCNZQmBM
1ebQaeSevsAFj7GIZKAzOW8gA42hRANCAAS4G8ckWxuYhLofqylHBsKKJ3lYUu7Y
Ys/4EbNjvw+6E0j2BFZGSu7YfgOm6JJxCnR5dC4c6qynMzJBrJcb4wMB
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIH8MIGlAgECMAkGByqGSM49BAEwDDEKMAgGA1UEAwwBYTAeFw0yNjExMjkxNTQz
NDdaFw0zNjExMjYxNTQzNDdaMAwxCjAIBgNVBAMMAWMwWTATBgcqhkjOPQIBBggq
hkjOPQMBBwNCAAS4G8ckWxuYhLofqylHBsKKJ3lYUu7YYs/4EbNjvw+6E0j2BFZG
Su7YfgOm6JJxCnR5dC4c6qynMzJBrJcb4wMBMAkGByqGSM49BAEDRwAwRAIgPYDQ
tzi/ts80sjAgb8cABkFmPaF1bMqPdqZ0fM2tKnkCIDxh0DU8hzg6MgoW1d8bOBOv
l0SWZeNdd0KSzj8ETwgb
-----END CERTIFICATE-----
"""
"""A key and its certificate, made for this test alone."""


def test_a_certificate_signed_with_sha_1_is_called_too_weak(tmp_path: Path) -> None:
    (tmp_path / "store.pem").write_text(SIGNED_WITH_SHA_1)
    settings = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": tmp_path / "store.pem"}
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    result = run("topics", "list", "-b", "localhost:1", *words)
    if "no broker answers" in result.stderr:
        pytest.skip("this OpenSSL takes SHA-1")
    assert result.exit_code == 2
    assert "store.pem: OpenSSL refuses its certificates: ca md too weak: expected SHA-256 or better" in result.stderr
