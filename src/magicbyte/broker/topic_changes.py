"""Create and delete topics with everything that depends on them: logs, roles, counters, coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magicbyte.ports import TopicPartition

if TYPE_CHECKING:
    from magicbyte.broker.background import Background
    from magicbyte.broker.coordinators import Coordinators
    from magicbyte.broker.replicas import Replicas
    from magicbyte.broker.runtime import Runtime
    from magicbyte.broker.topic_table import ServedTopic
    from magicbyte.broker.topics import Topics


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
            return await self.runtime.writing.run(self.topics.create, name) if topic is None else topic

    async def delete(self, topic: ServedTopic) -> None:
        """Delete a topic, for a caller that holds `directory`, and `logs_lock` exclusively. Raises as `Topics.delete`
        does.

        Waiting fetches of its records are woken, and fail.
        """
        keys = [TopicPartition(topic.name, index) for index in range(topic.partitions)]
        with self.background.without(keys):
            gone = await self.runtime.writing.run(self.topics.delete, topic.name)
        self.runtime.metrics.forget(topic.name)
        self.replicas.forget(keys)
        for log in gone:  # on the loop, where no fetch is about to send slices of it
            log.release()
