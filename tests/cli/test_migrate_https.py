"""`magicbyte migrate --metrics https://…`: own authorities, client certificates and tokens."""

import http.server
import json
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.testing import Broker
from magicbyte.testing.certificates import Authority

TOKEN = "a-secret-token"
NUMBERS = 'kafka_network_requestmetrics_requests_total{request="Produce",version="2"} 7\n' + "".join(
    f"kafka_server_brokertopicmetrics_{name}_total 1\n"
    for name in (
        "messagesin", "fetchmessageconversions", "totalproducerequests", "totalfetchrequests", "failedproducerequests",
        "failedfetchrequests",
    )
)  # fmt: skip


class Page(http.server.BaseHTTPRequestHandler):
    """The page of an exporter that wants a token. `/elsewhere` leads to where the token must not go."""

    tokens: list[str | None]

    def do_GET(self) -> None:
        self.tokens.append(self.headers.get("Authorization"))
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/metrics")
            self.end_headers()
            return
        self.send_response(200 if self.tokens[-1] == f"Bearer {TOKEN}" else 401)
        self.end_headers()
        if self.tokens[-1] == f"Bearer {TOKEN}":
            self.wfile.write(NUMBERS.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def page(folder: Path, authority: Authority) -> Iterator[tuple[str, list[str | None]]]:
    """Serve the page to who shows a certificate; yield its address, and the tokens that it was sent."""
    ca = folder / "ca.pem"
    ca.write_text(authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.write(folder, "server"))
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    tokens: list[str | None] = []
    handler = type("Handler", (Page,), {"tokens": tokens})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}", tokens
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_is_asked_with_an_authority_a_certificate_and_a_token(tmp_path: Path) -> None:
    authority = Authority()
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    certificate = authority.write(tmp_path, "client")
    with page(tmp_path, authority) as (address, tokens):
        trusted = ["migrate", "check", "--format", "json", "--metrics-ca", tmp_path / "ca.pem", "--metrics"]
        shown = ["--metrics-cert", certificate, "--metrics-token", token]
        done = run(*trusted, f"{address}/metrics", *shown)
        assert done.exit_code == 1, done.stderr
        (finding,) = json.loads(done.stdout)["findings"]
        assert finding["refused"] == [
            {"api": "Produce", "version": 2, "leastVersion": 3, "requests": 7, "lastMs": None}
        ]
        assert TOKEN not in done.stdout + done.stderr
        for asked in (
            ["migrate", "check", "--metrics", f"{address}/metrics", *shown],  # an unknown authority
            [*trusted, f"{address}/metrics", "--metrics-token", token],  # no certificate
            [*trusted, f"{address}/metrics", "--metrics-cert", certificate],  # no token
            [*trusted, f"{address}/elsewhere", *shown],
        ):
            refused = run(*asked)
            assert refused.exit_code == 2
            assert address in refused.stderr
        assert tokens == [f"Bearer {TOKEN}", None, f"Bearer {TOKEN}"]


def test_a_canary_is_watched_by_pages_that_want_a_certificate_and_a_token(tmp_path: Path) -> None:
    authority = Authority()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with page(tmp_path, authority) as (address, tokens), Broker() as broker:
        pages = [f"--metrics={number}={address}/metrics" for number in (0, 1)]
        watch = ["migrate", "canary", "-b", broker.bootstrap_servers, "--broker", "0", "--watch", "1", *pages]
        trusted = ["--metrics-ca", tmp_path / "ca.pem", "--metrics-cert", authority.write(tmp_path, "client")]
        done = run(*watch, *trusted, "--metrics-token", token)
        assert (done.exit_code, "verdict: watch longer" in done.stdout) == (1, True), done.stderr
        assert tokens == [f"Bearer {TOKEN}"] * 4
        assert run(*watch, *trusted).exit_code == 2
        assert run(*watch, "--metrics-token", token).exit_code == 2


@pytest.mark.parametrize("text", ["", "a\nb", "ключ", "a b"])
def test_a_token_that_is_none_is_wrong_use(text: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    done = run("migrate", "check", "--metrics", "https://127.0.0.1:1/metrics", "--metrics-token", token)
    assert done.exit_code == 2
    assert f"{token}: expected a bearer token, found something else" in done.stderr


@pytest.mark.parametrize("option", ["--metrics-token", "--metrics-ca", "--metrics-cert"])
def test_a_fifo_with_credentials_is_refused_instead_of_waited_for(option: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = run("migrate", "check", "--metrics", "https://127.0.0.1:1/metrics", option, fifo)
    assert done.exit_code == 2
    assert f"{fifo}: expected a regular file, found a FIFO: copy its content to a file first" in done.stderr


def test_a_token_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    done = run("migrate", "check", "--metrics", "http://127.0.0.1:1/metrics", "--metrics-token", token)
    assert done.exit_code == 2
    assert "a token is sent to https:// only" in done.stderr
