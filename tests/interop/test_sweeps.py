"""CI runs every release, whatever it leaves out of single sweeps."""

import pytest

from interop import sweeps, test_client, test_commands, test_old_readers


def test_a_sweep_keeps_its_ends_and_loses_no_release_that_nothing_else_runs() -> None:
    releases = ("0.9.0.1", "0.11.0.3", "4.3.1")
    assert [sweeps.is_in_ci(release, releases) for release in releases] == [True, False, True]
    with pytest.raises(ValueError, match=r"1\.0\.2: no test in CI would run it"):
        sweeps.cells(("0.9.0.1", "1.0.2", "4.3.1"))


def test_the_releases_that_sweeps_may_leave_out_are_run_by_others() -> None:
    run = {*test_client.VERSIONS, *test_commands.VERSIONS, *test_old_readers.IN_CI}
    assert set(sweeps.EVERYWHERE) <= run
