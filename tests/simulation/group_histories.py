"""Histories of transactions in which the inputs are transformed by members of a consumer group (KIP-447).

Each life of a transformer has a transactional id of its own, so nothing ends what the one before has left open but the
transaction's timeout. That each record is transformed once rests on the group: a member reads committed offsets where
no transaction can still change them (`require_stable`), and offsets of a member of an earlier generation are
refused. Some members stall between a fetch and its transaction, until others have taken over from them.
"""

from __future__ import annotations

import asyncio
from itertools import count

from magicbyte.engine.ports import TopicPartition
from simulation.group_member import REBALANCE_MS, SESSION_MS, GroupMember
from simulation.transaction_histories import INPUTS, Live, TransactionHistory
from simulation.transactional_client import TransactionalClient

MEMBERS = 3
_STALLS = 0.1


class GroupHistory(TransactionHistory):
    """A history with members of one group, which take over from each other whenever one joins, or is missed."""

    def _transformers(self) -> dict[str, Live]:
        return {f"transformer-{number}": self._member for number in range(1 if self._is_draining else MEMBERS)}

    def _transactional_id(self, role: str, process: str) -> str:
        return process if role.startswith("transformer") else role

    async def _member(self, process: str, producer: TransactionalClient) -> None:
        """Send on what there is in the inputs that are this member's, generation after generation."""
        member, numbers = GroupMember(producer), count()
        while True:
            own = [INPUTS[each] for each in await member.join(len(INPUTS))]
            self._note(f"generation with {len(own)} partitions")
            self.recorder.assign(process, [str(each) for each in own]).ok()
            positions = {place: await producer.committed(place, stable=True) for place in own}
            begun = set[TopicPartition]()
            while await member.is_current():
                if self._is_done(positions):
                    return
                for place in own:
                    if not await self._send_on(process, next(numbers), producer, member, place, positions, begun):
                        break
                await asyncio.sleep(self.random.uniform(0.1, 0.5))

    def _is_done(self, positions: dict[TopicPartition, int]) -> bool:
        if not self._is_draining:
            return self._is_enough()
        return len(positions) == len(INPUTS) and all(at >= self._end(place) for place, at in positions.items())

    async def _send_on(
        self,
        process: str,
        number: int,
        producer: TransactionalClient,
        member: GroupMember,
        place: TopicPartition,
        positions: dict[TopicPartition, int],
        begun: set[TopicPartition],
    ) -> bool:
        """Send on some records of a partition; return whether the member may continue before it asks for its state."""
        found = await self._fetched(producer.client, place, positions[place])
        if found is None or not found.records:
            positions[place] = positions[place] if found is None else found.next_offset
            return True
        if self.random.random() < _STALLS:
            await asyncio.sleep(self.random.uniform(0, 1.5) * (SESSION_MS + REBALANCE_MS) / 1000)
        records = found.records[: self.random.randint(1, 6)]
        behind = records[-1][0] + 1
        work = self._transforms(
            f"{process} {number}", producer, place, records, behind,
            is_anew=place not in begun, member=member.membership,
        )  # fmt: skip
        begun.add(place)
        if await self._transact(process, producer, work, commits=self.random.random() < 0.85):
            positions[place] = behind
            return True
        begun.discard(place)
        positions[place] = await producer.committed(place, stable=True)
        return False
