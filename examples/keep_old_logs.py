"""Looks through a folder of old logs, keeps what is whole in the newest format, and says what became of it.

Run: python keep_old_logs.py LOGS NEW. It needs the base install only; with the extra `arrow` it counts with Arrow.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import magicbyte


def look(logs: Path) -> None:
    for found in magicbyte.inventory(logs):
        print(found.partition.name, found.tally.records, found.tally.formats)
    for finding in magicbyte.verify(logs, depth="deep"):
        print(finding.severity.value, finding.path, finding.position, finding.what)


def keep(logs: Path, new: Path) -> bool:
    for salvaged in magicbyte.salvage(logs, new / "whole"):
        print(salvaged.name, [loss.offsets for loss in salvaged.report.lost])
    done = magicbyte.convert(new / "whole", new / "newest", magicbyte.Format.V2, codec=magicbyte.Codec.ZSTD)
    same = magicbyte.diff(new / "whole", new / "newest", ignore=["timestamps"]).same
    return same and all(each.error is None for each in done)


def count(logs: Path) -> Counter[str | None]:
    return Counter(record.topic for record in magicbyte.records(logs))


def count_with_arrow(logs: Path) -> int | None:
    try:
        return int(magicbyte.open_log(logs).to_arrow().num_rows)
    except (ImportError, magicbyte.MagicbyteError):
        return None


async def topics(bootstrap: str) -> list[str]:
    async with magicbyte.Client(bootstrap) as client:
        return sorted(await client.topics())


def main(logs: Path, new: Path) -> int:
    look(logs)
    is_kept = keep(logs, new)
    counts = count(new / "newest")
    print(counts.most_common(3), count_with_arrow(new / "newest"))
    with magicbyte.testing.Broker(directory=new / "newest") as broker:
        print(asyncio.run(topics(broker.bootstrap_servers)))
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
