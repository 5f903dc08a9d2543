"""The parts of a broker that its coordinators use.

A separate module, because a start does not load the coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.server.partitions.appends import Appends
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import ServedTopic, Topics


class CoordinatorServices(NamedTuple):
    """The parts of the broker that a coordinator uses.

    `led_at_once` yields the partitions of a topic that this broker leads without an order of a controller, each with
    its leader epoch.
    """

    runtime: Runtime
    topics: Topics
    logs: LogDirectory
    replicas: Replicas
    appends: Appends
    led_at_once: Callable[[ServedTopic], Iterable[tuple[int, int]]]
