"""Find the groups of a cluster that may have offsets, including those that old brokers do not list."""

from __future__ import annotations

from typing import Final

from magicbyte.access.client import Client
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.group_admin import list_groups
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.groups.records import OffsetCommitKey, decode_key
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.decode import DecodeOptions

_LISTS_ALL: Final = range(1, 100)  # versions of JoinGroup, the first one of 0.10.1
_KEYS: Final = DecodeOptions(values=False, headers=False)


class GroupNames:
    """Find the names of a cluster's groups, repeatedly.

    Brokers before 0.10.1 list only groups with members, those before 0.9 none: there the names of all groups that ever
    committed an offset are read from `__consumer_offsets`, each record once. `untold`: by kind, the groups
    that are not found, and why.
    """

    def __init__(self, client: Client) -> None:
        self.untold: dict[str, str] = {}
        self._client = client
        self._read: set[str] = set()
        self._next: dict[int, int] = {}  # by partition: the next offset to read

    async def find(self) -> dict[str, str]:
        """Return the groups with their protocol types, "" if unknown. Raises BrokerError, NetworkError."""
        versions = (await self._client.any_connection()).versions
        self.untold, types = {}, dict[str, str]()
        if versions.latest(APIS[ApiKey.LIST_GROUPS]) is not None:
            listed = await list_groups(self._client)
            types = {each.name: each.protocol_type for each in listed.groups}
            if listed.hidden:
                self.untold["(groups without a coordinator)"] = listed.warning
        if versions.latest(APIS[ApiKey.JOIN_GROUP], _LISTS_ALL) is None:
            try:
                await self._read_names()
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                self.untold["(groups without members)"] = f"its brokers do not list groups without members, and {error}"
            types = dict.fromkeys(self._read, "") | types
        return dict(sorted(types.items()))

    async def _read_names(self) -> None:
        topic = (await self._client.topics()).get(OFFSETS_TOPIC)
        for partition in [] if topic is None else sorted(topic.partitions):
            start, end = await bounds(self._client, OFFSETS_TOPIC, partition)
            first = max(start, self._next.get(partition, 0))
            async for columns in read_records(self._client, OFFSETS_TOPIC, partition, first, end, decoding=_KEYS):
                for record in columns:
                    key = None if record.key is None else decode_key(record.key)
                    if isinstance(key, OffsetCommitKey):
                        self._read.add(key.group)
            self._next[partition] = end
