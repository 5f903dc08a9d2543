"""The findings of a check: severity, place, and advice."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.engine.log.files.missing import Certainty

if TYPE_CHECKING:
    from magicbyte.engine.log.files.left_out import LeftOut
    from magicbyte.engine.log.files.missing import Missing


class Severity(enum.Enum):
    """The severity. Errors and warnings make a log unsound; notes do not."""

    ERROR = "error"  # records are lost, wrong or unreadable, or a broker would act on false data
    WARNING = "warning"  # a broker repairs it when it opens the log
    NOTE = "note"


class Depth(enum.Enum):
    """How thorough a check is."""

    QUICK = "quick"  # sizes, checksums and offsets of entries
    USUAL = "usual"  # also their headers, and all files beside them
    DEEP = "deep"  # also every record


class Finding(Struct, frozen=True):
    """A defect, or another noteworthy fact.

    `position` and `end`: the bytes of the file, None if it concerns the whole file. `offsets`: first and last of what
    is damaged or missing. `advice`: what to do.
    """

    severity: Severity
    path: str
    what: str
    expected: str
    found: str
    advice: str
    position: int | None = None
    end: int | None = None
    offsets: tuple[int, int] | None = None

    def __str__(self) -> str:
        place = [self.path]
        if self.position is not None:
            place.append(f"position {self.position}" + (f"..{self.end - 1}" if self.end is not None else ""))
        if self.offsets is not None:
            place.append(f"offsets {self.offsets[0]}..{self.offsets[1]}")
        return f"{', '.join(place)}: {self.what}: expected {self.expected}, found {self.found}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as printed by `magicbyte verify --format json`."""
        return {
            "severity": self.severity.value,
            "path": self.path,
            "position": self.position,
            "end": self.end,
            "offsets": None if self.offsets is None else list(self.offsets),
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "advice": self.advice,
        }


_BY_CERTAINTY: Final = {
    Certainty.RECORDS: Severity.ERROR,
    Certainty.UNKNOWN: Severity.WARNING,
    Certainty.POSSIBLE: Severity.WARNING,
    Certainty.NOTHING: Severity.NOTE,
}


def of_missing(missing: Missing) -> Finding:
    """Return the finding for what a log directory proves to be missing."""
    advice = COPY if missing.may_have_records else NOTHING
    return Finding(
        _BY_CERTAINTY[missing.certainty], missing.path, missing.what, missing.expected, missing.found,
        f"{advice} (likely: {missing.cause})", offsets=missing.offsets,
    )  # fmt: skip


def of_left_out(folder: LeftOut) -> Finding:
    """Return the finding for a folder that is not checked, since it holds no log in use."""
    severity = Severity.WARNING if folder.is_only_copy else Severity.NOTE
    found = f"{folder.why}; not checked"
    advice = f"to check it, give {folder.partition.path} itself" if folder.is_only_copy else NOTHING
    return Finding(severity, folder.partition.path, "partition folder", "that of a partition in use", found, advice)


COPY = "copy it again, or the partition from another replica"
SALVAGE = "`magicbyte salvage` writes a sound log of everything else; or copy the partition from another replica"
TORN = "a broker truncates the log here when it recovers from a crash; `magicbyte salvage` does the same into a new log"
ORDER = "`magicbyte salvage` restores the order of moved entries and omits duplicates"
RENAME = "`magicbyte salvage` writes a log whose segments are named by their first offsets"
SPLIT = "a broker from 2.0 on splits the segment when it opens the log; `magicbyte salvage` does it into a new log"
REBUILD = "`magicbyte rebuild-index` rebuilds it from the log"
DELETE = "delete it: the log does not need it"
WAIT = "a broker finishes or removes it when it opens the log"
FIX_LZ4 = "`magicbyte convert --to v1 --fix-lz4` repairs the byte"
READ = "inspect it with `magicbyte dump`"
LOOK = "compare with another replica"
LIMIT = "if a batch of this size is intended, raise --max-batch-bytes"
NOTHING = "nothing"
