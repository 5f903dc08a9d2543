"""A follower's fetcher of one leader: which requests to send for which partitions, and how to apply the responses.

Pure: responses and readings of the monotonic clock in, requests and log changes out. `partitions/` sends the requests,
one at a time to each leader, and changes the logs. Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread.

Invariants:
1. Under a new leader a log is compared before records are appended: by its epochs, in OffsetForLeaderEpoch or from
   Fetch 12 on in the fetch itself. Without epochs it is truncated to its high watermark. After an error or a failed
   request the leader may be a new one, so its epochs are compared again.
2. An answer about epochs or records counts only in the leader epoch in which it was asked; records only if the log
   still ends where they begin.
3. Nothing is fetched between the decision to truncate in `follow` and `was_cut`: a leader takes the offset of a fetch
   as the end of this replica's log.

Calls are made one at a time. A crash loses all of it: the next start compares the log with the leader's again.
`tests/engine/replication/test_fetcher.py` has the cases, `test_histories.py` random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.truncation import (
    UNDEFINED,
    EpochEnd,
    Truncation,
    after_doubt,
    by_high_watermark,
    by_leader_epoch,
    is_in_doubt,
    out_of_range,
)
from magicbyte.engine.sentinels import NO_EPOCH

_FIRST_BACKOFF_MS: Final = 20
_MOST_DOUBLINGS: Final = 10
_REFUSALS_BEFORE_EPOCH_IS_DROPPED: Final = 2
"""Refusals of an offset that the leader has, before its epoch is taken for the reason: one can be a race."""


class FollowerLog(Protocol):
    """The facts of a follower's log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are known to be committed."""

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record; -1 if unknown."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to `epoch` and its end offset."""

    def epoch_after(self, epoch: int) -> int:
        """Return the smallest epoch above `epoch`; -1 if there is none."""


class EpochQuestion(Struct, frozen=True):
    """Ask for the end offset of a leader epoch (OffsetForLeaderEpoch). `leader_epoch` is the leader's current one."""

    partition: TopicPartition
    leader_epoch: int
    epoch: int


class FetchFrom(Struct, frozen=True):
    """Fetch records of one partition from `offset` on, which acknowledges all before it.

    `last_epoch` is that of the follower's last record (from version 12 on the leader compares it).
    """

    partition: TopicPartition
    leader_epoch: int
    offset: int
    log_start_offset: int
    last_epoch: int


class AskEpochs(Struct, frozen=True):
    """Send one OffsetForLeaderEpoch, then call `epochs_answered`, or `failed`."""

    questions: tuple[EpochQuestion, ...]


class AskOffsets(Struct, frozen=True):
    """Send ListOffsets for the earliest and the latest offset of each, then call `offsets_answered`, or `failed`."""

    partitions: tuple[TopicPartition, ...]


class Fetch(Struct, frozen=True):
    """Send one Fetch, then call `fetched` for each partition of the response, or `failed`.

    The leader may wait for records no longer than until `until_ms`, when another partition can be fetched, too.
    """

    partitions: tuple[FetchFrom, ...]
    until_ms: int | None = None


class Wait(Struct, frozen=True):
    """Send nothing before `until_ms`; None: before a partition is added."""

    until_ms: int | None


Step: TypeAlias = AskEpochs | AskOffsets | Fetch | Wait


class Truncate(Struct, frozen=True):
    """Truncate a log to an offset, or delete all of it (`fully`) and begin there.

    `known_epoch` ends there in the leader's log; it is given to `follow` if the log could not be truncated.
    """

    partition: TopicPartition
    offset: int
    fully: bool = False
    known_epoch: int = NO_EPOCH


class Append(Struct, frozen=True):
    """Append the records of a response, unchanged; then set high watermark and log start offset.

    The high watermark is the smaller of `high_watermark` and the log end offset after the append. The log start offset
    never falls. -1 for an unknown log start offset (before version 5).
    """

    partition: TopicPartition
    high_watermark: int
    log_start_offset: int


class Answered(Struct, frozen=True):
    """A leader's response for one partition. `diverging`: where logs diverge (version 12), or None."""

    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None


class _Followed(Struct):
    """A followed partition. `is_truncating`: the leader must first be asked for the end of the latest epoch.

    `is_out_of_range`: it must first be asked for its offsets. `not_before_ms`: after an error. `refusals`: consecutive
    errors. `committed`: the leader's high watermark in its last response, None before that. `is_to_be_cut`: nothing is
    sent until its log has been truncated. `disputed_epoch_end`: the leader's answer about the latest epoch if it may
    not have that epoch: the previous one is asked about next. `known_epoch`: an epoch to ask about first, or NO_EPOCH:
    the log has records of later epochs, which were fetched before this broker knew of them. They are asked about one
    by one.
    """

    log: FollowerLog
    leader_epoch: int
    is_truncating: bool
    is_out_of_range: bool = False
    not_before_ms: int | None = None
    refusals: int = 0
    committed: int | None = None
    is_to_be_cut: bool = False
    disputed_epoch_end: EpochEnd | None = None
    unplaced: int = 0
    known_epoch: int = NO_EPOCH

    @property
    def fetched_epoch(self) -> int:
        """The epoch that a fetch names: none to a leader that keeps no epochs of this log."""
        return NO_EPOCH if self.unplaced >= _REFUSALS_BEFORE_EPOCH_IS_DROPPED else self.log.latest_epoch

    @property
    def asked_epoch(self) -> int:
        """The epoch to ask the leader about next."""
        if self.known_epoch != NO_EPOCH:
            return self.log.end_of_epoch(self.known_epoch).epoch
        return self.log.latest_epoch if self.disputed_epoch_end is None else self.log.latest_epoch - 1

    @property
    def start_of_latest(self) -> int:
        """The offset at which the log's latest epoch begins."""
        before = self.log.end_of_epoch(self.log.latest_epoch - 1).end_offset
        return self.log.log_start_offset if before == UNDEFINED else before

    def doubts(self, end: EpochEnd) -> bool:
        """Return whether, by its answer, the leader may not have the latest epoch."""
        return self.log.latest_epoch > 0 and is_in_doubt(end, self.start_of_latest, self.log.log_end_offset)

    @property
    def has_caught_up(self) -> bool:
        """Whether the log has reached the leader's last high watermark."""
        return self.committed is not None and self.committed <= self.log.log_end_offset


class Fetcher:
    """The partitions for which this broker follows one leader. One request is in flight at a time.

    `asks_epochs`: the protocol version has OffsetForLeaderEpoch (from 0.11.0-IV2 on); `compares_epochs`: Fetch itself
    reports divergence (from 2.7 on). Failed requests are retried after `backoff_ms`; partitions that a leader refuses
    are first retried sooner.
    """

    def __init__(self, *, asks_epochs: bool, compares_epochs: bool = False, backoff_ms: int = 1000) -> None:
        self._asks_epochs, self._compares_epochs, self._backoff_ms = asks_epochs, compares_epochs, backoff_ms
        self._followed: dict[TopicPartition, _Followed] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are followed."""
        return frozenset(self._followed)

    def follow(
        self,
        partition: TopicPartition,
        log: FollowerLog,
        leader_epoch: int,
        *,
        followed_epoch: int = NO_EPOCH,
        known_epoch: int = NO_EPOCH,
    ) -> list[Truncate]:
        """Follow the leader of a partition from now on; return how to truncate the log before any request.

        `followed_epoch` is the leader epoch in which this leader was followed until now, as returned by `forget`. No
        other replica led between that and the next epoch, so a log without epochs is not truncated then. If it must be
        truncated, nothing is sent until `was_cut`: a leader takes the offset of a fetch as this replica's log end.

        `known_epoch`: from the method of this name, before `forget`, for any leader.
        """
        by_epoch = self._asks_epochs and log.latest_epoch != NO_EPOCH
        followed = _Followed(log, leader_epoch, by_epoch and not self._compares_epochs)
        self._followed[partition] = followed
        # KIP-320: before Fetch 9 a leader cannot see that a follower has missed its election. Such a follower appends
        # records of later epochs to a log that may diverge below, and the end of the latest epoch does not show it.
        is_behind = followed.is_truncating and NO_EPOCH < known_epoch < log.latest_epoch
        if is_behind and log.end_of_epoch(known_epoch).end_offset > log.log_start_offset:
            followed.known_epoch = known_epoch
        is_same_leader = followed_epoch != NO_EPOCH and leader_epoch - followed_epoch <= 1
        high_watermark = by_high_watermark(log.high_watermark, log.log_end_offset)
        cuts = [] if by_epoch or is_same_leader else self._cut(partition, high_watermark)
        self._followed[partition].is_to_be_cut = bool(cuts)
        return cuts

    def was_cut(self, partition: TopicPartition, leader_epoch: int) -> None:
        """Record that the log was truncated as returned by `follow`."""
        if (followed := self._current(partition, leader_epoch)) is not None:
            followed.is_to_be_cut = False

    def known_epoch(self, partition: TopicPartition) -> int:
        """Return the last epoch of the leader that this broker knew when it fetched; NO_EPOCH if it is not followed.

        It stays that of an earlier leader until the log has been compared with the leader's from there on.
        """
        followed = self._followed.get(partition)
        if followed is None:
            return NO_EPOCH
        return followed.leader_epoch if followed.known_epoch == NO_EPOCH else followed.known_epoch

    def forget(self, partition: TopicPartition) -> int:
        """Stop following: responses to pending requests are ignored for this partition.

        Return the leader epoch in which it was followed; NO_EPOCH if it was not, or if its log had to be truncated.
        """
        followed = self._followed.pop(partition, None)
        return NO_EPOCH if followed is None or followed.is_to_be_cut else followed.leader_epoch

    def next(self, now_ms: int, is_held_back: Callable[[TopicPartition], bool] = lambda _: False) -> Step:
        """Return the next step. Questions come before fetches, as they make more partitions ready.

        Throttled partitions (`is_held_back`) are not fetched unless they have caught up.
        """
        ready: dict[TopicPartition, _Followed] = {}
        waits = list[int]()
        for key, followed in self._followed.items():
            if followed.is_to_be_cut:
                continue
            if followed.not_before_ms is not None and followed.not_before_ms > now_ms:
                waits.append(followed.not_before_ms)
            else:
                ready[key] = followed
        if lost := tuple(key for key, each in ready.items() if each.is_out_of_range):
            return AskOffsets(lost)
        questions = tuple(
            EpochQuestion(key, each.leader_epoch, each.asked_epoch) for key, each in ready.items() if each.is_truncating
        )
        if questions:
            return AskEpochs(questions)
        for key in [key for key, each in ready.items() if not each.has_caught_up and is_held_back(key)]:
            del ready[key]
            waits.append(now_ms + self._backoff_ms)
        until_ms = min(waits, default=None)
        if not ready:
            return Wait(until_ms)
        return Fetch(
            tuple(
                FetchFrom(
                    key, each.leader_epoch, each.log.log_end_offset, each.log.log_start_offset, each.fetched_epoch
                )
                for key, each in ready.items()
            ),
            until_ms,
        )

    def failed(self, step: AskEpochs | AskOffsets | Fetch, now_ms: int) -> None:
        """Handle a request that failed."""
        keys = [_partition_of(each) for each in _parts_of(step)]
        self._back_off(keys, now_ms)
        for key in keys:
            if (followed := self._followed.get(key)) is not None:
                self._compare_again(followed)

    def epochs_answered(
        self, asked: AskEpochs, answers: Mapping[TopicPartition, tuple[ErrorCode, EpochEnd]], now_ms: int
    ) -> list[Truncate]:
        """Return how to truncate logs, after the response to `asked`.

        Missing partitions are asked about again later.
        """
        truncations = list[Truncate]()
        for question in asked.questions:
            key = question.partition
            followed = self._current(key, question.leader_epoch)
            if followed is None or followed.asked_epoch != question.epoch:
                continue
            error, end = answers.get(key, (ErrorCode.UNKNOWN_SERVER_ERROR, EpochEnd(-1, -1)))
            if error:
                self._refused(key, followed, error, now_ms)
                continue
            if followed.known_epoch != NO_EPOCH:
                truncations += self._compare_known(key, followed, end)
                continue
            if followed.disputed_epoch_end is None and followed.doubts(end):
                followed.disputed_epoch_end, followed.not_before_ms = end, None
                continue
            # Also if nothing is truncated: otherwise a log that this replica led without writing would keep that epoch.
            ends = followed.log.log_end_offset
            truncations += self._cut_by_epoch(key, followed, end) or [Truncate(key, ends)]
        return truncations

    @staticmethod
    def _compare_known(key: TopicPartition, followed: _Followed, end: EpochEnd) -> list[Truncate]:
        """Return how to truncate a log by the end of the known epoch; else the next epoch is asked about."""
        known_epoch, log = followed.known_epoch, followed.log
        followed.not_before_ms = None
        if UNDEFINED < end.end_offset < log.end_of_epoch(known_epoch).end_offset:
            followed.known_epoch = NO_EPOCH
            return [Truncate(key, end.end_offset, known_epoch=known_epoch)]
        later = log.epoch_after(known_epoch)
        followed.known_epoch = later if later < log.latest_epoch else NO_EPOCH  # the latest is asked about anyway
        return []

    def offsets_answered(
        self, asked: AskOffsets, answers: Mapping[TopicPartition, tuple[ErrorCode, int, int]], now_ms: int
    ) -> list[Truncate]:
        """Return how to truncate logs whose end the leader does not have; answers are error, earliest and latest."""
        truncations = list[Truncate]()
        for key in asked.partitions:
            followed = self._followed.get(key)
            if followed is None or not followed.is_out_of_range:
                continue
            error, start, end = answers.get(key, (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1))
            if error:
                self._refused(key, followed, error, now_ms)
                continue
            followed.is_out_of_range = False
            log_end = followed.log.log_end_offset
            restart = out_of_range(leader_start=start, leader_end=end, log_end_offset=log_end)
            if restart.fully or restart.offset < log_end:
                truncations.append(Truncate(key, restart.offset, restart.fully))
            elif self._compares_epochs and followed.fetched_epoch != NO_EPOCH:
                # A leader that is set to an old format keeps no epochs, and refuses a fetch that names one.
                followed.unplaced += 1
                if followed.fetched_epoch == NO_EPOCH:
                    truncations += self._cut(key, by_high_watermark(followed.log.high_watermark, log_end))
            else:  # the leader refuses an offset that it has
                self._refused(key, followed, ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)
        return truncations

    def fetched(self, asked: FetchFrom, answer: Answered, now_ms: int) -> Append | Truncate | None:
        """Return how to apply the leader's response for one partition, None for no change.

        Records are appended only if the log still ends at the requested offset, under the same leader.
        """
        key = asked.partition
        followed = self._current(key, asked.leader_epoch)
        if followed is None or followed.log.log_end_offset != asked.offset:
            return None
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.is_out_of_range = True
            return None
        if answer.error:
            self._refused(key, followed, answer.error, now_ms)
            return None
        if answer.diverging is not None:
            # Also if nothing is truncated: this replica led in an epoch and wrote nothing, which its log must forget.
            return next(iter(self._cut_by_epoch(key, followed, answer.diverging)), Truncate(key, asked.offset))
        followed.not_before_ms, followed.refusals = None, 0
        if followed.unplaced < _REFUSALS_BEFORE_EPOCH_IS_DROPPED:
            followed.unplaced = 0
        followed.committed = answer.high_watermark
        return Append(key, answer.high_watermark, answer.log_start_offset)

    def not_appended(self, partition: TopicPartition, now_ms: int) -> None:
        """Handle records that could not be appended, because they are corrupt or the disk is full: retry later."""
        self._back_off([partition], now_ms)

    def _current(self, key: TopicPartition, leader_epoch: int) -> _Followed | None:
        followed = self._followed.get(key)
        return followed if followed is not None and followed.leader_epoch == leader_epoch else None

    def _cut_by_epoch(self, key: TopicPartition, followed: _Followed, end: EpochEnd) -> list[Truncate]:
        log, disputed_epoch_end = followed.log, followed.disputed_epoch_end
        followed.disputed_epoch_end = None
        before = log.end_of_epoch(log.latest_epoch - 1)
        if disputed_epoch_end is not None:
            truncation = after_doubt(disputed_epoch_end, end, before, followed.start_of_latest, log.high_watermark)
        elif (
            end.epoch == UNDEFINED
            and before.end_offset != UNDEFINED
            and UNDEFINED < end.end_offset <= before.end_offset
        ):
            truncation = Truncation(end.end_offset, is_complete=False)  # the leader may lack the previous epoch, too
        else:
            truncation = by_leader_epoch(
                end, log.end_of_epoch, log_end_offset=log.log_end_offset, high_watermark=log.high_watermark
            )
        followed.is_truncating = not truncation.is_complete and not self._compares_epochs
        followed.not_before_ms = None
        return self._cut(key, truncation)

    def _cut(self, key: TopicPartition, truncation: Truncation) -> list[Truncate]:
        ends = self._followed[key].log.log_end_offset
        return [Truncate(key, truncation.offset)] if truncation.offset < ends else []

    def _refused(self, key: TopicPartition, followed: _Followed, error: ErrorCode, now_ms: int) -> None:
        """Delay a partition after an error; if its leader has a later epoch, wait for the controller's request."""
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._followed.pop(key)
        else:  # a leader that does not know its role yet learns of it soon
            wait_ms = min(_FIRST_BACKOFF_MS << min(followed.refusals, _MOST_DOUBLINGS), self._backoff_ms)
            followed.not_before_ms, followed.refusals = now_ms + wait_ms, followed.refusals + 1
            self._compare_again(followed)

    def _compare_again(self, followed: _Followed) -> None:
        """Ask for the end of the latest epoch before the next fetch.

        Another replica may have led since the last answer, and this leader be elected again, before this broker learns
        of either. Before Fetch 9 (KIP-320) a leader does not refuse a fetch in an old epoch: it would count records
        that it does not have as replicated.
        """
        if self._asks_epochs and not self._compares_epochs and followed.log.latest_epoch != NO_EPOCH:
            followed.is_truncating = True

    def _back_off(self, keys: Iterable[TopicPartition], now_ms: int) -> None:
        for key in keys:
            if (followed := self._followed.get(key)) is not None:
                followed.not_before_ms = now_ms + self._backoff_ms


def _parts_of(step: AskEpochs | AskOffsets | Fetch) -> Iterable[EpochQuestion | TopicPartition | FetchFrom]:
    return step.questions if isinstance(step, AskEpochs) else step.partitions


def _partition_of(part: EpochQuestion | TopicPartition | FetchFrom) -> TopicPartition:
    return part if isinstance(part, TopicPartition) else part.partition
