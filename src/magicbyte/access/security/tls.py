"""TLS contexts from settings. At least TLS 1.2, without renegotiation and compression."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.extras import require
from magicbyte.engine.log.files.filesystem import open_regular, read_regular

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or a trust store: a file of `kind` PEM or PKCS12, or PEM texts. `key_location`: a separate key."""

    location: str | None = None
    kind: str = ""
    password: str | None = field(default=None, repr=False)
    certificates: str | None = None
    key: str | None = field(default=None, repr=False)
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)


class TlsSettings(Struct, frozen=True):
    """The trusted certificates (None: the system's), this side's identity (None: none), and the strictness.

    `checks_peer`: a broker's certificate is verified; `checks_host`: its name, too.
    """

    trusted: Store | None = None
    own: Store | None = None
    checks_peer: bool = True
    checks_host: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str | None = None


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client. Reads files. Raises InvalidConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    context.check_hostname = settings.checks_peer and settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED if settings.checks_peer else ssl.CERT_NONE
    if settings.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, settings.trusted)
    if settings.own is not None:
        _identify(context, settings.own)
    return context


def server_context(settings: TlsSettings, client_auth: str = "none") -> ssl.SSLContext:
    """Return the context of a listener. `client_auth`: Kafka's `ssl.client.auth`. Raises InvalidConfigError."""
    if settings.own is None:
        raise InvalidConfigError("ssl.keystore.location: a TLS listener needs a certificate and its key")
    if client_auth not in CLIENT_AUTH:
        raise InvalidConfigError(f"ssl.client.auth: expected none, requested or required, found {client_auth!r}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, settings)
    _identify(context, settings.own)
    if client_auth != "none":
        if settings.trusted is None:
            raise InvalidConfigError("ssl.truststore.location: ssl.client.auth requires trusted certificates")
        _trust(context, settings.trusted)
        context.verify_mode = CLIENT_AUTH[client_auth]
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    unknown = [each for each in settings.versions if each not in _VERSIONS]
    if unknown or not settings.versions:
        raise InvalidConfigError(f"ssl.enabled.protocols: expected TLSv1.2, TLSv1.3 or both, found {unknown}")
    chosen = sorted(_VERSIONS[each] for each in settings.versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError as error:
            raise InvalidConfigError(f"ssl.cipher.suites: {_reason(error)}: OpenSSL's names are expected") from None


def _trust(context: ssl.SSLContext, store: Store) -> None:
    name = store.location or "ssl.truststore.certificates"
    try:
        if _kind(store) == "PKCS12":
            context.load_verify_locations(cadata="".join(_unpacked(store)[1]))
        elif store.location is not None:
            context.load_verify_locations(cafile=_regular(store.location))
        else:
            context.load_verify_locations(cadata=store.certificates)
    except ssl.SSLError as error:
        raise InvalidConfigError(f"{name}: expected certificates in PEM: {_reason(error)}") from None
    except OSError as error:
        raise InvalidConfigError(f"{name}: {error.strerror}") from None


def _identify(context: ssl.SSLContext, store: Store) -> None:
    name, password = store.location or "ssl.keystore.key", store.key_password or ""
    try:
        if _kind(store) == "PKCS12":
            key, certificates = _unpacked(store)
            if not key:
                raise InvalidConfigError(f"{name}: there is no private key in it")
            with _as_file(key + "".join(certificates)) as path:
                context.load_cert_chain(path, password=password)
        elif store.location is not None:
            key_location = None if store.key_location is None else _regular(store.key_location)
            context.load_cert_chain(_regular(store.location), key_location, password)
        else:
            with _as_file(f"{store.key or ''}\n{store.certificates or ''}") as path:
                context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        if error.reason is not None and error.reason.endswith(("TOO_WEAK", "TOO_SMALL")):
            raise InvalidConfigError(
                f"{name}: OpenSSL refuses its certificates: {_reason(error)}: expected SHA-256 or better "
                "in signatures, and keys of 2048 bits or more"
            ) from None
        raise InvalidConfigError(
            f"{name}: expected a private key and its certificates in PEM, and the key's password if it has one: "
            f"{_reason(error)}"
        ) from None
    except OSError as error:
        raise InvalidConfigError(f"{name}: {error.strerror}") from None


def _regular(path: str) -> str:
    """Return the path of a regular file unchanged: the TLS library would wait for a FIFO."""
    open_regular(Path(path)).close()
    return path


def _kind(store: Store) -> str:
    """Return PEM or PKCS12: the given type, or that of the file's first byte."""
    kind = store.kind.upper()
    if kind in ("PEM", "PKCS12"):
        return kind
    if kind not in ("", "JKS"):
        raise InvalidConfigError(f"{store.location}: expected a store of type PEM or PKCS12, found {store.kind}")
    if store.location is None:
        return "PEM"
    first = read_regular(store.location)[:4]
    if first == b"\xfe\xed\xfe\xed":
        raise InvalidConfigError(
            f"{store.location}: a JKS store: expected PEM or PKCS12, which "
            "'keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12' makes of it"
        )
    return "PKCS12" if first[:1] == b"\x30" else "PEM"


def _unpacked(store: Store) -> tuple[str, list[str]]:
    """Return key and certificates of a PKCS12 store as PEM, the key protected by its own password if it has one."""
    require("security", f"{store.location}: a PKCS12 store")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    assert store.location is not None
    password = None if store.password is None else store.password.encode()
    try:
        unpacked = pkcs12.load_pkcs12(read_regular(store.location), password)
    except ValueError:
        raise InvalidConfigError(f"{store.location}: not a PKCS12 store, or the wrong password") from None
    pem = serialization.Encoding.PEM
    held = [each for each in (unpacked.cert, *unpacked.additional_certs) if each is not None]
    certificates = [each.certificate.public_bytes(pem).decode() for each in held]
    if unpacked.key is None:
        return "", certificates
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if store.key_password:
        protection = serialization.BestAvailableEncryption(store.key_password.encode())
    return unpacked.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, protection).decode(), certificates


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield a path from which OpenSSL reads a text: in memory if the system can, else readable by this user only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
