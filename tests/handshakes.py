"""First bytes of TLS handshakes, for tests and benchmarks of logins that go no further."""

from __future__ import annotations

import contextlib
import ssl


def client_hello() -> bytes:
    """Return the first bytes of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
