"""The base of coordinators: requests and the time in, effects out. It has no socket, task, clock or log of its own.

A coordinator keeps content by key. The key's hash gives the partition of its topic, and the leader of that partition is
its coordinator, which has the content in memory and in the partition's log. A subclass decides about the content. Its
effects are performed by the same code for all (`server/coordinating/coordinating.py`).

Invariants, which a subclass keeps:
1. Each request gets one `Reply`, at once or in the effects of a later call. `resign` and `close` answer those that
   wait.
2. A change is stored before it is acknowledged: the reply follows the outcome of its `Store`.
3. Work belongs to a term. A load of an ended term installs nothing. An append of an ended term is not made, and is
   continued as by a broker that does not lead. So a continuation looks up the content again.
4. A partition has content in memory only in a term. While it is loading, clients must wait.
5. Calls are made one at a time, and none waits. The answer to a request may be a generator. It ends nowhere but at its
   `Steps`; there other calls are made, which may end the term.
6. A deadline names its subject. One whose subject is gone does nothing.

A crash loses state without a record. The next term has the content of the log, and clients repeat unanswered requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from magicbyte.engine.coordination.deadlines import Deadlines
from magicbyte.engine.coordination.effects import Caller, Steps, Store
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.coordination.terms import CoordinatorTerms, LoadState
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message

E = TypeVar("E")
K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

Work: TypeAlias = Iterable[E | Steps]
"""Effects in order. Long work has `Steps` between them, and is a generator: an effect is performed before the next is
decided.
"""


class Decider(ABC, Generic[E, K, C]):
    """A coordinator of the keys of the partitions that this broker leads. Times are in ms.

    `E`: its effects. `K`: the keys of its deadlines. `C`: what is loaded from the log of a partition.
    `partitions`: the number of partitions of its topic.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.terms = CoordinatorTerms()
        self.deadlines = Deadlines[K]()
        self.closed = False

    # ---- terms

    def begin_loading(self, partition: int, leader_epoch: int) -> int:
        """Begin a term of a partition, whose clients wait until it is `loaded`; return its number.

        Loads and appends of an earlier term no longer have an effect.
        """
        waiting = self.resign(partition)
        assert not waiting, "no request waits for content that is not served"
        return self.terms.begin(partition, leader_epoch)

    def load_failed(self, partition: int, term: int) -> None:
        """Give up a partition whose log cannot be read, so that its content does not seem empty."""
        self.terms.end_loading(partition, term, LoadState.FAILED)

    def loaded(self, partition: int, term: int, content: C, now: Moment) -> Sequence[E]:
        """Install the content that the log had. A term that has ended, or was superseded, installs nothing."""
        if not self.terms.end_loading(partition, term, LoadState.ACTIVE):
            return []
        return self._install(partition, content, now)

    def resign(self, partition: int) -> Sequence[E]:
        """End the term of a partition that another broker leads now: its content goes, its pending work is void."""
        self.terms.pop(partition, None)
        return self._drop(partition)

    def close(self) -> Sequence[E]:
        """Refuse all further requests, because the broker stops. Those with pending appends are answered."""
        self.closed = True
        return []

    @abstractmethod
    def _install(self, partition: int, content: C, now: Moment) -> Sequence[E]:
        """Install the content of a partition, whose term serves from now on."""

    @abstractmethod
    def _drop(self, partition: int) -> Sequence[E]:
        """Forget the content of a partition; answer the requests that wait for it NOT_COORDINATOR."""

    # ---- keys

    def partition_of(self, key: str) -> int:
        """Return the partition that stores the content of a key."""
        return partition_for(key, self.partitions)

    def status(self, key: str) -> ErrorCode:
        """Return why this coordinator does not serve a key, or NONE."""
        if self.closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.terms.refusal(self.partition_of(key))

    # ---- requests, time, and appends

    @abstractmethod
    def answer(self, caller: Caller, request: Message, now: Moment) -> Work[E]:
        """Answer a request, at once or later."""

    def next_ms(self) -> int | None:
        """Return the latest time to call `due`; None if nothing is pending."""
        return self.deadlines.next_ms()

    def due(self, now: Moment) -> Sequence[E]:
        """Process deadlines."""
        effects = list[E]()
        while (key := self.deadlines.pop(now.monotonic_ms)) is not None:
            effects += self._deadline_reached(key, now)
        return effects

    @abstractmethod
    def _deadline_reached(self, key: K, now: Moment) -> Sequence[E]:
        """Process a deadline."""

    def expire(self, _date_ms: int) -> Work[E]:
        """Delete expired content."""
        return []

    def stored(self, store: Store[Any], code: ErrorCode, now: Moment) -> Sequence[E]:
        """Continue after an append that ended with `code`; if its term has ended, as not the leader."""
        if not self.terms.is_present(store.partition, store.term):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._continue(store, code, now)

    @abstractmethod
    def _continue(self, store: Store[Any], code: ErrorCode, now: Moment) -> Sequence[E]:
        """Continue after an append, of a term that may have ended."""
