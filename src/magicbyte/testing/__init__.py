"""Test tools for us and for users: a broker, a cluster, and the simulated world."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magicbyte.testing.broker import Broker
    from magicbyte.testing.cluster import Cluster, TurnedClock

__all__ = ["Broker", "Cluster", "TurnedClock"]


def __getattr__(name: str) -> object:
    """Import a broker or cluster at its first use: other tests need neither."""
    if name not in __all__:
        raise AttributeError(name)
    with _uncollected():
        if name == "Broker":
            from magicbyte.testing.broker import Broker

            return Broker
        from magicbyte.testing import cluster

        return getattr(cluster, name)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection while modules are imported: their objects stay, and each collection scans them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
