"""The API versions of a broker: from ApiVersions (KIP-35), or by its release before that.

Brokers from 0.10.0 on answer ApiVersions. A 0.9 ignores unknown requests, a 0.8.2 closes the connection. Sources:
broker protocol of these releases; KIP-35, KIP-511 (the response to a version that is too new).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from magicbyte.engine.errors import UnsupportedVersionError
from magicbyte.engine.protocol import APIS, Api
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsResponse

FIRST_FETCH_WITH_BATCHES: Final = 4


class BrokerVersions(Struct, frozen=True):
    """The versions that a broker supports, by API key. `release` is set if they follow from it."""

    ranges: dict[int, range]
    release: str | None = None

    def latest(self, api: Api, wanted: range | None = None) -> int | None:
        """Return the latest version that both the broker and we support, within `wanted`; None if there is none."""
        theirs = self.ranges.get(api.key, range(0))
        ranges = [theirs, api.versions] + ([] if wanted is None else [wanted])
        if not all(ranges):
            return None
        lowest, highest = max(each[0] for each in ranges), min(each[-1] for each in ranges)
        return highest if lowest <= highest else None

    @property
    def reads_committed(self) -> bool:
        """Whether the broker has transactions: a fetch can leave out the records of open and aborted ones."""
        return (self.latest(APIS[ApiKey.FETCH]) or 0) >= FIRST_FETCH_WITH_BATCHES

    def choose(self, api: Api, wanted: range | None, broker: str) -> int:
        """Return the latest common version. Raises UnsupportedVersionError with the broker's name if there is none."""
        version = self.latest(api, wanted)
        if version is None:
            asked = (api.versions if wanted is None else wanted) or range(1)
            known = self.ranges.get(api.key, range(0))
            raise UnsupportedVersionError(f"{api.name} at {broker}", asked[-1], known=known)
        return version


def versions_told(response: ApiVersionsResponse) -> BrokerVersions:
    """Return the versions in a broker's response.

    Brokers from 4.0 on list Produce 0 to 2 for librdkafka's sake, but refuse them: these are left out.
    """
    ranges = {
        each.api_key: range(each.min_version, each.max_version + 1)
        for each in response.api_keys
        if each.api_key in APIS
    }
    if ApiKey.PRODUCE in ranges and ranges.get(ApiKey.FETCH, range(1))[0] >= FIRST_FETCH_WITH_BATCHES:
        produce = ranges[ApiKey.PRODUCE]
        ranges[ApiKey.PRODUCE] = range(max(produce[0], 3), produce[-1] + 1)
    return BrokerVersions(ranges)


def _first(**versions: int) -> dict[int, range]:
    keys = {api.name: api.key for api in APIS.values()}
    return {keys[name]: range(highest + 1) for name, highest in versions.items()}


RELEASE_0_8_2: Final = BrokerVersions(
    _first(Produce=0, Fetch=0, ListOffsets=0, Metadata=0, OffsetCommit=1, OffsetFetch=1, FindCoordinator=0),
    release="0.8.2",
)
RELEASE_0_9: Final = BrokerVersions(
    _first(
        Produce=1, Fetch=1, ListOffsets=0, Metadata=0, OffsetCommit=2, OffsetFetch=1, FindCoordinator=0, JoinGroup=0,
        Heartbeat=0, LeaveGroup=0, SyncGroup=0, DescribeGroups=0, ListGroups=0,
    ),
    release="0.9",
)  # fmt: skip
