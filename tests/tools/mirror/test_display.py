"""What a terminal and Prometheus show of a mirror: bytes, rates, lag, and the CPU time that closed sets save."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from magicbyte.access.client import Client, admin
from magicbyte.access.client.offsets import bounds
from magicbyte.cli.mirror_display import Rates, duration_text, line, rows, table
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.encode import Format
from magicbyte.tools.mirror import saving
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.metrics import families
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.saving import Savings
from tools.mirror.pair import ALL, Pair
from tools.mirror.sets import fetched, stored

MIB = 1 << 20


def rates(*noted: tuple[float, dict[str, int]]) -> Rates:
    """Rates of topics of which so many bytes were copied, closed, at some moments."""
    found = Rates()
    for when, sizes in noted:
        found.note({topic: Copied(closed_bytes=size) for topic, size in sizes.items()}, when)
    return found


def test_rates_are_those_of_the_last_seconds() -> None:
    found = rates((0.0, {"a": 0}), (1.0, {"a": 1000}), (2.0, {"a": 1000}), (6.0, {"a": 2000}))
    assert found["a"] == 200.0
    assert found["b"] == 0.0
    assert rates((3.0, {"a": 7}))["a"] == 0.0


def test_topics_that_are_behind_come_first_and_all_are_summed_up() -> None:
    copied = {
        "done": Copied(closed_bytes=MIB),
        "late": Copied(closed_bytes=3 * MIB, opened_bytes=MIB, lag=1200, parked=2),
        "later": Copied(lag=70_000, lost=3),
    }
    found = rows(copied, rates((0.0, dict.fromkeys(copied, 0))), {"late": 90.0, "done": 30.0}, 10)
    assert found == [
        ["later, 3 lost", "0 B", "0 B", "0.0", "70,000", ""],
        ["late, 2 put aside", "3.0 MiB", "1.0 MiB", "0.0", "1,200", "90.0 s"],
        ["done", "1.0 MiB", "0 B", "0.0", "0", "30.0 s"],
        ["all, 2 put aside, 3 lost", "4.0 MiB", "1.0 MiB", "0.0", "71,200", "2 min"],
    ]


def test_as_many_topics_are_shown_as_there_is_room_for() -> None:
    copied = {f"t{at:03}": Copied(lag=at + 1) for at in range(500)}
    found = rows(copied, rates((0.0, dict.fromkeys(copied, 0))), {}, 6)
    assert [each[0] for each in found] == ["t499", "t498", "t497", "t496", "t495", "495 more", "all"]
    moving = rates((0.0, {"t007": 0}), (1.0, {"t007": 1}))
    assert [each[0] for each in rows(dict.fromkeys(copied, Copied()), moving, {}, 3)] == [
        "t007",
        "t000",
        "498 more",
        "all",
    ]


def test_a_single_topic_needs_no_sum() -> None:
    assert [each[0] for each in rows({"a": Copied(lag=1)}, rates((0.0, {"a": 0})), {}, 6)] == ["a"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (99.9, "99.9 s"), (100, "2 min"), (5999, "100 min"), (7200, "2.0 h")]
)
def test_durations_have_a_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_narrow_terminal_cuts_names_and_no_numbers() -> None:
    console = Console(width=70, height=10)
    with console.capture() as drawn:
        console.print(table(rows({"n" * 100: Copied(closed_bytes=MIB, lag=12345)}, rates((0.0, {})), {}, 5), 70))
    text = drawn.get()
    assert "12,345" in text
    assert "1.0 MiB" in text
    assert "nnn… " in text


def test_the_line_at_the_end_tells_what_was_saved_lost_and_put_aside() -> None:
    copied = Copied(closed_sets=2, closed_bytes=2_000_000, opened_sets=1, opened_bytes=10, lost=4, parked=1)
    assert line(copied, 2.0, 12.34) == (
        "1.9 MiB closed in 2 sets, 10 B opened in 1, 1.0 MB/s, 0 offsets behind, about 12.3 s of CPU time saved, "
        "1 put aside, 4 offsets deleted at the source before they were copied"
    )


def test_what_is_saved_follows_from_the_sets_that_were_opened(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two topics the one without a look-up comes first, then the one of which more was copied."""
    pair.fill("large", [Codec.GZIP])
    pair.fill("small", [Codec.GZIP])
    pair.fill("empty", [Codec.GZIP])
    monkeypatch.setattr(saving, "opened", lambda found: (100, 0.25))

    async def work(here: Client, there: Client) -> None:
        await admin.delete_records(here, "empty", 0, 100)
        mirror, savings = Mirror(here, there, ALL), Savings(here)
        await savings.look(mirror.planned, {})
        await mirror.catch_up()
        copied = {"large": Copied(closed_bytes=1000), "small": Copied(closed_bytes=10), "empty": Copied()}
        assert savings.seconds(copied) == {}
        await savings.look(mirror.planned, copied)
        await savings.look(mirror.planned, copied)
        assert savings.seconds(copied) == {"large": 2.5, "small": 0.025}
        monkeypatch.setattr(saving, "opened", lambda found: (300, 0.25))
        await savings.look(mirror.planned, copied)
        assert savings.seconds(copied) == {"large": 1.25, "small": 0.025}
        assert savings.seconds({"small": Copied()}) == {"small": 0.0}

    pair.run(work)


@pytest.mark.parametrize("form", [Format.V0, Format.V1, Format.V2])
def test_opening_costs_what_it_takes_to_decompress_and_compress(form: Format) -> None:
    codecs = [each for each in Codec if form is Format.V2 or each is not Codec.ZSTD]
    sets = {codec: stored(form, codec, 0, 200) for codec in codecs}
    for codec, data in sets.items():
        size, seconds = saving.opened(fetched(data))
        assert (seconds > 0) == (codec is not Codec.NONE)
        assert size == len(data)


def test_prometheus_gets_the_saved_cpu_time() -> None:
    found = families({"a": Copied(), "b": Copied()}, {"a": 7.5})
    (saved,) = (each for each in found if each.name == "magicbyte_mirror_saved_cpu_seconds")
    assert saved.samples == [("", {"topic": "a"}, 7.5)]


def test_the_page_of_the_mirror_has_every_metric() -> None:
    page = (Path(__file__).parents[3] / "docs/commands/mirror-groups.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`magicbyte_mirror_.*?) \|", page, re.MULTILINE)
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    totals = {each.name + "_total" * (each.kind == "counter") for each in families({}, {})}
    assert sorted(documented) == sorted(totals)


def test_a_terminal_shows_a_table_during_the_run_and_a_line_at_the_end(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)
    ours, theirs = pty.openpty()
    arguments = ["mirror", "--from", pair.addresses[0], "--to", pair.addresses[1], "--topics", "topic", "--yes"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
    process = subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while not re.search(rb"topic +[\d.]+ KiB +0 B +0\.0 +0 +0\.0 s", shown):
            shown += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        while b"saved" not in shown.split(b"CPU saved")[-1]:
            shown += os.read(ours, 1 << 16)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"offsets behind" in shown
    last = shown.decode().rsplit("topic: ", 1)[1]
    assert re.match(r"[\d.]+ KiB closed in 20 sets, 0 B opened in 0, [\d.]+ MB/s, 0 offsets behind, about 0\.0 s", last)


def test_looks_are_not_counted_as_sets_that_were_copied(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])

    async def work(here: Client, there: Client) -> None:
        mirror, savings = Mirror(here, there, ALL), Savings(here)
        await mirror.catch_up()
        before = mirror.copied()["topic"]
        await savings.look(mirror.planned, mirror.copied())
        assert savings.seconds(mirror.copied())["topic"] > 0
        assert mirror.copied()["topic"] == before
        assert await bounds(there, "topic", 0) == (0, 100)

    pair.run(work)
