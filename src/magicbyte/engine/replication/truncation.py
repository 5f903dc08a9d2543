"""Decide where a follower truncates its log before it fetches: by high watermark, or by leader epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

UNDEFINED: Final = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch up to the requested one, and its end offset; -1 if unknown."""

    epoch: int
    end_offset: int


class Truncation(Struct, frozen=True):
    """The offset to truncate to. `is_complete`: fetching can begin; else the leader must be asked again first."""

    offset: int
    is_complete: bool = True


def by_high_watermark(high_watermark: int, log_end_offset: int) -> Truncation:
    """Return where a follower truncates that knows no leader epochs, or cannot ask for them (before 0.11).

    Committed records can be lost this way, and logs diverge (KIP-101), as in real brokers of those versions.
    """
    return Truncation(min(high_watermark, log_end_offset))


def by_leader_epoch(
    answer: EpochEnd, own_end_of: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    """Return where a follower truncates, by the leader's answer about the follower's latest epoch.

    `own_end_of(epoch)` answers the same question from the follower's log. If the leader's answer has an epoch that the
    follower does not have, the follower truncates at the end of its largest epoch below, and asks again about that one:
    after fast failovers both may have epochs that the other lacks (KIP-279). An answer without an epoch is of version 0
    (before 2.0).
    """
    # KIP-101: the high watermark lags behind the records that are committed, so a follower that truncates to it after a
    # restart may drop acknowledged records, and become leader before it fetches them again. Leader epochs are exact:
    # records of one epoch are the same in all replicas, because one leader wrote them. So the logs agree up to the end
    # of the latest common epoch. KIP-279: if the leader names an earlier epoch than asked, because it never saw the
    # follower's, and the follower does not have that one either, neither end is a common point: the follower drops its
    # epochs above, and asks again about its next lower one, until both know the epoch. Each round removes one epoch, so
    # it terminates.
    if answer.end_offset == UNDEFINED:
        return by_high_watermark(high_watermark, log_end_offset)
    if answer.epoch == UNDEFINED:
        return Truncation(min(answer.end_offset, log_end_offset))
    own = own_end_of(answer.epoch)
    if own.end_offset == UNDEFINED:
        return Truncation(min(answer.end_offset, log_end_offset))
    if own.epoch != answer.epoch:
        return Truncation(min(own.end_offset, log_end_offset), is_complete=False)
    return Truncation(min(own.end_offset, answer.end_offset, log_end_offset))


def diverging(last_epoch: int, fetch_offset: int, end: EpochEnd) -> EpochEnd | None:
    """Return where a follower's log diverges from its leader's, None if it does not (KIP-595).

    `last_epoch` is that of the follower's last record before `fetch_offset`, and `end` the leader's answer about it.
    """
    if end.end_offset == UNDEFINED or (end.epoch >= last_epoch and end.end_offset >= fetch_offset):
        return None
    return end


def is_in_doubt(answer: EpochEnd, own_start: int, log_end_offset: int) -> bool:
    """Return whether a follower must also ask about the epoch before its latest, which begins at `own_start`.

    Answers of version 0 (before 2.0) have no epoch: the leader may not have the follower's latest one at all, and the
    end is then that of an earlier epoch.
    """
    return answer.epoch == UNDEFINED and own_start < min(answer.end_offset, log_end_offset)


def after_doubt(answer: EpochEnd, before: EpochEnd, own: EpochEnd, own_start: int, high_watermark: int) -> Truncation:
    """Return where a follower truncates after `is_in_doubt`: `before` is the leader's answer about the previous epoch.

    If both end at the same offset, the leader has no record of the follower's latest epoch, and all of that is
    truncated, as far as it is not committed. `own` is the follower's largest epoch before its latest one, and is asked
    about next. Kafka keeps the records up to that offset, so that logs diverge after fast failovers (KIP-279), for
    which it has version 1.
    """
    if answer.end_offset != before.end_offset:
        return Truncation(answer.end_offset)
    if high_watermark > own_start:
        return Truncation(high_watermark)
    return Truncation(own_start, is_complete=own.end_offset == UNDEFINED)


class Restart(Struct, frozen=True):
    """Where a follower continues whose offset the leader does not have: truncated to `offset`, or `fully`."""

    offset: int
    fully: bool = False


def out_of_range(*, leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    """Return where a follower continues after OFFSET_OUT_OF_RANGE, by the leader's offsets.

    A follower that is ahead (an unclean election) truncates to the leader's end. One that is behind the leader's start
    (retention) deletes its whole log and begins there.
    """
    if leader_end < log_end_offset:
        return Restart(leader_end)
    if leader_start > log_end_offset:
        return Restart(leader_start, fully=True)
    return Restart(log_end_offset)
