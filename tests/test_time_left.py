"""The lines of tests/time_left.py: each tenth of the tests, whole files, and the rest of the time at the same rate."""

from time_left import TimeLeft


def test_a_line_for_each_tenth_has_tests_files_and_the_time_that_is_left() -> None:
    said: list[str] = []
    now = 1000.0
    progress = TimeLeft(said.append, lambda: now)
    ids = [f"tests/test_{file}.py::test_{number}" for file in "ab" for number in range(10)]
    progress.begin(ids)
    progress.begin(ids)  # of another process
    for each in ids:
        now += 12
        progress.end(each)
    assert len(said) == 9
    assert said[0] == "2 of 20 tests, 0 of 2 files; about 3 min 36 s left"
    assert said[4] == "10 of 20 tests, 1 of 2 files; about 2 min 0 s left"
    assert said[-1] == "18 of 20 tests, 1 of 2 files; about 0 min 24 s left"


def test_a_few_tests_are_too_few_for_lines() -> None:
    said: list[str] = []
    progress = TimeLeft(said.append)
    progress.begin(["tests/test_a.py::test_b"])
    progress.end("tests/test_a.py::test_b")
    assert said == []
