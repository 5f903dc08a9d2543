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

from magicbyte.clock import SystemClock

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_LIFETIME: Final = datetime.timedelta(days=2)


class Authority:
    """A certificate authority. `certificate` is PEM, to be trusted by clients."""

    def __init__(self, name: str = "magicbyte test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._made = _signed(
            self._name, self._name, self._key, self._key, _LIFETIME, x509.BasicConstraints(ca=True, path_length=0)
        )
        self.certificate = _pem(self._made)

    def issue(
        self, name: str, hosts: Sequence[str] = HOSTS, *, lifetime: datetime.timedelta = _LIFETIME
    ) -> tuple[str, str]:
        """Return a key (PKCS#8) and its certificate, as PEM. With a negative `lifetime` it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(each) for each in hosts]) if hosts else None
        made = _signed(
            _named(name), self._name, key, self._key, lifetime, x509.BasicConstraints(ca=False, path_length=None), names
        )
        return _pem_key(key), _pem(made)

    def write(self, folder: Path, name: str, hosts: Sequence[str] = HOSTS) -> Path:
        """Write a key and its certificate into a file, readable by this user only; return its path."""
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_text("".join(self.issue(name, hosts)))
        return path


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    lifetime: datetime.timedelta,
    *extensions: x509.ExtensionType | None,
) -> x509.Certificate:
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    begin = min(now, now + lifetime) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begin,
                                      now + lifetime)  # fmt: skip
    for each in extensions:
        if each is not None:
            builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
    return builder.sign(signer, hashes.SHA256())


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
