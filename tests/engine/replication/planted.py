"""Faults to plant in the decisions of replication/, each of which the histories must find.

Each replaces one function. Known faults of Kafka's past are named by their numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from engine.replication.histories import ANY_VERSION, Broker, History, Log
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication import controller, election, fetcher
from magicbyte.engine.replication.controller import Controller, Effect, WriteStates
from magicbyte.engine.replication.fetcher import (
    Answered,
    Append,
    AskEpochs,
    AskOffsets,
    Fetch,
    Fetcher,
    FetchFrom,
    Truncate,
)
from magicbyte.engine.replication.leader import IsrChange, LeaderPartition
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.replication.truncation import EpochEnd, Restart, Truncation
from magicbyte.engine.sentinels import NO_BROKER

# ---- the leader: the high watermark


def high_watermark_without_followers(self: LeaderPartition, _now_ms: int) -> bool:
    advanced = self.log_end_offset > self.high_watermark
    self.high_watermark = max(self.high_watermark, self.log_end_offset)
    return advanced


def _advance_among(self: LeaderPartition, isr: Iterable[int]) -> bool:
    ends = [self.followers[each].log_end_offset for each in isr if each in self.followers]
    smallest = min([self.log_end_offset, *ends])
    advanced = smallest > self.high_watermark
    self.high_watermark = max(self.high_watermark, smallest)
    return advanced


def high_watermark_without_pending(self: LeaderPartition, _now_ms: int) -> bool:
    return _advance_among(self, self.state.isr)


def high_watermark_of_an_unwritten_shrink(self: LeaderPartition, _now_ms: int) -> bool:
    """Count a removal from the in-sync replicas before it is written: shrinking in a race with the controller."""
    return _advance_among(self, self.state.isr if self._pending is None else self._pending.state.isr)


def high_watermark_of_a_majority(self: LeaderPartition, _now_ms: int) -> bool:
    ends = sorted([self.log_end_offset, *(each.log_end_offset for each in self.followers.values())])
    majority = ends[(len(ends) - 1) // 2]
    advanced = majority > self.high_watermark
    self.high_watermark = max(self.high_watermark, majority)
    return advanced


def high_watermark_falls(self: LeaderPartition, now_ms: int) -> bool:
    self.high_watermark = 0
    return ADVANCE(self, now_ms)


def offset_of_the_answer_is_acknowledged(
    self: LeaderPartition, follower_id: int, _offset: int, start: int, now_ms: int
) -> bool:
    return FETCHED(self, follower_id, self.log_end_offset, start, now_ms)


def offset_after_the_one_fetched_is_acknowledged(
    self: LeaderPartition, follower_id: int, offset: int, start: int, now_ms: int
) -> bool:
    return FETCHED(self, follower_id, min(offset + 1, self.log_end_offset), start, now_ms)


def followers_begin_at_the_end(self: LeaderPartition, *given: Any, **more: Any) -> None:
    LEAD(self, *given, **more)
    for each in self.followers.values():
        each.log_end_offset = self.log_end_offset


def followers_of_a_later_epoch_begin_at_the_end(self: LeaderPartition, *given: Any) -> None:
    for each in self.followers.values():
        each.log_end_offset = self.log_end_offset
    RENEW(self, *given)


def acknowledged_with_too_few(self: LeaderPartition, required: int, _min_isr: int) -> ErrorCode | None:
    return ACKNOWLEDGEMENT(self, required, 1)


# ---- the leader: the in-sync replicas


def expansion_at_any_offset(self: LeaderPartition, follower_id: int) -> IsrChange | None:
    return self._change((*self.state.isr, follower_id)) if follower_id not in self.state.isr else None


def expansion_below_the_high_watermark(self: LeaderPartition, follower_id: int) -> IsrChange | None:
    follower = self.followers[follower_id]
    if follower_id in self.state.isr or not self._may_change or follower.log_end_offset + 1 < self.high_watermark:
        return None
    return self._change((*self.state.isr, follower_id))


def no_replica_joins(self: LeaderPartition, _follower_id: int) -> IsrChange | None:
    return None


def no_replica_is_late(self: LeaderPartition, _broker_id: int, _now_ms: int) -> bool:
    return False


def leader_is_late_itself(self: LeaderPartition, broker_id: int, now_ms: int) -> bool:
    return broker_id not in self.followers or IS_LATE(self, broker_id, now_ms)


def isr_written_whatever_is_there(self: LeaderPartition, isr: tuple[int, ...]) -> IsrChange:
    self._pending = replace(CHANGE(self, isr), expected_version=ANY_VERSION)
    return self._pending


def failure_means_not_written(self: LeaderPartition, change: IsrChange) -> None:
    if change is self._pending:
        self._pending = None


def failure_means_written(self: LeaderPartition, change: IsrChange) -> None:
    self.isr_written(change, change.expected_version + 1, 0)


def failure_is_forgotten(self: LeaderPartition, _change: IsrChange) -> None:
    pass  # the change stays under way for ever


def conflict_adopts_any_state(
    self: LeaderPartition, change: IsrChange, found: PartitionState, version: int, now_ms: int
) -> bool:
    if change is self._pending:
        self.state, self.version, self._pending = found, version, None
    return self._advance(now_ms)


def conflict_adopts_nothing(
    self: LeaderPartition, change: IsrChange, found: PartitionState, _version: int, now_ms: int
) -> bool:
    return REFUSED(self, change, found, self.version, now_ms)


def deposed_leaders_stay_so(self: LeaderPartition, *given: Any) -> None:
    was_deposed = self.is_deposed
    RENEW(self, *given)
    self.is_deposed = was_deposed


# ---- the follower: where it cuts its log


def truncation_by_the_leader_alone(
    answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    """KIP-279: after fast failovers the leader's answer alone leaves records that the leader has not."""
    return Truncation(min(answer.end_offset if answer.end_offset >= 0 else high_watermark, log_end_offset))


def truncation_asks_once(answer: EpochEnd, own_end_of: Callable[[int], EpochEnd], **ends: int) -> Truncation:
    """KIP-279, half of it: the follower cuts at its own largest epoch, and does not ask about that one."""
    return replace(BY_LEADER_EPOCH(answer, own_end_of, **ends), is_complete=True)


def truncation_at_the_high_watermark(
    _answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    """KIP-101: what lies behind the high watermark is cut, which the follower learns late."""
    return Truncation(min(high_watermark, log_end_offset))


def no_truncation(_answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], **ends: int) -> Truncation:
    return Truncation(ends["log_end_offset"])


def truncation_of_everything(_answer: EpochEnd, _own_end_of: Callable[[int], EpochEnd], **_ends: int) -> Truncation:
    return Truncation(0)


def truncation_a_record_too_late(answer: EpochEnd, own_end_of: Callable[[int], EpochEnd], **ends: int) -> Truncation:
    found = BY_LEADER_EPOCH(answer, own_end_of, **ends)
    return replace(found, offset=min(found.offset + 1, ends["log_end_offset"]))


def fetches_before_it_cuts(
    self: Fetcher, partition: TopicPartition, log: Any, epoch: int, **more: Any
) -> list[Truncate]:
    FOLLOW(self, partition, log, epoch, **more)
    self._followed[partition].is_truncating = False
    return []


def divergence_is_ignored(self: Fetcher, asked: FetchFrom, answer: Answered, now_ms: int) -> Append | Truncate | None:
    return FETCHED_ANSWER(self, asked, replace(answer, diverging=None), now_ms)


def epochs_of_nothing_stay(self: Fetcher, asked: FetchFrom, answer: Answered, now_ms: int) -> Append | Truncate | None:
    """Cut nothing where the log ends there already: the epoch of a leader without records is announced for ever."""
    found = FETCHED_ANSWER(self, asked, answer, now_ms)
    return None if isinstance(found, Truncate) and found.offset == asked.offset else found


def last_epoch_is_the_leaders(self: Fetcher, now_ms: int) -> fetcher.Step:
    """Tell the epoch of the leader in place of that of the last record, so that no divergence is seen."""
    step = NEXT(self, now_ms)
    if isinstance(step, Fetch):
        return Fetch(tuple(replace(each, last_epoch=each.leader_epoch) for each in step.partitions))
    return step


# ---- the follower: out of range, and whose answers count


def out_of_range_keeps_the_log(*, leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    return Restart(min(leader_end, log_end_offset))


def out_of_range_goes_to_the_end(*, leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    return Restart(leader_end, fully=leader_end > log_end_offset)


def out_of_range_deletes_to_the_end(*, leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    return Restart(leader_end, fully=True)


def out_of_range_for_ever(self: Fetcher, _asked: AskOffsets, _answers: Any, _now_ms: int) -> list[Truncate]:
    return []


def log_starts_are_ignored(self: Fetcher, asked: FetchFrom, answer: Answered, now_ms: int) -> Append | Truncate | None:
    return FETCHED_ANSWER(self, asked, replace(answer, log_start_offset=-1), now_ms)


def log_start_at_the_high_watermark(
    self: Fetcher, asked: FetchFrom, answer: Answered, now_ms: int
) -> Append | Truncate | None:
    return FETCHED_ANSWER(self, asked, replace(answer, log_start_offset=answer.high_watermark), now_ms)


def answers_of_any_leader(self: Fetcher, key: TopicPartition, _leader_epoch: int) -> Any:
    return self._followed.get(key)


def fetches_of_any_epoch_are_answered(self: History, leader: Broker, _epoch: int) -> ErrorCode:
    """KIP-320: a leader does not compare the epoch in which it is asked with its own."""
    return ErrorCode.NONE if leader.leader is not None else ErrorCode.UNKNOWN_LEADER_EPOCH


def unanswered_is_given_up(self: Fetcher, step: Fetch | AskEpochs | AskOffsets, now_ms: int) -> None:
    self._followed.clear()


# ---- a log's epochs


def epoch_of_a_leader_is_not_noted(self: Log, epoch: int) -> None:
    """KIP-101: where a leader's epoch begins is known by its first record only."""
    if epoch > self.latest_epoch and len(self.records) == 0:
        self.epochs.append((epoch, 0))


def epochs_survive_truncation(self: Log, offset: int) -> None:
    epochs = self.epochs
    TRUNCATE(self, offset)
    self.epochs = epochs


# ---- elections and the controller


def any_live_replica_leads(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], epoch: int, *, unclean: bool
) -> PartitionState | None:
    return OFFLINE(state, replicas, live, epoch, unclean=True)


def dead_leaders_are_elected(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], epoch: int, *, unclean: bool
) -> PartitionState | None:
    return OFFLINE(state, replicas, replicas, epoch, unclean=unclean)


def the_last_in_sync_is_removed(
    state: PartitionState, _replicas: Collection[int], live: Collection[int], epoch: int
) -> PartitionState | None:
    isr = tuple(each for each in state.isr if each in live)
    leader = state.leader if state.leader in live else NO_BROKER
    changed = (leader, isr) != (state.leader, state.isr)
    return PartitionState(leader, state.leader_epoch + 1, isr, epoch) if changed else None


def preferred_leader_is_out_of_sync(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], epoch: int
) -> PartitionState | None:
    first = replicas[0]
    isr = tuple(dict.fromkeys((*state.isr, first)))
    return (
        None
        if first == state.leader or first not in live
        else replace(state, leader=first, isr=isr, leader_epoch=state.leader_epoch + 1)
    )


def shut_down_for_any_replica(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], leaving: Collection[int], epoch: int
) -> PartitionState | None:
    able = [each for each in replicas if each in live and each not in leaving]
    return PartitionState(able[0], state.leader_epoch + 1, tuple(able), epoch) if able else None


def epoch_stays(state: PartitionState, leader: int, isr: Sequence[int], epoch: int) -> PartitionState:
    return PartitionState(leader, state.leader_epoch, tuple(isr), epoch)


def bounces_are_missed(self: Controller, brokers: Mapping[int, int]) -> list[Effect]:
    """KAFKA-1120: a broker that died and came back between two looks is taken for one that lived."""
    return BROKERS_CHANGED(self, {each: self.brokers.get(each, epoch) for each, epoch in brokers.items()})


def dead_brokers_are_missed(self: Controller, brokers: Mapping[int, int]) -> list[Effect]:
    return BROKERS_CHANGED(self, {**self.brokers, **brokers})


def states_written_whatever_is_there(changes: Sequence[controller.StateChange]) -> list[Effect]:
    return [WriteStates(tuple(replace(each, expected_version=ANY_VERSION) for each in changes))] if changes else []


def read_states_are_not_believed(self: Controller, found: Mapping[TopicPartition, KnownState]) -> list[Effect]:
    return STATES_READ(self, {key: KnownState(self.states[key].state, each.version) for key, each in found.items()})


def a_new_controller_sends_no_orders(self: Controller) -> list[Effect]:
    return []


def new_brokers_get_no_orders(self: Controller, *_given: Any, **_more: Any) -> list[Effect]:
    return []


ADVANCE, FETCHED, LEAD = LeaderPartition._advance, LeaderPartition.fetched, LeaderPartition.__init__
RENEW, ACKNOWLEDGEMENT = LeaderPartition.renew, LeaderPartition.acknowledgement
IS_LATE, CHANGE, REFUSED = LeaderPartition._is_late, LeaderPartition._change, LeaderPartition.isr_refused
BY_LEADER_EPOCH, FOLLOW, FETCHED_ANSWER = fetcher.by_leader_epoch, Fetcher.follow, Fetcher.fetched
NEXT, TRUNCATE = Fetcher.next, Log.truncate
OFFLINE = election.offline
BROKERS_CHANGED, STATES_READ = (
    Controller.brokers_changed, Controller.states_read,
)  # fmt: skip

COMPARES: dict[str, Any] = {"compares_epochs": True}


@dataclass(frozen=True)
class Planted:
    """A fault in place of `owner.name`. `options` are those of the histories that find it."""

    owner: Any
    name: str
    fault: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.fault.__name__


PLANTED = [
    Planted(LeaderPartition, "_advance", high_watermark_without_followers),
    Planted(LeaderPartition, "_advance", high_watermark_without_pending),
    Planted(LeaderPartition, "_advance", high_watermark_of_an_unwritten_shrink),
    Planted(LeaderPartition, "_advance", high_watermark_of_a_majority),
    Planted(LeaderPartition, "_advance", high_watermark_falls),
    Planted(LeaderPartition, "fetched", offset_of_the_answer_is_acknowledged),
    Planted(LeaderPartition, "fetched", offset_after_the_one_fetched_is_acknowledged),
    Planted(LeaderPartition, "__init__", followers_begin_at_the_end),
    Planted(LeaderPartition, "renew", followers_of_a_later_epoch_begin_at_the_end),
    Planted(LeaderPartition, "acknowledgement", acknowledged_with_too_few, {"min_isr": 2}),
    Planted(LeaderPartition, "expansion", expansion_at_any_offset),
    Planted(LeaderPartition, "expansion", expansion_below_the_high_watermark),
    Planted(LeaderPartition, "expansion", no_replica_joins),
    Planted(LeaderPartition, "_is_late", no_replica_is_late),
    Planted(LeaderPartition, "_is_late", leader_is_late_itself),
    Planted(LeaderPartition, "_change", isr_written_whatever_is_there),
    Planted(LeaderPartition, "isr_failed", failure_means_not_written),
    Planted(LeaderPartition, "isr_failed", failure_means_written),
    Planted(LeaderPartition, "isr_failed", failure_is_forgotten),
    Planted(LeaderPartition, "isr_refused", conflict_adopts_any_state),
    Planted(LeaderPartition, "isr_refused", conflict_adopts_nothing),
    Planted(LeaderPartition, "renew", deposed_leaders_stay_so),
    Planted(fetcher, "by_leader_epoch", truncation_by_the_leader_alone),
    Planted(fetcher, "by_leader_epoch", truncation_asks_once),
    Planted(fetcher, "by_leader_epoch", truncation_at_the_high_watermark),
    Planted(fetcher, "by_leader_epoch", no_truncation),
    Planted(fetcher, "by_leader_epoch", truncation_of_everything),
    Planted(fetcher, "by_leader_epoch", truncation_a_record_too_late),
    Planted(Fetcher, "follow", fetches_before_it_cuts),
    Planted(Fetcher, "fetched", divergence_is_ignored, COMPARES),
    Planted(Fetcher, "fetched", epochs_of_nothing_stay, COMPARES),
    Planted(Fetcher, "next", last_epoch_is_the_leaders, COMPARES),
    Planted(fetcher, "out_of_range", out_of_range_keeps_the_log),
    Planted(fetcher, "out_of_range", out_of_range_goes_to_the_end),
    Planted(fetcher, "out_of_range", out_of_range_deletes_to_the_end),
    Planted(Fetcher, "offsets_answered", out_of_range_for_ever),
    Planted(Fetcher, "fetched", log_starts_are_ignored),
    Planted(Fetcher, "fetched", log_start_at_the_high_watermark),
    Planted(Fetcher, "_current", answers_of_any_leader),
    Planted(History, "_fault", fetches_of_any_epoch_are_answered),
    Planted(Fetcher, "failed", unanswered_is_given_up),
    Planted(Log, "note", epoch_of_a_leader_is_not_noted, COMPARES),
    Planted(Log, "truncate", epochs_survive_truncation),
    Planted(election, "offline", any_live_replica_leads),
    Planted(election, "offline", dead_leaders_are_elected),
    Planted(election, "without_dead", the_last_in_sync_is_removed),
    Planted(election, "preferred", preferred_leader_is_out_of_sync),
    Planted(election, "controlled_shutdown", shut_down_for_any_replica),
    Planted(election, "_led_by", epoch_stays),
    Planted(Controller, "brokers_changed", bounces_are_missed),
    Planted(Controller, "brokers_changed", dead_brokers_are_missed),
    Planted(controller, "_written", states_written_whatever_is_there),
    Planted(Controller, "states_read", read_states_are_not_believed),
    Planted(Controller, "start", a_new_controller_sends_no_orders),
    Planted(controller._Cluster, "_lead", new_brokers_get_no_orders),
]


@contextlib.contextmanager
def in_place(planted: Planted) -> Iterator[None]:
    """Plant a fault for a while."""
    sound = vars(planted.owner)[planted.name]
    setattr(planted.owner, planted.name, planted.fault)
    try:
        yield
    finally:
        setattr(planted.owner, planted.name, sound)


def seed_that_fails(seeds: Iterable[int], **options: Any) -> int | None:
    """Return the first seed whose history fails, None if none does."""
    for seed in seeds:
        try:
            History(seed, **options).run(400)
        except (AssertionError, KeyError, RecursionError):
            return seed
    return None
