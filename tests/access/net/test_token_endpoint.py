"""Tokens from an endpoint: what is asked, and what is made of answers that have none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from builders import run
from magicbyte.access.net.token_endpoint import fetch_token
from magicbyte.access.security.settings import ClientSecurity, TokenEndpoint
from magicbyte.engine.errors import InvalidConfigError, MagicbyteError, NetworkError, SecurityError
from magicbyte.testing.certificates import Authority

SECRET = "hunter2!"
GOOD = b'{"access_token":"abc.def.ghi","token_type":"Bearer","expires_in":60}'
ASKED: list[tuple[str, str, bytes]] = []


@contextmanager
def endpoint(
    status: int, body: bytes, headers: dict[str, str] | None = None, folder: Path | None = None
) -> Iterator[str]:
    """Answer all requests so; over TLS with a folder, where `ca.pem` is then."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            ASKED.append((self.path, self.headers["Authorization"], self.rfile.read(size)))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    scheme = "http"
    if folder is not None:
        authority, scheme = Authority(), "https"
        (folder / "ca.pem").write_text(authority.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.write(folder, "endpoint"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    ASKED.clear()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_client_shows_its_id_and_secret_and_gets_a_token() -> None:
    with endpoint(200, GOOD) as url:
        assert run(fetch_token(TokenEndpoint(url, "me", SECRET, "kafka read"))) == "abc.def.ghi"
    ((path, authorization, form),) = ASKED
    assert path == "/token"
    assert base64.b64decode(authorization.removeprefix("Basic ")) == f"me:{SECRET}".encode()
    assert parse_qs(form.decode()) == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_an_endpoint_of_tls_is_trusted_by_the_file_that_is_named_and_by_no_other(tmp_path: Path) -> None:
    with endpoint(200, GOOD, folder=tmp_path) as url:
        assert run(fetch_token(TokenEndpoint(url, "me", SECRET, ca_file=str(tmp_path / "ca.pem")))) == "abc.def.ghi"
        with pytest.raises(NetworkError, match="CERTIFICATE_VERIFY_FAILED"):
            run(fetch_token(TokenEndpoint(url, "me", SECRET)))


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_to_trust_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidConfigError, match=r"https\.ca\.location: .*ca\.pem: expected certificates"):
        run(fetch_token(TokenEndpoint("https://127.0.0.1:1/token", "me", SECRET, ca_file=str(path))))


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, b'{"error":"invalid_client"}', "401 invalid_client"),
        (400, b'{"error":"hunter2!"}', "status 400"),
        (500, b"[", "status 500"),
        (200, b"", "expected a bearer token"),
        (200, b"[1]", "expected a bearer token"),
        (200, b"[" * 100_000, "expected a bearer token"),
        (200, b'{"access_token":7}{', "expected a bearer token"),
        (200, b'{"access_token":"a b"}', "expected a bearer token"),
        (200, b'{"access_token":"' + b"a" * (1 << 18) + b'"}', "expected a bearer token"),
    ],
)
def test_answers_without_a_token_are_reported_without_secrets(status: int, body: bytes, says: str) -> None:
    with endpoint(status, body) as url, pytest.raises(MagicbyteError, match=says) as refused:
        run(fetch_token(TokenEndpoint(url, "me", SECRET)))
    assert SECRET not in str(refused.value)


def test_a_redirection_is_not_followed() -> None:
    with endpoint(302, b"", {"Location": "/elsewhere"}) as url, pytest.raises(SecurityError, match="status 302"):
        run(fetch_token(TokenEndpoint(url, "me", SECRET)))
    assert [path for path, _, _ in ASKED] == ["/token"]


def test_a_refused_connection_is_a_fault_of_the_network() -> None:
    with socket.socket() as nobody:  # which does not listen, and keeps the port from others
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/token"
        with pytest.raises(NetworkError, match="no answer to a request for a token"):
            run(fetch_token(TokenEndpoint(url, "me", SECRET)))


BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.oauthbearer.client.credentials.client.id": "me",
         "sasl.oauthbearer.client.credentials.client.secret": SECRET, "sasl.oauthbearer.scope": "s"},
        {"sasl.oauthbearer.method": "OIDC", "sasl.oauthbearer.client.id": "me",
         "sasl.oauthbearer.client.secret": SECRET, "sasl.oauthbearer.scope": "s"},
        {"sasl.jaas.config": f'm required clientId="me" clientSecret="{SECRET}" scope="s";'},
    ],
    ids=["Kafka 4.1", "librdkafka", "Kafka 3"],
)  # fmt: skip
def test_id_and_secret_have_the_names_of_each_client(settings: dict[str, str]) -> None:
    security = ClientSecurity.of(BEARER | {URL: "https://login.example/token"} | settings)
    assert security.login is not None
    assert security.login.endpoint == TokenEndpoint("https://login.example/token", "me", SECRET, "s")
    assert SECRET not in repr(security)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({URL: "https://login.example"}, "a token endpoint requires it"),
        ({URL: "ftp://login.example"}, "expected file:///PATH"),
        ({URL: f"https://me:{SECRET}@login.example"}, "expected file:///PATH"),
        ({URL: "https://login.example", "sasl.oauthbearer.method": "default"}, "expected oidc"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says) as refused:
        ClientSecurity.of(BEARER | settings)
    assert SECRET not in str(refused.value)


async def test_a_token_that_comes_byte_by_byte_has_a_deadline_as_a_whole() -> None:
    """Each byte comes in time, and the token is complete after four seconds; the endpoint is not read to its end."""
    slow = GOOD.replace(b"abc", b"abc" * 40)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(slow))
        with contextlib.suppress(ConnectionError):
            for at in range(len(slow)):
                writer.write(slow[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        with pytest.raises(NetworkError, match=r"not complete in time|timed out"):
            await fetch_token(TokenEndpoint(url, "me", SECRET), patience_s=0.5)
