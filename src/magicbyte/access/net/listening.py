"""Listening sockets."""

from __future__ import annotations

import asyncio
import errno
import socket

from magicbyte.engine.errors import NetworkError


async def listening_sockets(host: str, port: int, *, backlog: int, first_only: bool) -> list[socket.socket]:
    """Listen at all addresses of `host` ("" is any), or at the first alone; port 0 is any free one.

    The sockets do not block. Raises NetworkError; no socket is open then.
    """
    name = host.encode("ascii") if host.isascii() else host  # with a str Python loads the IDNA tables: 5 ms
    listening: list[socket.socket] = []
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, number, _, address in addresses[:1] if first_only else dict.fromkeys(addresses):
            try:
                listening.append(_listening(family, kind, number, address, backlog, shares=not first_only))
            except OSError as error:
                # A name such as localhost may have an address of a family that this machine does not support.
                if first_only or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
        if not listening:
            raise OSError(errno.EADDRNOTAVAIL, "this machine has none of its addresses")
    except OSError as error:
        for each in listening:
            each.close()
        raise NetworkError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return listening


def _listening(family: int, kind: int, number: int, address: object, backlog: int, *, shares: bool) -> socket.socket:
    """Return a listening socket. `shares`: its port is shared with a socket of the other family."""
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares and family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gives it
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
