"""The name of a certificate's owner as Kafka writes it (RFC 2253)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SHORT: Final = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
_EMAIL: Final = "emailAddress"
_EMAIL_OID: Final = "1.2.840.113549.1.9.1"


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return the text of a subject as Python's `ssl` gives it: the part that is encoded last comes first."""
    return ",".join("+".join(_part(name, value) for name, value in part) for part in reversed(list(subject)))


def _part(name: str, value: str) -> str:
    if name == _EMAIL and value.isascii() and len(value) < 128:
        return f"{_EMAIL_OID}=#16{len(value):02x}{value.encode().hex()}"
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    return f"{_SHORT.get(name, name)}={escaped}"
