"""What coordinators of groups and of transactions use of their broker: apart, as a start does not load them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from magicbyte.broker.appends import Appends
    from magicbyte.broker.replicas import Replicas
    from magicbyte.broker.runtime import Runtime
    from magicbyte.broker.topics import Topics
    from magicbyte.log.live.log_directory import LogDirectory


class CoordinatorServices(NamedTuple):
    """What a coordinator uses of its broker. `is_alone`: that is a cluster by itself."""

    runtime: Runtime
    topics: Topics
    logs: LogDirectory
    replicas: Replicas
    appends: Appends
    is_alone: bool
