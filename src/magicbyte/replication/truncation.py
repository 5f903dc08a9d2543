"""Where a follower cuts its log before it fetches from a leader: by high watermark, or by leader epochs.

Pure. Sources: Kafka's AbstractFetcherThread; KIP-101 (leader epochs), KIP-279 (fast failovers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

UNDEFINED: Final = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch up to the one that was asked for, and the offset where it ends; -1 for unknown ones."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncation:
    """The offset to cut the log at. `is_complete`: fetching can begin; else the leader is asked again first."""

    offset: int
    is_complete: bool = True


def by_high_watermark(high_watermark: int, log_end_offset: int) -> Truncation:
    """Return where a follower cuts that knows no leader epochs, or must not ask for them (before 0.11).

    Committed records can be lost this way, and logs diverge (KIP-101): it is what those protocol versions do.
    """
    return Truncation(min(high_watermark, log_end_offset))


def by_leader_epoch(
    answer: EpochEnd, own_end_of: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    """Return where a follower cuts, by the leader's answer to the follower's latest epoch.

    `own_end_of(epoch)` answers the same question from the follower's log. Where the leader names an epoch that the
    follower does not have, the follower cuts at the end of its largest epoch below, and asks again about that one:
    after fast failovers both may have epochs that the other lacks (KIP-279). An answer without an epoch is of
    version 0 (before 2.0).
    """
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


def is_in_doubt(answer: EpochEnd, own_start: int, log_end_offset: int) -> bool:
    """Say whether a follower has to ask about the epoch before its latest, too, which begins at `own_start`.

    Answers of version 0 (before 2.0) name no epoch: the leader may not have the follower's latest one at all, and its
    end is that of an earlier epoch then.
    """
    return answer.epoch == UNDEFINED and own_start < min(answer.end_offset, log_end_offset)


def after_doubt(answer: EpochEnd, before: EpochEnd, own: EpochEnd, own_start: int, high_watermark: int) -> Truncation:
    """Return where a follower cuts that `is_in_doubt`: `before` is the leader's answer to the epoch before.

    Where both end at the same offset, the leader has no record of the follower's latest epoch, and all of that goes, as
    far as it is not committed. `own` is the follower's largest epoch before its latest one, and is asked about next.
    Kafka keeps the records up to that offset: logs diverge after fast failovers (KIP-279), for which it has version 1.
    """
    if answer.end_offset != before.end_offset:
        return Truncation(answer.end_offset)
    if high_watermark > own_start:
        return Truncation(high_watermark)
    return Truncation(own_start, is_complete=own.end_offset == UNDEFINED)


@dataclass(frozen=True, slots=True)
class Restart:
    """Where a follower goes on whose offset the leader does not have: cut at `offset`, or `fully`, and fetch there."""

    offset: int
    fully: bool = False


def out_of_range(*, leader_start: int, leader_end: int, log_end_offset: int) -> Restart:
    """Return where a follower goes on after OFFSET_OUT_OF_RANGE, by the offsets of the leader's log.

    A follower that is ahead (an unclean election) cuts at the leader's end. One that is behind the leader's start
    (retention) deletes all it has and begins there.
    """
    if leader_end < log_end_offset:
        return Restart(leader_end)
    if leader_start > log_end_offset:
        return Restart(leader_start, fully=True)
    return Restart(log_end_offset)
