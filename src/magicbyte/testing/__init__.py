"""What tests import, ours and users': a broker, and the simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magicbyte.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    """Import the broker when it is asked for: tests of other things need none of it."""
    if name == "Broker":
        from magicbyte.testing.broker import Broker

        return Broker
    raise AttributeError(name)
