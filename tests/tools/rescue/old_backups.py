"""Backups of all golden logs of 0.8 to 0.11, whole, damaged and doubled, packed in each way, and what must come out.

What is whole is Kafka's word: the records that its consumer gave, and the bounds of batches that its dump tool printed.
A damaged log loses the records of one batch, and no other.
"""

from __future__ import annotations

import base64
import gzip
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import zstandard

import golden_data
from golden_data import Case

SEED: Final = 24
FORMS: Final = ("whole", "damaged", "doubled")
PACKINGS: Final = ("folder", ".tar", ".tar.gz", ".tar.zst", ".zip", "packed segments")
DAMAGES: Final = ("flip", "hole", "length", "cut")
_BASE_OFFSET_AND_LENGTH: Final = 12
_UNDER_CHECKSUM: Final = 21  # from here on in every format


class Row(NamedTuple):
    """A record as a consumer of any era sees it: -1 where it has no timestamp; all else in base64."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class OldLog:
    """A golden log in one form. `damaged`: segment, position and kind of the damage in its only or first replica."""

    topic: str
    form: str
    case: Case
    expected: list[Row]
    damaged: tuple[str, int, str] | None


def old_cases() -> list[Case]:
    """The golden logs of 0.8 to 0.11, but those of consumer groups, which are no topic of a backup."""
    return [
        case
        for case in golden_data.all_log_cases()
        if case.version.startswith("0.") and case.topic != "__consumer_offsets"
    ]


def old_backups(folder: Path, seed: int = SEED) -> dict[Path, list[OldLog]]:
    """Make a backup of each packing; each golden log is in three of them, once in each form."""
    drawn = random.Random(seed)
    plan: dict[str, list[OldLog]] = {packing: [] for packing in PACKINGS}
    for number, case in enumerate(old_cases()):
        for at, form in enumerate(FORMS):
            packing = PACKINGS[(number + 2 * at) % len(PACKINGS)]
            source = folder / packing.strip(".").replace(" ", "-")
            plan[packing].append(_laid_out(case, form, source, drawn))
    return {
        _packed(packing, folder / packing.strip(".").replace(" ", "-")): logs for packing, logs in plan.items() if logs
    }


def rows(case: Case) -> list[Row]:
    """The records that a consumer got of a log; without a clean shutdown, after the broker's recovery."""
    if not case.has_records:
        case = golden_data.log_case(case.id.replace(".crashed", ".recovered"))
    given = [_row(each) for each in case.records()]
    if not case.has_committed:
        return given
    committed = _committed(case)
    return [row for row in given if row.offset in committed]


def _committed(case: Case) -> set[int]:
    """The offsets outside of aborted transactions; an open one is aborted, and no longer blocks readers."""
    found, pending = set[int](), dict[int, set[int]]()
    for batch in case.batches():
        offsets = set(range(batch["baseOffset"], batch["lastOffset"] + 1))
        if batch["isControl"]:
            ended = pending.pop(batch["producerId"], set())
            found |= ended if batch["marker"]["endTxnMarker"] == "COMMIT" else set()
        elif batch["isTransactional"]:
            pending.setdefault(batch["producerId"], set()).update(offsets)
        else:
            found |= offsets
    return found


def _row(line: dict[str, Any]) -> Row:
    headers = tuple(
        text for name, value in line["headers"] for text in (base64.b64encode(name.encode()).decode(), value)
    )
    timestamp = -1 if line["timestamp"] is None else line["timestamp"]
    return Row(line["offset"], timestamp, line["key"], line["value"], headers)


def _laid_out(case: Case, form: str, folder: Path, drawn: random.Random) -> OldLog:
    topic = f"{form}.{case.id.replace('/', '.')}"
    name = f"{topic}-0"
    first = folder / "broker-1" / case.version / name
    shutil.copytree(case.partition_dir(), first)
    if form == "whole":
        return OldLog(topic, form, case, rows(case), None)
    batch = drawn.choice([each for each in case.batches() if each["isvalid"] and not each.get("isControl")])
    kind = drawn.choice(DAMAGES)
    lost = _damage(first / batch["segment"], batch, kind, drawn, case)
    if form == "doubled":
        shutil.copytree(case.partition_dir(), folder / "broker-2" / case.version / name)
        return OldLog(topic, form, case, rows(case), None)
    left = [row for row in rows(case) if not any(begin <= row.offset <= end for begin, end in lost)]
    return OldLog(topic, form, case, left, (batch["segment"], batch["position"], kind))


def _damage(segment: Path, batch: dict[str, Any], kind: str, drawn: random.Random, case: Case) -> list[tuple[int, int]]:
    """Damage a batch of a segment; return the offsets that go with it. A cut takes all that follows in the segment."""
    data, start, size = bytearray(segment.read_bytes()), batch["position"], batch["size"]
    gone = [batch]
    if kind == "flip":
        data[start + drawn.randrange(_UNDER_CHECKSUM, size)] ^= 1 << drawn.randrange(8)
    elif kind == "hole":
        begin = drawn.randrange(_UNDER_CHECKSUM)
        data[start + begin : start + size] = bytes(size - begin)
    elif kind == "length":
        data[start + 8 : start + _BASE_OFFSET_AND_LENGTH] = _wrong_length(bytes(data), start, drawn)
    else:
        del data[start + drawn.randrange(1, size) :]
        gone = [each for each in case.batches() if each["segment"] == segment.name and each["position"] >= start]
    segment.write_bytes(data)
    return [(each["baseOffset"], each["lastOffset"]) for each in gone]


def _wrong_length(data: bytes, start: int, drawn: random.Random) -> bytes:
    """Return a length with one bit changed that stays in the segment; beyond it salvage sees a torn tail."""
    length = int.from_bytes(data[start + 8 : start + _BASE_OFFSET_AND_LENGTH], "big")
    changed = [length ^ (1 << bit) for bit in range(31)]
    inside = [each for each in changed if start + _BASE_OFFSET_AND_LENGTH + each <= len(data)]
    return drawn.choice(inside).to_bytes(4, "big")


# ---- packing


def _packed(packing: str, folder: Path) -> Path:
    if packing == "folder":
        return folder
    if packing == "packed segments":
        for each in list(folder.rglob("*.log")):
            each.with_name(f"{each.name}.gz").write_bytes(gzip.compress(each.read_bytes()))
            each.unlink()
        return folder
    archive = folder.with_name(f"backup{packing}")
    if packing == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
            for each in sorted(folder.rglob("*")):
                out.write(each, each.relative_to(folder))
    else:
        plain = folder.with_name("plain.tar")
        with tarfile.open(plain, "w") as tar:
            tar.add(folder, "var/lib/kafka")
        pack: dict[str, Callable[[bytes], bytes]] = {
            ".tar": bytes,
            ".tar.gz": gzip.compress,
            ".tar.zst": zstandard.compress,
        }
        archive.write_bytes(pack[packing](plain.read_bytes()))
        plain.unlink()
    shutil.rmtree(folder)
    return archive
