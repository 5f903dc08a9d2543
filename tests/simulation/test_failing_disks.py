"""A disk that fails at any operation of any work takes its directory offline; nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
import itertools

import pytest

from magicbyte.engine.errors import ErrorCode, LogDirectoryOfflineError
from simulation.crashes import PLAIN, World, recovery_points

NEVER = 1 << 60
STEPS = 60


def failed(seed: int, operation: int, number: int) -> World:
    """Work whose disk fails at an operation, and what is open then refuses everything else."""
    world = World(seed, every=NEVER)
    world.disk.failures[operation] = number
    with pytest.raises(LogDirectoryOfflineError) as found:
        world.run(STEPS)
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    directory = world.directory
    if directory is not None:
        assert isinstance(directory.health.error, OSError)
        assert directory.health.error.errno == number
        world.maintenance.pause(PLAIN)
        for change in (directory.close, directory.checkpoint_recovery_points):
            with pytest.raises(LogDirectoryOfflineError, match="offline since"):
                change()
        for log in directory.logs.values():
            with pytest.raises(LogDirectoryOfflineError, match="offline since"):
                log.roll(0)
    return world


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        (1, errno.EIO),
        *(
            pytest.param(seed, number, marks=pytest.mark.slow)
            for seed, number in [(1, errno.ENOSPC), *itertools.product((2, 3), (errno.EIO, errno.ENOSPC))]
        ),
    ],
)
def test_every_state_after_a_disk_failure_is_recovered(seed: int, number: int) -> None:
    whole = World(seed, every=NEVER).run(STEPS)
    kinds: set[str] = set()
    for operation in range(seed, whole.disk.operations, 89):
        world = failed(seed, operation, number)
        kinds |= {kind for kind, _ in world.disk.counted}
        world.check(world.disk.after_a_cut(operation), operation, f"failed at {operation}")
        disk = world.disk
        disk.failures.clear()
        disk.observer = None
        world.verify(disk, recovery_points(disk), goes_on=True)  # a new process on the same disk, the power stayed on
    assert len(kinds) == 8
