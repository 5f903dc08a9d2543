"""The offer of a broker: API versions, formats, and the treatment of unknown requests.

With `as.version` it offers what that release would, as far as implemented. `releases.py` has the releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import FIRST_OF_PROTOCOL_2
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsResponse
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.releases import (
    FIRST_WITH_FEATURES,
    FIRST_WITH_GROUP_SETTING,
    LINES,
    Release,
    inter_broker_versions,
)
from magicbyte.server.settings.served import SERVED
from magicbyte.server.settings.versions import versions_response

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
"""The names of the features whose levels are `Offer.transaction_version`, `group_version` and `share_version`."""
FIRST_RELEASE, LAST_RELEASE = "0.8.2", LINES[-1]
"""The first and the last release that a broker can imitate."""
_OWN_PROTOCOL: Final = (2, 8)


class Offer(Struct, frozen=True):
    """Versions by API key: those that are answered, and those in ApiVersions.

    `newest_format` and `protocol` (`inter.broker.protocol.version`) determine the stored forms. `tells_range`,
    `reads_any_version`, `ignores_unknown`, `holds_throttled`, `transaction_version`, `group_version`, `share_version`,
    `keeps_share_counts`, `group_settings`, `keeps_assignment_epochs`, `closes_empty_groups`, `names_missing_groups`,
    `verifies_partitions` and `takes_prefixed_nonce` are those of `Release`. `has_features`: whether the cluster has
    finalized features, if only an empty set (KIP-584).
    """

    answered: Mapping[int, range]
    listed: Mapping[int, range]
    newest_format: Format = Format.V2
    protocol: tuple[int, ...] = _OWN_PROTOCOL
    tells_range: bool = True
    reads_any_version: bool = False
    ignores_unknown: bool = False
    holds_throttled: bool = False
    transaction_version: int = 0
    group_version: int = 0
    share_version: int = 0
    keeps_share_counts: bool = True
    keeps_assignment_epochs: bool = True
    closes_empty_groups: bool = True
    names_missing_groups: bool = False
    group_settings: frozenset[str] = frozenset()
    verifies_partitions: bool = True
    takes_prefixed_nonce: bool = True
    has_features: bool = True

    def answers(self, key: int, version: int) -> int | None:
        """Return the version in which a request is parsed and answered, None if it is unsupported."""
        versions = self.answered.get(key)
        if versions is None:
            return None
        if version in versions:
            return version
        return versions[-1] if self.reads_any_version and key != ApiKey.OFFSET_COMMIT else None

    def in_a_cluster(self, protocol: tuple[int, ...]) -> Offer:
        """Return the offer in a cluster with other brokers of an `inter.broker.protocol.version`.

        Protocols without features have no way to show that all brokers support protocol 2 of transactions, or consumer
        groups. Without `as.version` the others may be brokers of 2.8, which cannot read the records of such groups.
        """
        if protocol >= FIRST_WITH_FEATURES:
            return self if self.transaction_version else _without_consumer_groups(self)
        return replace(
            _without_consumer_groups(self),
            answered=_without_protocol_2(self.answered),
            listed=_without_protocol_2(self.listed),
            transaction_version=0,
            has_features=False,
        )


def _without_consumer_groups(offer: Offer) -> Offer:
    return replace(offer, group_version=0, share_version=0, group_settings=frozenset())


def _without_protocol_2(versions: Mapping[int, range]) -> dict[int, range]:
    return {
        key: range(each.start, min(each.stop, FIRST_OF_PROTOCOL_2.get(key, each.stop)), each.step)
        for key, each in versions.items()
    }


def _own() -> Offer:
    versions = _without_protocol_2({key: served.versions for key, served in SERVED.items()})
    return Offer(
        versions, versions, group_version=1, share_version=1, group_settings=frozenset(FIRST_WITH_GROUP_SETTING)
    )


OWN: Final = _own()
"""This broker by itself: brokers of 2.8 can use its log directory, so it has protocol 1 of transactions.

Those brokers cannot load partitions with records of consumer groups: clients that ask for the protocol accept that.
"""


def offer_of(name: str) -> Offer:
    """Return the offer of a release such as 0.10.2, 2.8 or 3.9.1, as far as implemented.

    Raises ValueError for an unknown release.
    """
    release = Release.of(name)
    if not release.is_since(FIRST_RELEASE):
        raise ValueError(name)
    answered = {
        key: range(versions.start, min(versions.stop, SERVED[key].versions.stop))
        for key, versions in release.answered().items()
        if key in SERVED
    }
    protocol = min(release.line, _OWN_PROTOCOL)
    listed = dict(answered)
    between = inter_broker_versions(protocol).keys() & SERVED.keys() - answered.keys()
    answered |= {key: SERVED[key].versions for key in sorted(between)}  # used between brokers, but unlisted
    listed[ApiKey.PRODUCE] = range(answered[ApiKey.PRODUCE].stop)  # librdkafka deduces codecs from version 0
    return Offer(
        answered,
        listed,
        newest_format=KAFKA_FORMATS[release.newest_magic],
        protocol=protocol,
        tells_range=release.tells_range,
        reads_any_version=release.reads_any_version,
        ignores_unknown=release.ignores_unknown,
        holds_throttled=release.holds_throttled,
        transaction_version=release.transaction_version,
        group_version=release.group_version,
        share_version=release.share_version,
        keeps_share_counts=release.keeps_share_counts,
        keeps_assignment_epochs=release.keeps_assignment_epochs,
        closes_empty_groups=release.closes_empty_groups,
        names_missing_groups=release.names_missing_groups,
        group_settings=release.group_settings,
        verifies_partitions=release.verifies_partitions,
        takes_prefixed_nonce=release.takes_prefixed_nonce,
        has_features=release.number >= FIRST_WITH_FEATURES,
    )


def unsupported_versions(offer: Offer) -> ApiVersionsResponse:
    """Return the response, in version 0, to an unsupported version of ApiVersions (KIP-511)."""
    listed: dict[int, range] = {ApiKey.API_VERSIONS: offer.listed[ApiKey.API_VERSIONS]} if offer.tells_range else {}
    return versions_response(listed, ErrorCode.UNSUPPORTED_VERSION)
