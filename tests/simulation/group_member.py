"""A member of a consumer group, as small as it can be: it joins, and learns which partitions are its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from magicbyte.access.client.client import GROUP
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from magicbyte.engine.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from simulation.transactional_client import (
    GROUP_FAULTS,
    GROUP_ID,
    NO_MEMBER,
    Membership,
    RefusedError,
    TransactionalClient,
)

M = TypeVar("M", bound=Message)
SESSION_MS: Final = 6000  # the shortest that brokers take
REBALANCE_MS: Final = 3000
_PROTOCOL: Final = "dealt"


class GroupMember:
    """A member that asks through a producer's client. `membership` is that of the generation it has joined last."""

    def __init__(self, producer: TransactionalClient) -> None:
        self._producer = producer
        self.membership = NO_MEMBER

    async def join(self, partitions: int) -> list[int]:
        """Join, or join again; return which of so many partitions are this member's in the new generation."""
        while True:
            try:
                return await self._joined(partitions)
            except RefusedError as error:
                if error.code not in GROUP_FAULTS:
                    raise
                if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self.membership = NO_MEMBER

    async def _joined(self, partitions: int) -> list[int]:
        joining = JoinGroupRequest(
            group_id=GROUP_ID,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.membership.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL)],
        )
        others = list[str]()

        def joined(found: JoinGroupResponse) -> int:
            if not found.error_code:
                self.membership = Membership(found.generation_id, found.member_id)
                others[:] = [each.member_id for each in found.members]  # only the leader gets them
            return found.error_code

        await self._ask("join", joining, JoinGroupResponse, joined, versions=range(2, 4))
        dealt = {
            each: [at for at in range(partitions) if at % len(others) == place] for place, each in enumerate(others)
        }
        syncing = SyncGroupRequest(
            group_id=GROUP_ID,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=bytes(own)) for each, own in dealt.items()
            ],
        )
        own = list[int]()

        def synced(found: SyncGroupResponse) -> int:
            own[:] = found.assignment
            return found.error_code

        await self._ask("sync", syncing, SyncGroupResponse, synced, versions=range(3))
        return own

    async def is_current(self) -> bool:
        """Send a heartbeat; return whether the generation is still the one that was joined last."""
        request = HeartbeatRequest(
            group_id=GROUP_ID, generation_id=self.membership.generation, member_id=self.membership.member_id
        )
        try:
            await self._ask("heartbeat", request, HeartbeatResponse, lambda found: found.error_code, versions=range(3))
        except RefusedError as error:
            if error.code not in GROUP_FAULTS:
                raise
            return False
        return True

    async def _ask(
        self, what: str, request: Message, response: type[M], code: Callable[[M], int], *, versions: range
    ) -> None:
        await self._producer.coordinated(
            what, request, response, code, versions=versions, key=GROUP_ID, kind=GROUP, is_harmless=True
        )
