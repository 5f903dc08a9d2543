"""Display a running mirror: a table on a terminal, and a line per topic at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from magicbyte.cli.render import many, size_text
from magicbyte.engine.printable import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from magicbyte.tools.mirror.copier import Copied

RATE_SECONDS: Final = 5.0  # window for MB/s
_AROUND: Final = 5  # lines of a terminal without a topic: column names, two rules, the sum, and the cursor's
_GAP: Final = 3  # cells between columns
_HEAD: Final = ["topic", "closed", "opened", "MB/s", "offsets behind", "CPU saved"]


class Rates:
    """Bytes per second by topic, over the last few seconds. Call `note` regularly."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, dict[str, int]]] = deque()

    def note(self, copied: Mapping[str, Copied], now: float) -> None:
        """Record the copied bytes at `now`, in seconds."""
        self._noted.append((now, {topic: bytes_of(each) for topic, each in copied.items()}))
        while len(self._noted) > 2 and now - self._noted[1][0] >= RATE_SECONDS:
            self._noted.popleft()

    def __getitem__(self, topic: str) -> float:
        """Return the rate of a topic."""
        (began, first), (now, last) = self._noted[0], self._noted[-1]
        return (last.get(topic, 0) - first.get(topic, 0)) / (now - began) if now > began else 0.0


def bytes_of(copied: Copied) -> int:
    """Return the number of copied bytes."""
    return copied.closed_bytes + copied.opened_bytes


def rows(copied: Mapping[str, Copied], rates: Rates, saved: Mapping[str, float], room: int) -> list[list[str]]:
    """Return the cells of topics, those with lag and traffic first, and of their sum.

    `room`: lines for topics. The last one may summarize several topics.
    """
    topics = sorted(copied, key=lambda topic: (-copied[topic].lag, -rates[topic], topic))
    shown = topics if len(topics) <= room else topics[: room - 1]
    found = [_row(topic, [topic], copied, rates, saved) for topic in shown]
    if rest := topics[len(shown) :]:
        found.append(_row(f"{len(rest)} more", rest, copied, rates, saved))
    if len(copied) > 1:
        found.append(_row("all", list(copied), copied, rates, saved))
    return found


def _row(
    name: str, topics: list[str], copied: Mapping[str, Copied], rates: Rates, saved: Mapping[str, float]
) -> list[str]:
    known = [saved[topic] for topic in topics if topic in saved]
    aside = sum(copied[topic].parked for topic in topics)
    lost = sum(copied[topic].lost for topic in topics)
    return [
        name + (f", {aside} put aside" if aside else "") + (f", {lost} lost" if lost else ""),
        size_text(sum(copied[topic].closed_bytes for topic in topics)),
        size_text(sum(copied[topic].opened_bytes for topic in topics)),
        f"{sum(rates[topic] for topic in topics) / 1e6:.1f}",
        f"{sum(copied[topic].lag for topic in topics):,}",
        duration_text(sum(known)) if known else "",
    ]


def duration_text(seconds: float) -> str:
    """Return a duration with about two digits."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Display:
    """The table on a terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rates = Rates()

    def show(self, copied: Mapping[str, Copied], saved: Mapping[str, float], now: float) -> None:
        """Draw the state at `now`, in seconds. `saved`: CPU seconds by topic."""
        self._rates.note(copied, now)
        room = max(self._live.console.size.height - _AROUND, 2)
        drawn = table(rows(copied, self._rates, saved, room), self._live.console.size.width)
        self._live.update(drawn, refresh=True)


def table(cells: list[list[str]], width: int) -> Table:
    """Return a table of rows, with a rule before the last one if it is a sum. Names are cut to fit into `width`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = sum(max(map(len, column)) + _GAP for column in list(zip(_HEAD, *cells, strict=True))[1:])
    room = max(width - numbers - 2, len(_HEAD[0]))
    for name in _HEAD:
        drawn.add_column(name, justify="left" if name == _HEAD[0] else "right", no_wrap=True)
    for at, (name, *others) in enumerate(cells):
        name = printable(name)
        cut = name if len(name) <= room else f"{name[: room - 1]}…"
        drawn.add_row(Text(cut), *others, end_section=at == len(cells) - 2)
    return drawn


@contextmanager
def display() -> Iterator[Display]:
    """Show a table on stderr inside the block, and remove it at the end."""
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield Display(live)


def total(copied: Iterable[Copied]) -> str:
    """Return the final line about all topics: the number of copied records, as far as headers show it."""
    each = list(copied)
    records, uncounted = sum(topic.records for topic in each), sum(topic.uncounted for topic in each)
    others = f" and those of {many(uncounted, 'compressed set')}" if uncounted else ""
    return f"copied: {many(records, 'record')}{others} of {many(len(each), 'topic')}"


def line(copied: Copied, seconds: float, saved: float | None = None) -> str:
    """Return the final line about a topic after a run of `seconds`. `saved`: CPU seconds."""
    parts = [
        f"{size_text(copied.closed_bytes)} closed in {copied.closed_sets} sets",
        f"{size_text(copied.opened_bytes)} opened in {copied.opened_sets}",
        f"{bytes_of(copied) / max(seconds, 1e-9) / 1e6:.1f} MB/s",
        f"{copied.lag} offsets behind",
    ]
    if saved is not None:
        parts.append(f"about {duration_text(saved)} of CPU time saved")
    if copied.parked:
        parts.append(f"{copied.parked} put aside")
    if copied.lost:
        parts.append(f"{copied.lost} offsets deleted at the source before they were copied")
    return ", ".join(parts)
