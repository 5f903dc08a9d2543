"""Rounds over all chosen topics, with some partitions at a time; once or continuously."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Final, Protocol, TypeAlias

from magicbyte.access.client.offsets import ends
from magicbyte.access.client.source import Source
from magicbyte.engine.printable import logger
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.plan import TopicMirrorPlan

log = logger(__name__)

AT_ONCE: Final = 8  # partitions
PLAN_SECONDS: Final = 30.0  # between two look-ups of topics
OTHERS_NAMED: Final = 3  # further failing partitions that are named with the error
PAUSE_SECONDS: Final = 0.5  # between polls of an idle source

Copy: TypeAlias = Callable[[TopicMirrorPlan, int], Awaitable[None]]
"""Copies the current content of a partition."""


class HasCopied(Protocol):
    """The copier of a partition."""

    copied: Copied


class Rounds(ABC):
    """The common part of all kinds of mirrors. Setting `stop` ends it, with the progress stored.

    `groups_left_out`: why groups of the source were not synchronized the last time, whole or in some partitions.
    """

    def __init__(self, source: Source) -> None:
        self.stop = asyncio.Event()
        self.groups_left_out: dict[str, str] = {}
        self._source = source
        self._reached: dict[tuple[str, int], tuple[TopicMirrorPlan, int]] = {}  # everything before an offset is copied
        self._planned: list[TopicMirrorPlan] = []
        self._plan_again_at = 0.0

    @property
    def planned(self) -> list[TopicMirrorPlan]:
        """The topics of the last plan."""
        return self._planned

    @abstractmethod
    async def plan(self) -> list[TopicMirrorPlan]:
        """Return what would be done, without changes. Raises MirrorError, BrokerError and NetworkError."""

    @abstractmethod
    async def _made(self) -> list[TopicMirrorPlan]:
        """Return the plan, with all topics created."""

    @abstractmethod
    def _begun(self, group: asyncio.TaskGroup) -> Copy:
        """Return the function that copies a partition in the new round, whose tasks belong to `group`."""

    @abstractmethod
    def _each(self) -> Mapping[tuple[str, int], HasCopied]:
        """Return the copiers by topic and partition."""

    async def catch_up(self) -> None:
        """Copy what the source has now; new topics and partitions are created and begun.

        The first failure ends all, after the current sets; partitions keep the positions that they have reached. Raises
        as `plan` does, MirrorError, BrokerError and NetworkError, and CorruptRecordError for damage at the source.
        """
        if asyncio.get_running_loop().time() >= self._plan_again_at:
            # A running mirror survives a short absence of brokers; a new one fails at once.
            self._planned = await (self._source.retried(self._made) if self._planned else self._made())
            self._plan_again_at = asyncio.get_running_loop().time() + PLAN_SECONDS
        slots, source_ends = asyncio.Semaphore(AT_ONCE), await self._source_ends()
        try:
            async with asyncio.TaskGroup() as group:
                copy = self._begun(group)
                for each in self._planned:
                    for partition in range(each.partitions):
                        end = source_ends.get((each.name, partition))
                        if end is None or self._reached.get((each.name, partition)) != (each, end):
                            group.create_task(self._in_turn(copy, each, partition, end, slots))
        except ExceptionGroup as errors:
            raise first_of(errors) from None

    async def _source_ends(self) -> dict[tuple[str, int], int]:
        """Return the ends of the source's partitions, if known, because most may have nothing new."""
        found: dict[tuple[str, int], int] = {}
        for committed in (False, True):
            chosen = [each for each in self._planned if each.committed is committed]
            partitions = [(each.name, partition) for each in chosen for partition in range(each.partitions)]
            found |= await ends(self._source, partitions, committed=committed)
        return found

    async def _in_turn(
        self, copy: Copy, wanted: TopicMirrorPlan, partition: int, end: int | None, slots: asyncio.Semaphore
    ) -> None:
        async with slots:
            if not self.stop.is_set():
                await copy(wanted, partition)
                if end is not None and not self.stop.is_set():
                    self._reached[wanted.name, partition] = wanted, end

    async def run(self) -> None:
        """Copy until `stop` is set. Raises what `catch_up` does."""
        while not self.stop.is_set():
            await self.catch_up()
            try:
                await asyncio.wait_for(self.stop.wait(), PAUSE_SECONDS)
            except TimeoutError:
                continue

    def copied(self) -> dict[str, Copied]:
        """Return the counts so far, by topic."""
        found: dict[str, Copied] = {}
        for (topic, _), copier in sorted(self._each().items(), key=lambda each: each[0]):
            total = found.setdefault(topic, Copied())
            for each in fields(Copied):
                setattr(total, each.name, getattr(total, each.name) + getattr(copier.copied, each.name))
        return found


def first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first failure, after logging the others."""
    first, *others = errors.exceptions
    for other in others[:OTHERS_NAMED]:
        log.warning("another partition failed, too: %s", other)
    if len(others) > OTHERS_NAMED:
        log.warning("%d partitions more failed, too", len(others) - OTHERS_NAMED)
    return first
