"""A metadata tree in memory whose sessions a test cuts off, heals and lets expire, by a clock of its own.

Everything happens in the call that causes it, in one order, so that a simulation repeats exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicbyte.errors import NetworkError, UnknownOutcomeError
from magicbyte.metadata.memory import MemoryTree
from magicbyte.metadata.tree import SESSION_TIMEOUT_MS, Session, Tree
from magicbyte.ports import NodeEvent, SessionEvent

if TYPE_CHECKING:
    from magicbyte.ports import Clock, NodeChange, SessionListener, Watch


class SimulatedTree(MemoryTree):
    """A tree in memory with faults. `clock` measures how long sessions are cut off."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._time = clock
        self._cut: dict[SimulatedSession, int] = {}  # when each is due to expire

    def session(
        self, *, listener: SessionListener | None = None, timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> SimulatedSession:
        """Return a new session, which expires once it has been cut off for `timeout_ms`."""
        return SimulatedSession(self, super().session().session_id, timeout_ms, listener)

    def cut(self, session: SimulatedSession) -> None:
        """Cut a session off: its calls raise NetworkError, its watches are lost, its ephemeral nodes stay for now.

        A process that is killed is cut off and never healed.
        """
        if session not in self._cut and not session.is_over:
            self._cut[session] = self._time.monotonic_ms() + session.timeout_ms
            session.suspend()

    def heal(self, session: SimulatedSession) -> None:
        """Connect a session again: it learns that it has expired, or which watches were lost. A closed one stays so."""
        if session.is_cut and not session.is_closed:
            self._cut.pop(session, None)
            session.reconnect()

    def expire_session(self, session: SimulatedSession) -> None:
        """Let a session expire now. One that is cut off learns it when it is healed."""
        self._cut.pop(session, None)
        session.is_over = True
        if not session.is_cut:
            self.drop_watches(session.session_id)
        self.expire(session.session_id)
        if not session.is_cut:
            session.reconnect()

    def expire_overdue(self) -> list[int]:
        """Let the sessions expire that have been cut off for their timeout; return them, the first due first."""
        now = self._time.monotonic_ms()
        due = sorted((at, each.session_id, each) for each, at in self._cut.items() if at <= now)
        for _, _, session in due:
            self.expire_session(session)
        return [number for _, number, _ in due]

    def next_expiry_ms(self) -> int | None:
        """Return the monotonic time at which the next session is due, None if none is: how far time may jump."""
        return min(self._cut.values(), default=None)


class SimulatedSession(Session):
    """A session of a `SimulatedTree`. `is_over`: it has expired or was closed, which it may not know yet."""

    def __init__(self, tree: SimulatedTree, session_id: int, timeout_ms: int, listener: SessionListener | None) -> None:
        super().__init__(tree, session_id)
        self.timeout_ms, self._listener = timeout_ms, listener
        self.is_cut = self.is_over = False
        self.loses_next_answer = False
        """Whether the session is cut off after its next change, before it learns that the change was made."""
        self._faulty = tree
        self._lost: list[tuple[str, Watch]] = []

    @property
    def is_closed(self) -> bool:
        """Whether its owner has closed it, or knows that it has expired."""
        return self._ended

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all of the changes, or raise what the first impossible one raises; return the path of each."""
        done = super().transaction(changes)
        if self.loses_next_answer:
            self.loses_next_answer = False
            self._faulty.cut(self)
            raise UnknownOutcomeError(f"session {self.session_id} was cut off before the answer to a change")
        return done

    def close(self) -> None:
        """End the session. The ephemeral nodes of one that is cut off go when its timeout is over."""
        self._listener = None
        if self.is_cut:
            self._ended = True
        else:
            super().close()
            self.is_over = True

    def suspend(self) -> None:
        """Lose the connection."""
        self.is_cut = True
        self._lost = self.tree.drop_watches(self.session_id)
        self._tell(SessionEvent.SUSPENDED)

    def reconnect(self) -> None:
        """Have a connection again, or learn that the session is over."""
        self.is_cut = False
        lost, self._lost = self._lost, []
        if self.is_over:
            self._ended = True
            self._tell(SessionEvent.EXPIRED)
            return
        self._tell(SessionEvent.RECONNECTED)
        for path, watch in lost:
            watch(NodeEvent.WATCH_LOST, path)

    def _tell(self, event: SessionEvent) -> None:
        if self._listener is not None:
            self._listener(event)

    def _alive(self) -> Tree:
        tree = super()._alive()
        if self.is_cut:
            raise NetworkError(f"session {self.session_id} is cut off from the tree")
        return tree
