"""A certificate authority for the duration of a test: keys on the P-256 curve, generated within milliseconds."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from magicbyte.access.clock import SystemClock

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_LIFETIME: Final = datetime.timedelta(days=2)


_KEY_USAGES: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


class Authority:
    """A certificate authority. `certificate` is PEM, to be trusted by clients.

    Certificates have the extensions that RFC 5280 requires: Python checks them from 3.13 on (VERIFY_X509_STRICT).
    """

    def __init__(self, name: str = "magicbyte test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._made = self._signed(
            self._name,
            self._key.public_key(),
            _LIFETIME,
            x509.BasicConstraints(ca=True, path_length=0),
            _key_usage("key_cert_sign", "crl_sign"),
        )
        self.certificate = _pem(self._made)

    def issue(
        self, name: str, hosts: Sequence[str] = HOSTS, *, lifetime: datetime.timedelta = _LIFETIME
    ) -> tuple[str, str]:
        """Return a key (PKCS#8) and its certificate, as PEM. With a negative `lifetime` it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[x509.ExtensionType] = [
            x509.BasicConstraints(ca=False, path_length=None),
            _key_usage("digital_signature"),
        ]
        if hosts:
            extensions.append(x509.SubjectAlternativeName([_host(each) for each in hosts]))
        return _pem_key(key), _pem(self._signed(_named(name), key.public_key(), lifetime, *extensions))

    def write(self, folder: Path, name: str, hosts: Sequence[str] = HOSTS) -> Path:
        """Write a key and its certificate into a file, readable by this user only; return its path."""
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_text("".join(self.issue(name, hosts)))
        return path

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        lifetime: datetime.timedelta,
        *extensions: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
        begin = min(now, now + lifetime) - datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number(), begin, now + lifetime)
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for each in (*extensions, *identifiers):
            builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints | x509.KeyUsage))
        return builder.sign(self._key, hashes.SHA256())


def _key_usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _KEY_USAGES})


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _pem_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
