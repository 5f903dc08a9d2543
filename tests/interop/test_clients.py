"""Fifteen clients against our broker: each feature, topics of each format, every reader of every writer.

`matrix` has what is done and what cannot be, `clients/` the programs. A run writes docs/reference/compatibility.md.
"""

import os
from pathlib import Path

import pytest

from interop import client_programs, compatibility, matrix

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PAGE = Path(__file__).parents[2] / "docs/reference/compatibility.md"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> matrix.Results:
    lacking = client_programs.missing()
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(lacking, pytrace=False)
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("clients")
    with matrix.ours(folder / "broker") as target:
        return matrix.Run(target, folder).run()


@pytest.mark.parametrize("magic", matrix.FORMATS)
@pytest.mark.parametrize("client", matrix.COMMANDS)
def test_a_client_does_all_that_it_can(results: matrix.Results, client: str, magic: str) -> None:
    due = [cell for cell in matrix.due(client) if cell[2] == magic]
    assert {cell: results.cells.get(cell, "was not tried") for cell in due} == dict.fromkeys(due)


@pytest.mark.parametrize("magic", matrix.FORMATS)
@pytest.mark.parametrize("reader", matrix.COMMANDS)
def test_a_reader_sees_what_every_writer_wrote(results: matrix.Results, reader: str, magic: str) -> None:
    due = [(writer, reader, magic) for writer in matrix.COMMANDS]
    assert {pair: results.pairs.get(pair, "was not tried") for pair in due} == dict.fromkeys(due)


def test_nothing_was_tried_that_cannot_be(results: matrix.Results) -> None:
    assert [cell for cell in results.cells if matrix.reason(cell)] == []


def test_the_page_says_what_the_run_found(results: matrix.Results) -> None:
    before, now = PAGE.read_text(), compatibility.page(results)
    PAGE.write_text(now)
    assert before == now
