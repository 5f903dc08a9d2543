"""Share sessions: the partitions that a member of a share group reads here, of which later requests name changes only.

Plain state: requests in, partitions out. ShareFetch and ShareAcknowledge of a member have one session with one epoch.
A session ends with its connection. Source: Kafka's ShareSessionCache and SharePartitionManager (4.3).
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from magicbyte.engine.errors import ErrorCode

if TYPE_CHECKING:
    from magicbyte.server.serving.request import ClientConnection

OPENING: Final = 0
CLOSING: Final = -1
"""The first and the last epoch of a session."""
_LAST_EPOCH: Final = (1 << 31) - 1
MOST_PARTITIONS: Final = 500_000  # of all sessions

Place: TypeAlias = tuple[uuid.UUID, int]


class SessionKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


class ShareSession(Struct, eq=False):
    """The partitions that a member reads, in reading order. `connection` calls back when it is gone."""

    key: SessionKey
    connection: weakref.ref[ClientConnection]
    next_epoch: int = 1
    partitions: dict[Place, None] = field(default_factory=dict)

    def to_end(self, place: Place) -> None:
        """Read a partition after the others from now on."""
        if place in self.partitions:
            del self.partitions[place]
            self.partitions[place] = None


class ShareSessions:
    """All share sessions of a broker. `lost` is called with a session whose connection has ended.

    `soon` has the event loop call a function. A connection may be collected in any thread, and while this object is in
    use.
    """

    def __init__(
        self, most: int, lost: Callable[[ShareSession], None], soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._most, self._lost, self._soon = most, lost, soon

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, connection: ClientConnection) -> ShareSession | ErrorCode:
        """Open a session, in place of an earlier one of the member; return it, or why there is none."""
        if key not in self._sessions and len(self._sessions) >= self._most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED

        def ended(reference: weakref.ref[ClientConnection]) -> None:
            self._soon(partial(self._end, key, reference))

        session = self._sessions[key] = ShareSession(key, weakref.ref(connection, ended))
        return session

    def _end(self, key: SessionKey, reference: weakref.ref[ClientConnection]) -> None:
        known = self._sessions.get(key)
        if known is not None and known.connection is reference:
            del self._sessions[key]
            self._lost(known)

    def find(self, key: SessionKey, epoch: int) -> ShareSession | ErrorCode:
        """Return the session of a later request, whose epoch it moves, or why there is none.

        The last request closes it.
        """
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == CLOSING:
            del self._sessions[key]
        elif epoch != session.next_epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            session.next_epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def add(self, session: ShareSession, places: Iterable[Place]) -> None:
        """Add partitions to a session, as far as there is room."""
        room = MOST_PARTITIONS - sum(len(each.partitions) for each in self._sessions.values())
        for place in places:
            if place not in session.partitions and room > 0:
                session.partitions[place] = None
                room -= 1
