"""What a controller leaves in the metadata tree while changes are in progress, and the controller after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Node, TopicPartition
from magicbyte.engine.protocol.messages import alter_partition_reassignments as reassign
from magicbyte.engine.protocol.messages import create_topics, delete_topics
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.releases import FIRST_WITH_MOVES, registration_version
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import OwnRegistration, register
from magicbyte.server.stores.znodes.layout import TopicNode
from ports import free_port
from server.broker.serving import Peer

UNREACHABLE: Final = 8
"""A broker that is registered and does not listen: a change that needs it stays in progress."""
MOVING, DOOMED, LATER = "moving", "doomed", "later"
PATIENCE_S = 180


@dataclass(frozen=True)
class Succession:
    """The controller `ours` is followed by `heir`, in a cluster of a protocol version; `view` is the cluster's tree."""

    view: LoopStore
    ours: int
    heir: int
    protocol: tuple[int, ...]

    @property
    def _targets(self) -> list[int]:
        return [self.heir, UNREACHABLE]

    async def register_unreachable(self) -> None:
        endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", free_port())
        own = OwnRegistration(Registration((endpoint,), None), 0, registration_version(self.protocol))
        await register(self.view, UNREACHABLE, own)

    async def leave_in_progress(self, peer: Peer) -> int:
        """Begin a deletion and two reassignments that cannot be completed; return the last producer id reserved.

        One reassignment is requested, the other in the node of Kafka's old tools, with a third that is completed.
        """
        await self._create(peer, DOOMED, [UNREACHABLE])
        deletion = delete_topics.DeleteTopicsRequest(topic_names=[DOOMED], timeout_ms=100)
        async with asyncio.timeout(PATIENCE_S):
            while await self.view.exists(f"{layout.DELETE_TOPICS}/{DOOMED}") is None:  # ours may not know it at once
                await peer.ask(deletion, 1, delete_topics.DeleteTopicsResponse)

        await self._create(peer, MOVING, [self.ours] * 3)
        await self.until_led(MOVING, 2, self.ours)
        partition = reassign.ReassignablePartition(partition_index=0, replicas=self._targets)
        topics = [reassign.ReassignableTopic(name=MOVING, partitions=[partition])]
        request = reassign.AlterPartitionReassignmentsRequest(topics=topics)
        answer = await peer.ask(request, 0, reassign.AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        asked = {TopicPartition(MOVING, 1): self._targets, TopicPartition(MOVING, 2): [self.heir]}
        if self.protocol < FIRST_WITH_MOVES:
            await self._until(layout.REASSIGNMENTS, lambda _: True)  # ours has put the requested one there
            asked |= {TopicPartition(MOVING, 0): self._targets}
            await self.view.set(layout.REASSIGNMENTS, layout.dump_reassignments(asked))
        else:
            await self.view.create(layout.REASSIGNMENTS, layout.dump_reassignments(asked))
        await self.until_led(MOVING, 2, self.heir)
        await self._until(layout.REASSIGNMENTS, self._is_half_done)

        ids = await peer.ask(InitProducerIdRequest(transactional_id=None), 0, InitProducerIdResponse)
        assert ids.error_code == ErrorCode.NONE
        last = layout.load_last_producer_id((await self.view.get(layout.PRODUCER_IDS)).data)
        assert last is not None
        return last

    async def see_it_continue(self) -> None:
        """See that the heir leads the cluster, and continues the work in progress."""
        await self._until(layout.CONTROLLER, lambda node: layout.load_controller(node.data) == self.heir)
        await self.view.create(layout.topic_path(LATER), TopicNode({0: [self.heir]}, None).dump())
        await self.until_led(LATER, 0, self.heir)
        await self.view.create(layout.ISR_CHANGE, layout.dump_partitions([(LATER, 0)]), sequence=True)
        async with asyncio.timeout(PATIENCE_S):
            while await self.view.children(layout.ISR_CHANGES):
                await asyncio.sleep(0.02)
        assert await self.view.children(layout.DELETE_TOPICS) == [DOOMED]
        assert self._is_half_done(await self.view.get(layout.REASSIGNMENTS))
        path = layout.topic_path(MOVING)
        topic = TopicNode.load(path, (await self.view.get(path)).data)
        for index in (0, 1):
            assert set(topic.replicas[index]) == {self.ours, *self._targets}
            if self.protocol >= FIRST_WITH_MOVES:
                assert set(topic.adding[index]) == set(self._targets)
                assert topic.removing[index] == [self.ours]

    def _is_half_done(self, node: Node) -> bool:
        indexes = (1,) if self.protocol >= FIRST_WITH_MOVES else (0, 1)
        wanted = {TopicPartition(MOVING, index): tuple(self._targets) for index in indexes}
        return layout.load_reassignments(node.data) == wanted

    @staticmethod
    async def _create(peer: Peer, name: str, leaders: list[int]) -> None:
        assignments = [
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=[broker])
            for index, broker in enumerate(leaders)
        ]
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=100)
        await peer.ask(request, 4, create_topics.CreateTopicsResponse)

    async def until_led(self, topic: str, partition: int, leader: int) -> None:
        path = layout.state_path(topic, partition)
        await self._until(path, lambda node: layout.load_state(path, node.data).leader == leader)

    async def _until(self, path: str, is_so: Callable[[Node], bool]) -> None:
        """Wait until a node exists and has what is expected."""
        found: Node | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (found := await self.view.exists(path)) is None or not is_so(found):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{path}: {found}") from None
