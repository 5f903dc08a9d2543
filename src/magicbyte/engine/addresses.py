"""Network addresses as text: HOST:PORT. Every command, option and setting with one is parsed here."""

from __future__ import annotations

import re
from typing import Final

LAST_PORT: Final = 65535
"""The highest port. The system wraps higher ones to other ports without an error."""

_ADDRESS: Final = re.compile(r"(\[[^\s\[\]/,@]*\]|[^\s\[\]/,@]*):([0-9]{1,10})")


def host_and_port(
    text: str, *, example: str = "localhost:9092", host: str | None = None, free: bool = False
) -> tuple[str, int]:
    """Return host and port of HOST:PORT. The host may be in brackets, as an IPv6 address is.

    `host`: what no host stands for; None if one is needed. `free`: whether port 0 is taken, which stands for any free
    one. Raises ValueError.
    """
    match = _ADDRESS.fullmatch(text.strip())
    name = match[1].removeprefix("[").removesuffix("]") or host if match else None
    if "@" in text:
        text = f"***{text[text.rindex('@') :]}"  # a user and a password, which no address has
    if match is None or name is None:
        raise ValueError(f"{text!r}: expected HOST:PORT, such as {example}")
    return name, port_of(int(match[2]), text, free=free)


def port_of(port: int, text: str, *, free: bool = False) -> int:
    """Return a port that `text` names. Raises ValueError if there is no such port."""
    if not (0 if free else 1) <= port <= LAST_PORT:
        raise ValueError(f"{text!r}: expected a port from {0 if free else 1} to {LAST_PORT}, found {port}")
    return port


def addresses(text: str, *, example: str = "localhost:9092") -> list[tuple[str, int]]:
    """Return hosts and ports of HOST:PORT,HOST:PORT… as Kafka's clients do: empty parts are ignored.

    Raises ValueError, for no address too.
    """
    parts = [part for part in text.split(",") if part.strip()]
    return [host_and_port(part, example=example) for part in parts or [text]]


def zookeeper_addresses(text: str) -> str:
    """Return HOST[:PORT],…[/PATH] unchanged; the default port is ZooKeeper's. Raises ValueError."""
    hosts = text.partition("/")[0]
    for part in hosts.split(","):
        if ":" in part.rpartition("]")[2] or not part.strip():
            host_and_port(part, example="localhost:2181")
    return text
