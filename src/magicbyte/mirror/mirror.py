"""A mirror: all chosen topics of a cluster, partition by partition, once or again and again."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import fields
from typing import Final

from magicbyte.client import Client
from magicbyte.mirror.copier import Copied, PartitionCopier, Route
from magicbyte.mirror.group_sync import GroupSync
from magicbyte.mirror.offset_topic import make_offset_topic
from magicbyte.mirror.outbox import Outboxes
from magicbyte.mirror.oversize import Park
from magicbyte.mirror.plan import Choice, Mode, TopicPlan, make_topic, plan

log = logging.getLogger(__name__)

AT_ONCE: Final = 8  # partitions
PLAN_SECONDS: Final = 30.0  # until topics are looked for again
GROUP_SECONDS: Final = 10.0  # until groups of the source are looked for again
PAUSE_SECONDS: Final = 0.5  # between looks at the source when nothing came


class Mirror:
    """Copies the chosen topics from a cluster to another. Setting `stop` ends it: what was copied is kept in mind."""

    def __init__(self, source: Client, target: Client, choice: Choice) -> None:
        self.stop = asyncio.Event()
        self._source = source
        self._target = target
        self._choice = choice
        self._park = None if choice.park is None else Park(choice.park)
        self._planned: list[TopicPlan] = []
        self._plan_again_at = 0.0
        self._has_map = False
        self._groups = GroupSync(source, target, choice.group) if choice.sync_groups else None
        self._groups_again_at = 0.0
        self._copiers: dict[tuple[str, int], PartitionCopier] = {}

    async def plan(self) -> list[TopicPlan]:
        """Return what would be done, and do nothing. Raises what `plan` of plan.py does."""
        return await plan(self._source, self._target, self._choice)

    async def catch_up(self) -> None:
        """Copy what the source has now; topics and partitions that are new are made and begun.

        The first failure ends all, behind the sets at hand; partitions that went on are where they are. Raises what
        `plan` and `PartitionCopier.catch_up` do.
        """
        if time.monotonic() >= self._plan_again_at:
            self._planned, self._plan_again_at = await self._made(), time.monotonic() + PLAN_SECONDS
        slots = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                outboxes = Outboxes(self._target, group)
                for each in self._planned:
                    for partition in range(each.partitions):
                        group.create_task(self._copy(self._copier(each, partition), outboxes, slots))
        except ExceptionGroup as errors:
            for other in errors.exceptions[1:]:
                log.warning("another partition failed, too: %s", other)
            raise errors.exceptions[0] from None
        if time.monotonic() >= self._groups_again_at:
            await self._sync_groups()
            self._groups_again_at = time.monotonic() + GROUP_SECONDS

    async def _sync_groups(self) -> None:
        """Take the groups of the source along, if that is wanted."""
        if self._groups is None:
            return
        places = {
            (each.route.topic, each.route.partition): ((each.route.to, each.route.partition), each.saved)
            for each in self._copiers.values()
            if each.saved is not None and not each.route.lanes
        }
        for written in await self._groups.sync(places):
            (topic, partition), offset = written.target, written.translation.offset
            log.info("group %s goes on at offset %d of %s-%d", written.group, offset, topic, partition)

    async def _made(self) -> list[TopicPlan]:
        """Return the plan, whose topics are all there now."""
        planned = [each for each in await self.plan() if each.mode is not Mode.LEFT_OUT]
        for each in planned:
            if not self.stop.is_set():
                await make_topic(self._target, each)
        self._has_map = bool(planned) and (self._has_map or await make_offset_topic(self._target))
        return planned

    async def run(self) -> None:
        """Copy until `stop` is set. Raises what `catch_up` does."""
        while not self.stop.is_set():
            await self.catch_up()
            try:
                await asyncio.wait_for(self.stop.wait(), PAUSE_SECONDS)
            except TimeoutError:
                continue
        await self._sync_groups()

    def copied(self) -> dict[str, Copied]:
        """Return what was copied so far, by topic."""
        found: dict[str, Copied] = {}
        for (topic, _), copier in sorted(self._copiers.items()):
            total = found.setdefault(topic, Copied())
            for each in fields(Copied):
                setattr(total, each.name, getattr(total, each.name) + getattr(copier.copied, each.name))
        return found

    def _copier(self, wanted: TopicPlan, partition: int) -> PartitionCopier:
        """Return who copies a partition: the one there is, unless the way has changed since."""
        key = wanted.name, partition
        route = Route(
            self._source,
            self._target,
            wanted.name,
            partition,
            self._choice.group,
            wanted.storage,
            committed=wanted.committed,
            once=wanted.once,
            to=wanted.to,
            origin=wanted.origin,
            partitions=wanted.partitions,
            lanes=wanted.lanes,
            dialect=wanted.dialect,
            on_oversize=self._choice.on_oversize,
            park=self._park,
            merge=self._choice.merge,
            has_map=self._has_map,
        )
        before = self._copiers.get(key)
        if before is None or before.route != route:
            self._copiers[key] = PartitionCopier(route, self.stop, Copied() if before is None else before.copied)
        return self._copiers[key]

    async def _copy(self, copier: PartitionCopier, outboxes: Outboxes, slots: asyncio.Semaphore) -> None:
        async with slots:
            if not self.stop.is_set():
                await copier.catch_up(outboxes)
