"""Every Produce request of the wire captures, through our log: the same answer and the same bytes, but for the tables.

The tables are those of docs/internals/append.md: what is in no row is equal, and every row is needed.
"""

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import golden_data
from engine.log.produced import Replayed, replay
from golden_data import WireCase
from wire_reader import UnreadableError, payloads, produce_request, unpacked

PAGE = Path(__file__).parents[3] / "docs/internals/append.md"
REFERENCES = {"0.11.0.3": range(3), "2.8.2": range(3, 9)}
BEFORE_THE_LOG = ("acks-2-*", "unknown-partition-*")  # answered by the handler of the request


class Difference(NamedTuple):
    """A row: what the broker does, and what we do instead."""

    brokers: tuple[str, ...]  # none: all
    cases: tuple[str, ...]
    kafka: str
    here: str

    def covers(self, case: WireCase, kafka: str, here: str) -> bool:
        return (
            (not self.brokers or case.broker in self.brokers)
            and any(fnmatchcase(case.name, pattern) for pattern in self.cases)
            and (self.kafka == "anything" or kafka in self.kafka.split(", "))
            and here in self.here.split(", ")
        )


@cache
def differences() -> tuple[list[Difference], list[Difference]]:
    """Those from the references, and those of other brokers only."""
    lines = PAGE.read_text(encoding="utf-8").partition("## Where real brokers")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]
    tables: tuple[list[Difference], list[Difference]] = [], []
    for row in rows:
        if row[0] in ("Cases", "Brokers"):
            continue
        brokers = row.pop(0).split(", ") if "`" not in row[0] else []
        patterns = tuple(each.strip("`") for each in row[0].split())
        tables[bool(brokers)].append(Difference(tuple(brokers), patterns, row[1], row[2]))
    return tables


def what_differs(case: WireCase, done: Replayed) -> tuple[str, str] | None:
    """What the broker did and what we did, in the words of the tables; None where that is the same."""
    for ours, theirs in done.answers:
        if theirs.code == "none":
            continue
        if ours.code != theirs.code:
            return theirs.code, ours.code
        if ours.base_offset != theirs.base_offset:
            return f"base offset {theirs.base_offset}", str(ours.base_offset)
        if theirs.log_append_time not in (None, ours.log_append_time):
            return "batch's append time", ours.code
    if done.stored == case.segment:
        return None
    code = done.answers[-1][0].code
    try:
        theirs_unpacked = list(unpacked(case.segment))
    except UnreadableError:
        return "stores what is damaged", code
    if list(unpacked(done.stored)) != theirs_unpacked:
        return "stores other bytes", code
    sent = payloads(produce_request(case.request).records)
    if payloads(done.stored) & sent:
        return "rebuilds", "in place"
    return ("in place", "rebuilds") if payloads(case.segment) & sent else None


def cases(broker: str) -> list[WireCase]:
    return [
        case
        for case in golden_data.wire_cases(broker)
        if case.info["api"] == "Produce" and not any(fnmatchcase(case.name, each) for each in BEFORE_THE_LOG)
    ]


@cache
def found_differences(broker: str) -> list[tuple[WireCase, tuple[str, str]]]:
    """The captured requests of a broker that are answered or stored otherwise here."""
    return [(case, what) for case in cases(broker) if (what := what_differs(case, replay(case))) is not None]


@pytest.mark.parametrize("broker", golden_data.wire_brokers())
def test_a_captured_request_is_answered_and_stored_as_the_broker_did_but_for_the_tables(broker: str) -> None:
    references, others = differences()
    unexpected = []
    for case, what in found_differences(broker):
        is_reference = produce_request(case.request).version in REFERENCES.get(broker, ())
        rows = references if is_reference else references + others
        if not any(row.covers(case, *what) for row in rows):
            unexpected.append((case.name, *what))
    assert unexpected == []


def test_each_row_of_the_tables_is_a_difference_that_a_capture_shows() -> None:
    references, others = differences()
    found = [each for broker in golden_data.wire_brokers() for each in found_differences(broker)]
    for row in references + others:
        for pattern in row.cases:
            one = row._replace(cases=(pattern,))
            assert any(one.covers(case, *what) for case, what in found), one


def test_the_captures_are_the_2634_requests_that_reach_a_log() -> None:
    assert sum(len(cases(broker)) for broker in golden_data.wire_brokers()) == 2634
