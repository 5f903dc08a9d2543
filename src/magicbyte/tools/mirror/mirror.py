"""A mirror copies all chosen topics of a cluster, partition by partition, once or continuously."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from magicbyte.access.client import Client
from magicbyte.access.client.source import Source
from magicbyte.engine.printable import logger
from magicbyte.tools.mirror.copier import Copied, PartitionCopier
from magicbyte.tools.mirror.group_sync import GroupSync
from magicbyte.tools.mirror.offset_topic import make_offset_topic
from magicbyte.tools.mirror.outbox import Outboxes
from magicbyte.tools.mirror.oversize import Park
from magicbyte.tools.mirror.plan import Choice, TopicMirrorPlan, make_topics, plan
from magicbyte.tools.mirror.rounds import Copy, HasCopied, Rounds
from magicbyte.tools.mirror.route import Route
from magicbyte.tools.mirror.transactional import TransactionalCopier

log = logger(__name__)

GROUP_SECONDS: Final = 10.0  # between two synchronizations of groups
KEYS_DECIDE: Final = "records are distributed by key"
NOTHING_COPIED: Final = "nothing is copied yet"


class Mirror(Rounds):
    """Copy the chosen topics from a cluster to another. Setting `stop` ends it, with the progress stored."""

    def __init__(self, source: Source, target: Client, choice: Choice) -> None:
        super().__init__(source)
        self._target = target
        self._choice = choice
        self._park = None if choice.park is None else Park(choice.park)
        self._has_map = False
        self._groups: GroupSync | None = None
        if choice.sync_groups:
            assert isinstance(source, Client), "files have no coordinator to ask"
            self._groups = GroupSync(source, target, choice.group)
        self._groups_again_at = 0.0
        self._copiers: dict[tuple[str, int], PartitionCopier | TransactionalCopier] = {}

    async def plan(self) -> list[TopicMirrorPlan]:
        """Return what would be done, without changes. Raises as `plan` of plan.py does."""
        return await plan(self._source, self._target, self._choice)

    def _begun(self, group: asyncio.TaskGroup) -> Copy:
        outboxes = Outboxes(self._target, group)

        async def copy(wanted: TopicMirrorPlan, partition: int) -> None:
            copier = self._copier(wanted, partition)
            if isinstance(copier, TransactionalCopier):
                await copier.catch_up()
            else:
                await copier.catch_up(outboxes)

        return copy

    def _each(self) -> Mapping[tuple[str, int], HasCopied]:
        return self._copiers

    async def catch_up(self) -> None:
        """Copy what the source has now, and synchronize its groups if configured. Raises as Rounds.catch_up does."""
        await super().catch_up()
        if asyncio.get_running_loop().time() >= self._groups_again_at:
            await self._sync_groups()
            self._groups_again_at = asyncio.get_running_loop().time() + GROUP_SECONDS

    async def _sync_groups(self) -> None:
        """Synchronize the groups of the source, if configured."""
        if self._groups is None:
            return
        places, without_place = {}, {}
        for copier in self._copiers.values():
            partition = copier.route.topic, copier.route.partition
            if copier.route.lanes:
                without_place[partition] = KEYS_DECIDE
            elif copier.saved is None:
                without_place[partition] = NOTHING_COPIED
            else:
                places[partition] = (copier.route.to, copier.route.partition), copier.saved
        groups = self._groups
        synced = await self._source.retried(lambda: groups.sync(places, without_place))
        for written in synced.written:
            (topic, index), offset = written.target, written.translation.offset
            log.info("group %s continues at offset %d of %s-%d", written.group, offset, topic, index)
        for name, why in synced.left_out.items():
            if self.groups_left_out.get(name) != why:
                log.warning("group %s is left out: %s", name, why)
        self.groups_left_out = synced.left_out

    async def _made(self) -> list[TopicMirrorPlan]:
        """Return the plan, with all topics created."""
        planned = await make_topics(self._target, self.plan, self.stop)
        if self._choice.transactional_id is None:
            self._has_map = bool(planned) and (self._has_map or await make_offset_topic(self._target))
        return planned

    async def run(self) -> None:
        """Copy until `stop` is set. Raises what `catch_up` does."""
        await super().run()
        await self._sync_groups()

    def _copier(self, wanted: TopicMirrorPlan, partition: int) -> PartitionCopier | TransactionalCopier:
        """Return the copier of a partition: the existing one, unless its route has changed."""
        key, mirror_id = (wanted.name, partition), self._choice.transactional_id
        route = Route(
            self._source,
            self._target,
            wanted.name,
            partition,
            self._choice.group,
            wanted.storage,
            committed=wanted.committed,
            once=wanted.once and mirror_id is None,
            to=wanted.to,
            origin=wanted.origin,
            partitions=wanted.partitions,
            lanes=wanted.lanes,
            dialect=wanted.dialect,
            on_oversize=self._choice.on_oversize,
            park=self._park,
            merge=self._choice.merge,
            has_map=self._has_map,
            transactional_id=wanted.transactional_id(mirror_id, partition),
        )
        before = self._copiers.get(key)
        if before is None or before.route != route:
            kind = PartitionCopier if mirror_id is None else TransactionalCopier
            self._copiers[key] = kind(route, self.stop, Copied() if before is None else before.copied)
        return self._copiers[key]
