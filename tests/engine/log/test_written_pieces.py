"""Writing a file in pieces: each system call may take only a part of them."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from magicbyte.engine.log.files.filesystem import LocalFiles

PIECES = (b"head", memoryview(b"body" * 5), b"", b"tail")
Write = Callable[[int, Sequence[bytes | memoryview], int], int]


def short(most: int) -> Write:
    """Return a `pwritev` that takes `most` bytes of its pieces."""

    def write(descriptor: int, pieces: Sequence[bytes | memoryview], position: int) -> int:
        return os.pwrite(descriptor, b"".join(pieces)[:most], position)

    return write


def written(folder: Path, pieces: Sequence[bytes | memoryview]) -> bytes:
    with LocalFiles().create(str(folder / "file")) as file:
        file.write_at(0, b"..")
        file.write_at(2, *pieces)
        assert file.size == 2 + sum(map(len, pieces))
        file.sync()
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("most", [1, 3, 4, 5, 24, 25, 100])
def test_a_system_call_may_write_a_part_of_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(os, "pwritev", short(most), raising=False)
    assert written(tmp_path, PIECES) == b".." + b"".join(PIECES)


def test_more_pieces_than_a_system_call_takes(tmp_path: Path) -> None:
    pieces = [b"%05d" % at for at in range(3000)]
    assert written(tmp_path, pieces) == b".." + b"".join(pieces)


def test_a_system_without_vectored_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwritev", raising=False)
    assert written(tmp_path, PIECES) == b".." + b"".join(PIECES)
