"""A metadata tree in memory with sessions that a test disconnects, reconnects and expires.

Everything happens in the call that causes it, so that a simulation is reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicbyte.engine.errors import NetworkError, UnknownOutcomeError
from magicbyte.engine.ports import NodeEvent, SessionEvent
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.tree import SESSION_TIMEOUT_MS, Session, Tree

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock, NodeChange, SessionListener, Watch


class SimulatedTree(MemoryTree):
    """A tree in memory with faults. `clock` measures how long sessions are disconnected."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._time = clock
        self._cut: dict[SimulatedSession, int] = {}  # with its time of expiration

    def session(
        self, *, listener: SessionListener | None = None, timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> SimulatedSession:
        """Return a new session, which expires when it has been disconnected for `timeout_ms`."""
        return SimulatedSession(self, super().session().session_id, timeout_ms, listener)

    def cut(self, session: SimulatedSession) -> None:
        """Disconnect a session: its calls raise NetworkError, its watches are lost, its ephemeral nodes stay for now.

        The session of a killed process is disconnected and never healed.
        """
        if session not in self._cut and not session.is_over:
            self._cut[session] = self._time.monotonic_ms() + session.timeout_ms
            session.suspend()

    def heal(self, session: SimulatedSession) -> None:
        """Reconnect a session: it learns that it has expired, or which watches were lost. A closed one stays closed."""
        if session.is_cut and not session.is_closed:
            self._cut.pop(session, None)
            session.reconnect()

    def expire_session(self, session: SimulatedSession) -> None:
        """Expire a session now. A disconnected one learns it when it is healed."""
        self._cut.pop(session, None)
        session.is_over = True
        if not session.is_cut:
            self.drop_watches(session.session_id)
        self.expire(session.session_id)
        if not session.is_cut:
            session.reconnect()

    def expire_overdue(self) -> list[int]:
        """Expire the sessions that have been disconnected for their timeout; return them in order."""
        now = self._time.monotonic_ms()
        due = sorted((at, each.session_id, each) for each, at in self._cut.items() if at <= now)
        for _, _, session in due:
            self.expire_session(session)
        return [number for _, number, _ in due]

    def next_expiry_ms(self) -> int | None:
        """Return the monotonic time of the next expiration, None if there is none: how far time may jump."""
        return min(self._cut.values(), default=None)


class SimulatedSession(Session):
    """A session of a `SimulatedTree`. `is_over`: it has expired or was closed, which it may not know yet."""

    def __init__(self, tree: SimulatedTree, session_id: int, timeout_ms: int, listener: SessionListener | None) -> None:
        super().__init__(tree, session_id)
        self.timeout_ms, self._listener = timeout_ms, listener
        self.is_cut = self.is_over = False
        self.loses_next_answer = False
        """Whether to disconnect the session after its next change, before it gets the response."""
        self._faulty = tree
        self._lost: list[tuple[str, Watch]] = []

    @property
    def is_closed(self) -> bool:
        """Whether its owner has closed it, or knows that it has expired."""
        return self._ended

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each."""
        done = super().transaction(changes)
        if self.loses_next_answer:
            self.loses_next_answer = False
            self._faulty.cut(self)
            raise UnknownOutcomeError(f"session {self.session_id} was cut off before the answer to a change")
        return done

    def close(self) -> None:
        """End the session. The ephemeral nodes of a disconnected one stay until its timeout."""
        self._listener = None
        if self.is_cut:
            self._ended = True
        else:
            super().close()
            self.is_over = True

    def suspend(self) -> None:
        """Disconnect."""
        self.is_cut = True
        self._lost = self.tree.drop_watches(self.session_id)
        self._tell(SessionEvent.SUSPENDED)

    def reconnect(self) -> None:
        """Reconnect, or learn that the session has expired."""
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
