"""What writes to the file system of this machine: recorded.py says what holds at each rename, and at the end."""

import sys

import pytest

from simulation.recorded import RECORDED, run


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", RECORDED)
def test_what_has_its_name_is_durable(name: str) -> None:
    run(name)
