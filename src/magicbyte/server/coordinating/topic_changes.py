"""Create and delete topics with everything that depends on them: logs, roles, counters, coordinators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.ports import TopicPartition

if TYPE_CHECKING:
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import ServedTopic, Topics

LOGS_AT_ONCE: Final = 50  # logs, while appends wait


class TopicChanges(NamedTuple):
    """Create and delete topics for a broker's handlers."""

    runtime: Runtime
    topics: Topics
    replicas: Replicas
    coordinators: Coordinators
    background: Background

    async def create(self, name: str) -> ServedTopic:
        """Create a topic with the broker's settings, unless it has just been created.

        Raises as `Topics.create` does.
        """
        if (coordinator := self.coordinators.of(name)) is not None:
            return await coordinator.ensure_topic()
        async with self.runtime.directory:
            topic = self.topics.get(name)
            return await self.topics.create(name) if topic is None else topic

    async def delete(self, topic: ServedTopic) -> None:
        """Delete a topic, for a caller that holds `directory`. Raises as `Topics.begin_delete` does.

        Waiting fetches of its records are woken, and fail. `logs_lock` is held for a few logs at a time, so that
        appends to other topics do not wait for the deletion of thousands.
        """
        runtime, topics = self.runtime, self.topics
        keys = [TopicPartition(topic.name, index) for index in range(topic.partitions)]
        if not await topics.begin_delete(topic.name):
            return
        with self.background.without(keys):
            for start in range(0, len(keys), LOGS_AT_ONCE):
                some = keys[start : start + LOGS_AT_ONCE]
                async with runtime.logs_lock:
                    gone = await runtime.writing.run(topics.take_away, some)
                    self.replicas.forget(some)
                    for log in gone:  # on the loop, where no fetch is about to send slices of it
                        log.release()
                await asyncio.sleep(0)  # for appends that waited for the lock
            await topics.finish_delete(topic.name)
        runtime.metrics.forget(topic.name)
        self.coordinators.topic_deleted(topic.name)
