"""Descriptions and lists of transactional ids. Numbers in names are those of checks against real brokers."""

from __future__ import annotations

from typing import Any

from engine.transactions.world import A, B, World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest
from magicbyte.engine.transactions.reports import describe, list_all

P = (1000, 0)


def half_marked() -> World:
    world = World()
    world.init()
    world.add(P, A, B)
    world.holds_markers = True
    world.end(P)
    world.coordinator.marked(world.sent[0], A, ErrorCode.NONE)
    world.init("y")
    return world


def test_71_an_id_is_described_with_the_partitions_that_have_no_marker_yet() -> None:
    coordinator = half_marked().coordinator
    known, unknown, empty = (describe(coordinator, each) for each in ("x", "nobody", ""))
    assert (known.transaction_state, known.producer_id, known.transaction_timeout_ms) == ("PrepareCommit", 1000, 60_000)
    assert [(each.topic, each.partitions) for each in known.topics] == [("t", (1,))]
    assert (unknown.error_code, empty.error_code) == (105, 42)


def test_72_filters_combine_and_unknown_states_are_reported() -> None:
    world = half_marked()

    def listed(**filters: Any) -> list[str]:
        request = ListTransactionsRequest(**filters)
        return [each.transactional_id for each in list_all(world.coordinator, request, world.now_ms).transaction_states]

    assert listed() == ["x", "y"]
    assert listed(state_filters=["Foo", "Empty"]) == ["y"]
    assert listed(state_filters=["Foo"]) == []
    assert listed(producer_id_filters=(1000,)) == ["x"]
    assert listed(duration_filter=0) == ["y"]  # without a start it is as old as can be
    request = ListTransactionsRequest(state_filters=["Foo", "Empty"])
    assert list_all(world.coordinator, request, world.now_ms).unknown_state_filters == ["Foo"]


def test_nothing_is_listed_while_a_partition_is_being_loaded() -> None:
    world = half_marked()
    world.coordinator.begin_loading(0, 2)
    assert list_all(world.coordinator, ListTransactionsRequest(), world.now_ms).error_code == 14
