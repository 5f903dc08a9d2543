"""The leader of a partition: in-sync replicas, high watermark, and completion of `acks=all`.

Pure: offsets and readings of the monotonic clock in, decisions out. `partitions/` writes the state node, wakes waiting
fetches and produce requests, and responds. Sources: Kafka's Partition and Replica; KIP-101, KIP-392.

Invariants:
1. The high watermark never falls. It advances only to an offset that this log and every replica that counts have: those
   in the ISR, in a pending ISR, and followers about to join (`_advance`).
2. One change of the ISR is pending at a time. Until its outcome is known, the old and the new ISR count: either may be
   what the state node has.
3. A change is written only over the version that this leader knows. If the node has another leader or epoch, this one
   is deposed: it acknowledges and changes nothing until the controller's order arrives (`renew`).
4. An outcome counts only for the change that is pending. `renew` makes the pending one void.
5. A follower joins when it has everything up to the high watermark and up to this log's end at the election.

Calls are made one at a time, by the event loop of the broker. A crash loses all of it: the next leader starts from the
state node and the checkpoint of its high watermark, which is at most the old one, and fetches raise it again.
`tests/engine/replication/test_histories.py` checks the promises in random histories, and that each mistake of
`planted.py` is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.replication.state import PartitionState
from magicbyte.engine.sentinels import NO_OFFSET


class IsrChange(Struct, frozen=True):
    """A change of the ISR: `state` replaces the content of the state node, if that has `expected_version`."""

    state: PartitionState
    expected_version: int


class Follower(Struct):
    """The leader's view of a follower. Times are of the monotonic clock, in ms.

    A fetch at an offset acknowledges all records before it: `log_end_offset` is the offset of the last fetch.
    `caught_up_ms` is the last time at which the follower had the leader's whole log. `leader_end` and `last_fetch_ms`
    are of the last fetch: a follower that reaches the leader's end of that time was caught up then, even if the leader
    has more by now.
    """

    caught_up_ms: int
    last_fetch_ms: int
    leader_end: int
    log_end_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET


class LeaderPartition:
    """The leader's side of one partition, from one LeaderAndIsr request to the next that makes this broker the leader.

    `log_end_offset` is the end of the leader's log, and `epoch_start` its end when this broker became leader: a
    follower below that may hold records of an older leader that no other replica has. `version` is the version of the
    state node. `high_watermark` never falls. `is_deposed`: the state node has a later epoch.
    """

    def __init__(
        self,
        broker_id: int,
        state: PartitionState,
        replicas: Iterable[int],
        version: int,
        *,
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        max_lag_ms: int,
    ) -> None:
        self._broker_id, self.state, self.version, self.max_lag_ms = broker_id, state, version, max_lag_ms
        self.log_end_offset = self.epoch_start = log_end_offset
        self.high_watermark = high_watermark
        self.followers = {
            broker: Follower(now_ms if broker in state.isr else now_ms - max_lag_ms - 1, now_ms, log_end_offset)
            for broker in replicas
            if broker != broker_id
        }
        self._pending: IsrChange | None = None
        self._is_unsettled = False  # it is unknown whether `_pending` was written
        self.is_deposed = False
        self._advance(now_ms)

    # ---- requests of the controller while this broker remains the leader

    def renew(self, state: PartitionState, replicas: Iterable[int], version: int, now_ms: int) -> None:
        """Apply a later state of the controller, in which this broker still leads. Followers keep their offsets.

        Followers that are not in sync count for the high watermark only when they have caught up again: one that the
        controller removed, as it stops, must not hold it back. A pending change of the ISR is void: the controller's
        state is newer.
        """
        self.state, self.version, self._pending, self.is_deposed = state, version, None, False
        self._is_unsettled = False
        known = self.followers
        self.followers = {
            broker: known.get(broker) or Follower(now_ms - self.max_lag_ms - 1, now_ms, self.log_end_offset)
            for broker in replicas
            if broker != self._broker_id
        }
        for each, follower in self.followers.items():
            follower.caught_up_ms = now_ms if each in state.isr else now_ms - self.max_lag_ms - 1
        self._advance(now_ms)

    # ---- records and fetches

    def appended(self, log_end_offset: int, now_ms: int) -> bool:
        """Record that the leader's log ends at `log_end_offset`, or later. Return whether the high watermark advanced.

        Of two appends the later one is reported first if only the earlier one waits for a sync.
        """
        if log_end_offset > self.log_end_offset:
            self.log_end_offset = log_end_offset
        return self._advance(now_ms)

    def fetched(self, follower_id: int, fetch_offset: int, log_start_offset: int, now_ms: int) -> bool:
        """Record the fetch of a follower, before its response. Return whether the high watermark advanced.

        `log_start_offset`: the follower's, -1 if the request has none (before version 5). Raises KeyError for a broker
        that is not a replica.
        """
        follower = self.followers[follower_id]
        if fetch_offset >= self.log_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset, follower.log_start_offset = fetch_offset, log_start_offset
        follower.leader_end, follower.last_fetch_ms = self.log_end_offset, now_ms
        return self._advance(now_ms)

    def acknowledgement(self, required_offset: int, min_insync_replicas: int) -> ErrorCode | None:
        """Return the result of a produce request with `acks=all` that ends at `required_offset`; None: not yet.

        With NOT_ENOUGH_REPLICAS_AFTER_APPEND the records stay in the log.
        """
        if self.high_watermark < required_offset:
            return None
        enough = len(self.state.isr) >= min_insync_replicas
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def low_watermark(self) -> int:
        """The smallest known log start offset of the replicas: below it, records are deleted everywhere."""
        offsets = [each.log_start_offset for each in self.followers.values()]
        return min((each for each in offsets if each != NO_OFFSET), default=NO_OFFSET)

    def _advance(self, now_ms: int) -> bool:
        """Advance the high watermark to the smallest log end offset of the replicas that count.

        Those are the in-sync replicas, also ones that are being removed or added, and followers that are caught up but
        not yet in sync: otherwise the high watermark could run ahead of a follower that is about to join.
        """
        isr = set(self.state.isr)
        # While a change of the ISR is being written, both sets count. If the new member is already in the state node,
        # it can be elected and must have everything acknowledged; if the change fails, the old set still holds. The
        # same goes for a shrink: a removed follower may hold back the high watermark until the removal is known to be
        # durable. A deposed leader never advances, because the new leader's ISR may not include the replicas that this
        # one counts.
        if self._pending is not None:
            isr.update(self._pending.state.isr)
        end = self.log_end_offset
        for broker_id, follower in self.followers.items():
            if broker_id in isr or now_ms - follower.caught_up_ms <= self.max_lag_ms:
                end = min(end, follower.log_end_offset)
        if end <= self.high_watermark or self.is_deposed:
            return False
        self.high_watermark = end
        return True

    # ---- the in-sync replicas

    def expansion(self, follower_id: int) -> IsrChange | None:
        """Return the change that adds a follower to the ISR, None if it is not due. Call it at each fetch.

        A follower joins when it has all committed records, and all records that the leader had when it became leader.
        The change is pending until `isr_written` or `isr_refused` is called.
        """
        follower = self.followers.get(follower_id)
        if follower is None or follower_id in self.state.isr or not self._may_change:
            return None
        # The high watermark alone is not enough: a new leader knows it only as of its last fetch as a follower, while
        # the old leader may have acknowledged more. Everything acknowledged is in this log up to `epoch_start`, its end
        # at the election, because only in-sync replicas are elected. So a follower must reach that before it may be
        # elected itself.
        if follower.log_end_offset < max(self.high_watermark, self.epoch_start):
            return None
        return self._change((*self.state.isr, follower_id))

    def shrinking(self, now_ms: int) -> IsrChange | None:
        """Return the change that removes followers that have not caught up for `max_lag_ms`, None if all have.

        Call it every half of that time. The change is pending until `isr_written` or `isr_refused` is called. One that
        failed is returned again.
        """
        if self._is_unsettled:
            self._is_unsettled = False
            return self._pending
        if not self._may_change:
            return None
        stays = tuple(broker for broker in self.state.isr if not self._is_late(broker, now_ms))
        return self._change(stays) if len(stays) < len(self.state.isr) else None

    def _is_late(self, broker_id: int, now_ms: int) -> bool:
        follower = self.followers.get(broker_id)
        if follower is None:  # this broker
            return False
        has_all = follower.log_end_offset == self.log_end_offset
        return not has_all and now_ms - follower.caught_up_ms > self.max_lag_ms

    @property
    def _may_change(self) -> bool:
        return self._pending is None and not self.is_deposed

    def _change(self, isr: tuple[int, ...]) -> IsrChange:
        state = PartitionState(self.state.leader, self.state.leader_epoch, isr, self.state.controller_epoch)
        self._pending = IsrChange(state, self.version)
        return self._pending

    def isr_written(self, change: IsrChange, version: int, now_ms: int) -> bool:
        """Record that `change` was written, with this version of the node. Return whether the high watermark advanced.

        Ignored for a change superseded by the controller.
        """
        if change is not self._pending:
            return False
        self.state, self.version, self._pending = change.state, version, None
        return self._advance(now_ms)

    def isr_refused(self, change: IsrChange, stored: PartitionState, version: int, now_ms: int) -> bool:
        """Handle a state node with another version, containing `stored`. Return whether the high watermark advanced.

        If the node still has this leader and epoch, only an earlier write of this broker can have changed it, whose
        response was lost: the node is right. Otherwise the controller has appointed another leader: the high watermark
        stays unchanged, so that nothing more is acknowledged, until its request arrives here.
        """
        if change is not self._pending:
            return False
        self._pending = None
        if (stored.leader, stored.leader_epoch) != (self.state.leader, self.state.leader_epoch):
            self.is_deposed = True
            return False
        self.state, self.version = stored, version
        return self._advance(now_ms)

    def isr_failed(self, change: IsrChange) -> None:
        """Handle a lost connection: it is unknown whether `change` was written.

        Both the old and the new ISR count until the next attempt tells: if the write succeeded, an added follower can
        be elected, and must have everything that is acknowledged.
        """
        self._is_unsettled = change is self._pending


class IsrNotifications:
    """Batch notifications to the controller about ISR changes, as Kafka's brokers do.

    Call `due` every `check_ms` while there are changes. They are sent when `quiet_ms` have passed since the last
    change, or 60 s since the last notification. `at_once` is for brokers whose protocol has AlterPartition: changes
    within a tenth of a second are sent together.
    """

    LONGEST_MS = 60_000

    def __init__(self, now_ms: int, *, at_once: bool) -> None:
        self.check_ms, self._quiet_ms = (100, 0) if at_once else (2_500, 5_000)
        self._changed: set[tuple[str, int]] = set()
        self._last_change_ms = self._last_told_ms = now_ms

    def changed(self, topic: str, partition: int, now_ms: int) -> None:
        """Record that the ISR of a partition changed."""
        self._changed.add((topic, partition))
        self._last_change_ms = now_ms

    def due(self, now_ms: int) -> list[tuple[str, int]]:
        """Return the partitions of the notification to send now, sorted; none if nothing is due."""
        is_quiet = now_ms - self._last_change_ms >= self._quiet_ms
        if not self._changed or not (is_quiet or now_ms - self._last_told_ms >= self.LONGEST_MS):
            return []
        partitions = sorted(self._changed)
        self._changed.clear()
        self._last_told_ms = now_ms
        return partitions
