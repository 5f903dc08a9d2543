"""Test tools for us and for users: a broker, a cluster, and the simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magicbyte.testing.broker import Broker
    from magicbyte.testing.cluster import Cluster, TurnedClock

__all__ = ["Broker", "Cluster", "TurnedClock"]


def __getattr__(name: str) -> object:
    """Import a broker or cluster at its first use: other tests need neither."""
    if name == "Broker":
        from magicbyte.testing.broker import Broker

        return Broker
    if name in __all__:
        from magicbyte.testing import cluster

        return getattr(cluster, name)
    raise AttributeError(name)
