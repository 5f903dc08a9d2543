"""The groups of a coordinator: look-up, status, and deletion.

Functions that answer requests about offsets take this table, not the coordinator that calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magicbyte.engine.coordination.decider import Decider
from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.coordination.gathering import Gatherings
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.group import Group, GroupDeadline
from magicbyte.engine.groups.classic.usage import Usage
from magicbyte.engine.groups.config import GroupConfig
from magicbyte.engine.groups.consumer.config import ConsumerConfig
from magicbyte.engine.groups.consumer.group import ConsumerGroup
from magicbyte.engine.groups.consumer.records import encode
from magicbyte.engine.groups.consumer.topics import GroupTopics
from magicbyte.engine.groups.consumer.waiting import Expiry, WaitingRequest
from magicbyte.engine.groups.effects import OFFSETS_HEADER, AfterStore, Effect
from magicbyte.engine.groups.loading import LoadedPartition
from magicbyte.engine.groups.records import GroupMetadataKey, OffsetCommitKey
from magicbyte.engine.groups.share import records as share_records
from magicbyte.engine.groups.share.group import ShareGroup
from magicbyte.engine.groups.share.waiting import Waiting
from magicbyte.engine.ports import TopicPartition


class GroupTable(Decider[Effect, GroupDeadline, LoadedPartition]):
    """All groups of the partitions that this broker leads.

    `groups` has those of the classic protocol and the offsets of all, `consumers` the members of consumer groups,
    `shares` share groups. Under the name of a consumer group `groups` has offsets alone, if anything. `token` returns a
    unique text for member ids. `has_partition` tells whether a topic has a partition: offsets of others are refused.
    `topics` are those of the cluster. `consumer_config` returns the settings of a consumer group, with its own ones.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        token: Callable[[], str],
        has_partition: Callable[[str, int], bool],
        topics: GroupTopics,
        consumer_config: Callable[[str], ConsumerConfig],
    ) -> None:
        super().__init__(config.offsets_partitions)
        self.config = config
        self.groups: dict[str, Group] = {}
        self.gatherings = Gatherings()
        self.has_partition = has_partition
        self.usage = Usage()
        self.topics, self.token = topics, token
        self.consumer_config = consumer_config
        self.consumers: dict[str, ConsumerGroup] = {}
        # by group with a pending append: the requests and deadlines that wait for it
        self.waiting: dict[str, list[WaitingRequest | Expiry]] = {}
        self.shares: dict[str, ShareGroup] = {}
        self.waiting_share: dict[str, list[Waiting]] = {}
        # by partition and producer: the groups with pending offsets
        self.transacting: dict[tuple[int, int], set[str]] = {}

    def group_of(self, group_id: str) -> Group:
        """Return the group with this name, created if needed."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self.unlisted_group(group_id)
        return group

    def unlisted_group(self, group_id: str) -> Group:
        """Return a group without members, which is in no table."""
        partition = self.partition_of(group_id)
        term = self.terms[partition].number
        return Group(group_id, partition, term, self.config, self.deadlines, self.token, self.usage)

    def new_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group without members, which is in no table yet."""
        partition = self.partition_of(group_id)
        term = self.terms[partition].number
        return ConsumerGroup(group_id, partition, term, self.config.consumer.first_epoch, self.usage)

    def consumer_of(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group with this name, created if needed."""
        group = self.consumers.get(group_id)
        if group is None:
            group = self.consumers[group_id] = self.new_consumer_group(group_id)
        return group

    def new_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group without members, which is in no table yet."""
        return ShareGroup(group_id, self.partition_of(group_id), self.config.share.first_epoch, self.usage)

    def share_of(self, group_id: str) -> ShareGroup:
        """Return the share group with this name, created if needed."""
        group = self.shares.get(group_id)
        if group is None:
            group = self.shares[group_id] = self.new_share_group(group_id)
        return group

    def status(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return why this coordinator does not serve a group, or NONE.

        A group with an empty id has no members, but may have offsets, which can be fetched and deleted.
        """
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return super().status(group_id)

    def forget(
        self,
        group: Group,
        places: Iterable[TopicPartition],
        then: AfterStore | None = None,
        *,
        always: bool = False,
    ) -> list[Store[AfterStore | None]]:
        """Delete offsets of a group, and the group itself if it is idle then, or `always`.

        Return the effect that stores this, with `then` as its continuation; nothing if there is nothing to store.
        """
        records = list[tuple[bytes, bytes | None]]()
        for place in places:
            group.offsets.pop(place, None)
            group.pending_offsets.pop(place, None)
            records.append((OffsetCommitKey(1, group.group_id, *place).to_bytes(), None))
        if always or group.is_idle:
            group.bury(ErrorCode.UNKNOWN_MEMBER_ID)  # no request waits, because it has no members
            del self.groups[group.group_id]
            if group.generation:  # otherwise it was never stored
                records.append((GroupMetadataKey(group.group_id).to_bytes(), None))
            if always and group.group_id in self.consumers:
                records += self._deletion_of_consumer(group.group_id)
        return [Store(group.partition, group.term, tuple(records), then, OFFSETS_HEADER)] if records else []

    def is_empty_consumer(self, group_id: str) -> bool:
        """Return whether a consumer group exists, and has neither members nor a pending append."""
        group = self.consumers.get(group_id)
        return group is not None and not group.subscribers and group_id not in self.waiting

    def forget_consumer(self, group_id: str) -> list[Store[AfterStore | None]]:
        """Delete a consumer group without members, but not its offsets; return the effect that stores this."""
        group = self.consumers[group_id]
        return [Store(group.partition, group.term, tuple(self._deletion_of_consumer(group_id)), None)]

    def _deletion_of_consumer(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        group = self.consumers.pop(group_id)
        group.forget()
        return [encode(each, with_epochs=True) for each in group.deletion()]

    def forget_share(self, group_id: str, then: AfterStore | None = None) -> Store[AfterStore | None]:
        """Delete a share group without members; return the effect that stores this."""
        group = self.shares.pop(group_id)
        group.forget()
        encoded = tuple(map(share_records.encode, group.deletion()))
        return Store(group.partition, self.terms[group.partition].number, encoded, then)

    def is_transacting(self, group: Group, producer_id: int) -> None:
        """Record that a group has offsets committed in a producer's transaction."""
        self.transacting.setdefault((group.partition, producer_id), set()).add(group.group_id)
