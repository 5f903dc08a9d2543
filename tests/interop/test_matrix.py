"""The tables and comparisons of the client matrix itself, without any client: it sees what is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from builders import base64_text
from interop import compatibility, matrix
from interop.matrix import Results, StoredSet

PAGE = Path(__file__).parents[2] / "docs/reference/compatibility.md"
ALL_PASSED = Results(
    {cell: None for client in matrix.COMMANDS for cell in matrix.due(client)},
    {
        (writer, reader, magic): None
        for writer in matrix.COMMANDS
        for reader in matrix.COMMANDS
        for magic in matrix.FORMATS
    },
)
WRITTEN = matrix.ledger("Java 4.3.1", "produce none", "2")[1]


def test_the_page_is_that_of_a_run_in_which_all_passed() -> None:
    assert PAGE.read_text() == compatibility.page(ALL_PASSED)


def test_a_cell_that_failed_or_was_not_tried_is_marked() -> None:
    cell, *_ = ALL_PASSED.cells
    failed = replace(ALL_PASSED, cells=ALL_PASSED.cells | {cell: "wrong"})
    missing = replace(ALL_PASSED, cells={each: None for each in ALL_PASSED.cells if each != cell})
    assert compatibility.page(failed).count("✗") == compatibility.page(ALL_PASSED).count("✗") + 1
    assert compatibility.page(failed) == compatibility.page(missing)


def test_every_client_has_something_to_do_in_every_format() -> None:
    for client in matrix.COMMANDS:
        assert {magic for *_, magic in matrix.due(client)} == set(matrix.FORMATS)


def test_only_named_clients_lack_a_feature_in_format_2() -> None:
    lacking = {
        (client, feature)
        for client in matrix.COMMANDS
        for feature in matrix.FEATURES
        if matrix.reason((client, feature, "2"))
    }
    old = [client for client in matrix.COMMANDS if client.startswith("Java 0.")]
    assert lacking == {
        ("Java 0.8.2.2", "group"),
        ("kcat", "admin"),
        *((client, feature) for client in old for feature in ("produce zstd", "consume zstd")),
        *((client, feature) for client in old[:-1] for feature in ("admin", "idempotent produce")),
    }


def test_no_two_cells_write_the_same_record() -> None:
    values = [
        (key, value)
        for client in matrix.COMMANDS
        for feature in (*matrix.PRODUCE, "idempotent produce")
        for magic in matrix.FORMATS
        for _, key, value, _ in matrix.ledger(client, feature, magic)
        if key is not None and value != base64_text(b"")
    ]
    assert len(values) == len(set(values))


@pytest.mark.parametrize("at", range(4))
def test_a_reader_that_sees_another_time_key_value_or_header_is_found_out(at: int) -> None:
    assert WRITTEN[3], "has headers"
    other = (WRITTEN[0] or 0) + 1, None, None, ()
    seen = (*WRITTEN[:at], other[at], *WRITTEN[at + 1 :])
    assert matrix.seen_as(WRITTEN, WRITTEN, "Java 4.3.1")
    assert not matrix.seen_as(seen, WRITTEN, "Java 4.3.1")
    assert not matrix.seen_as(None, WRITTEN, "Java 4.3.1")


def test_a_reader_without_times_or_headers_is_not_asked_for_them() -> None:
    assert matrix.seen_as((None, *WRITTEN[1:3], ()), WRITTEN, "Java 0.9.0.1")
    assert matrix.seen_as((*WRITTEN[:3], ()), WRITTEN, "Java 0.10.2.2")
    assert not matrix.seen_as((None, *WRITTEN[1:3], ()), WRITTEN, "Java 0.10.2.2")


def test_a_stored_set_holds_the_offsets_between_its_ends() -> None:
    one = StoredSet(5, 7, 2, "gzip")
    assert [one.holds([offset]) for offset in (4, 5, 7, 8)] == [False, True, True, False]
