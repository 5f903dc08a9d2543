"""Compare and write generated files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magicbyte.engine.log.files.outputs import put_whole

GENERATED: Final = ('"""Generated from ', "<!-- Generated from ")
"""The first words of generated files: those that are no longer generated are stale, too."""


def stale(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return the names of the files in `directory` that are missing, have another text or are no longer generated.

    `files` has the text of each by its name. Raises OSError and UnicodeDecodeError.
    """
    wrong = [name for name, text in files.items() if _text(directory / name) != text]
    return sorted(wrong + leftovers(directory, files))


def leftovers(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return the names of generated modules and pages in `directory` that are no longer among `files`."""
    kinds = {".py", ".md"} & {Path(name).suffix for name in files}
    return [
        path.name
        for path in sorted(directory.glob("*"))
        if path.suffix in kinds and path.name not in files and path.read_text(encoding="utf-8").startswith(GENERATED)
    ]


def write(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Write `files` to `directory`; return the names of those that were written or, because stale, removed."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = stale(directory, files)
    for name in changed:
        if name in files:
            put_whole(directory / name, files[name].encode())
        else:
            (directory / name).unlink()
    return changed


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
