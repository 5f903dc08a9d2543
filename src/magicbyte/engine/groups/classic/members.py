"""The members of a group: their protocols, assignments and instance ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from magicbyte.engine.coordination.effects import Caller
from magicbyte.engine.errors import CorruptRecordError, ErrorCode
from magicbyte.engine.groups.classic.usage import Usage, weight
from magicbyte.engine.groups.consumer_protocol import topics_in
from magicbyte.engine.groups.records import StoredMember as StoredMember
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class Member(Struct):
    """A member. Times in ms. `joining` and `syncing` are requests waiting for a response.

    `protocols`: names and metadata, in order of preference.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Caller | None = None
    syncing: Caller | None = None
    is_new: bool = False

    @property
    def names(self) -> set[str]:
        """The names of its protocols."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for a protocol."""
        return dict(self.protocols)[protocol]

    @property
    def weight(self) -> int:
        """The bytes that count towards the limit."""
        return weight(self.protocols, self.client_id, self.instance_id) + len(self.assignment)


class Members(dict[str, Member]):
    """Members by id. They must be changed by these methods alone, which also update `usage` and supported protocols.

    `static`: member ids by `group.instance.id`.
    """

    def __init__(self, usage: Usage) -> None:
        super().__init__()
        self.usage = usage
        self.static: dict[str, str] = {}
        self._support = Counter[str]()  # how many members support a protocol

    def admit(self, member: Member) -> None:
        """Add a member."""
        self[member.member_id] = member
        self.usage.used += member.weight
        self._support.update(member.names)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def drop(self, member: Member) -> None:
        """Remove a member."""
        del self[member.member_id]
        self.usage.used -= member.weight
        self._support.subtract(member.names)
        self._support += Counter()  # drops protocols with a count of 0
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give the member of an instance that returned its new id."""
        assert member.instance_id is not None
        del self[member.member_id]
        member.member_id = member_id
        self[member_id] = member
        self.static[member.instance_id] = member_id

    def revise(self, member: Member, caller: Caller, request: JoinGroupRequest) -> None:
        """Apply a member's JoinGroup, which waits for the end of the rebalance from now on."""
        timeout = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = timeout if caller.version >= 1 else request.session_timeout_ms
        self._support.subtract(member.names)
        self.usage.used -= member.weight
        member.protocols = protocols_of(request)
        self.usage.used += member.weight
        self._support.update(member.names)
        member.joining = caller

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set the assignment of a member."""
        self.usage.used += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error for a request by this member and instance id: NONE for a known member."""
        if instance_id is not None and self.static.get(instance_id) not in (None, member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        known = member_id in self and (instance_id is None or instance_id in self.static)
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- protocols

    def support(self, protocols: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols."""
        return not self._common().isdisjoint(protocols)

    def _common(self) -> set[str]:
        """Return the protocols that all members support."""
        return {name for name, count in self._support.items() if count == len(self)}

    def vote(self) -> str:
        """Return the protocol that most members prefer among those that all support."""
        common = self._common()
        votes = Counter(next(name for name, _ in each.protocols if name in common) for each in self.values())
        return votes.most_common(1)[0][0]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((each.rebalance_timeout_ms for each in self.values()), default=0)

    def topics(self, protocol: str) -> set[str] | None:
        """Return the topics to which members of a consumer group subscribe; None if unknown."""
        try:
            found = [topics_in(each.metadata(protocol)) for each in self.values()]
        except CorruptRecordError:
            return None
        return {topic for topics in found for topic in topics}

    # ---- output

    def for_leader(self, protocol: str) -> list[JoinGroupResponseMember]:
        """Return the members as the leader's JoinGroup response lists them."""
        return [
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata(protocol)
            )
            for each in self.values()
        ]

    def stored(self, protocol: str, assignments: Mapping[str, bytes] | None) -> list[StoredMember]:
        """Return the stored form of all members, with the given or the current assignments."""
        return [
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.values()
        ]


def weight_of(caller: Caller, request: JoinGroupRequest) -> int:
    """Return the bytes that a joining member would count."""
    return weight(protocols_of(request), caller.client_id, request.group_instance_id)


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return the protocols of a JoinGroup, with the member's metadata for each."""
    return tuple((each.name, each.metadata) for each in request.protocols)
