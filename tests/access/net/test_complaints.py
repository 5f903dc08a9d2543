"""Lines about peers: how many there are, whatever peers do."""

import logging

import pytest

from magicbyte.access.net import complaints
from magicbyte.access.net.complaints import BURST, MOST_ADDRESSES, WINDOW_S, Complaints

log = logging.getLogger("peers")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_of_each_kind_an_address_gets_a_few_lines_and_then_their_number(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    lines = Complaints(time)
    with caplog.at_level(logging.WARNING):
        for at in range(1000):
            lines.line(log, "10.0.0.1", "junk", "closing %s: %d", "10.0.0.1:5", at)
        lines.line(log, "10.0.0.1", "refused", "no more of 10.0.0.1")
        lines.line(log, "10.0.0.2", "junk", "closing 10.0.0.2")
    assert caplog.messages == [
        *[f"closing 10.0.0.1:5: {at}" for at in range(BURST)],
        "no more of 10.0.0.1",
        "closing 10.0.0.2",
    ]
    caplog.clear()
    time.now = WINDOW_S
    with caplog.at_level(logging.WARNING):
        lines.flush()
        assert caplog.messages == [f"10.0.0.1: {1000 - BURST} similar lines suppressed (junk)"]
        lines.line(log, "10.0.0.1", "junk", "again")
    assert caplog.messages[-1] == "again"


def test_many_addresses_count_as_one(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    lines = Complaints(time)
    with caplog.at_level(logging.WARNING):
        for at in range(100_000):
            lines.line(log, str(at), "junk", "closing %d", at)
    assert len(caplog.messages) == MOST_ADDRESSES + BURST
    assert len(lines._windows) == MOST_ADDRESSES + 1
    time.now = WINDOW_S
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        lines.flush()
    assert caplog.messages == [f"other addresses: {100_000 - MOST_ADDRESSES - BURST} similar lines suppressed (junk)"]
    assert not lines._windows


def test_lines_below_the_log_level_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = Complaints(Time())
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            lines.line(log, "host", "idle", "closed", level=logging.INFO)
    assert not caplog.messages
    assert not lines._windows
    assert complaints.log.name == "magicbyte.access.net.complaints"
