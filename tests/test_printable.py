"""What is safe to show stays, and everything else is an escape."""

import io
import logging
import re
import unicodedata
from pathlib import Path

from magicbyte.engine.printable import logger, printable, printable_label, printable_text

UNSAFE = {"Cc", "Zl", "Zp", "Cs"}
TURNS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def test_controls_line_ends_and_what_turns_the_writing_are_escaped() -> None:
    assert printable("a\x1b[2J\x07\r\nb\t\x7f\x9b\u2028\u202e\udc80") == (
        "a\\x1b[2J\\x07\\r\\nb\\t\\x7f\\x9b\\u2028\\u202e\\udc80"
    )
    assert printable_text("a\tb\nc\x1b") == "a\tb\nc\\x1b"


def test_no_character_that_is_not_safe_gets_through() -> None:
    for code in (*range(0x3000), *range(0xD7F0, 0x10000), *range(0xE0000, 0xE0100)):
        shown = printable(chr(code))
        if unicodedata.category(chr(code)) in UNSAFE or unicodedata.bidirectional(chr(code)) in TURNS:
            assert shown.isascii(), hex(code)
            assert shown.isprintable(), hex(code)


def test_text_of_every_writing_stays_as_it_is() -> None:
    for text in ("orders", "ключ", "注文　一覧", "می‌خواهم", "👩‍👩‍👧", "naïve\u00a0text", "c:\\logs"):
        assert printable(text) == text


def test_different_texts_are_different_labels() -> None:
    assert printable_label("a\x1b") != printable_label("a\\x1b")


def test_lines_of_the_log_are_safe_with_the_formatter_of_any_application() -> None:
    written, ours = io.StringIO(), logger("magicbyte.of_this_test")
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(message)s"))
    ours.addHandler(handler)
    hostile = "\x1b[2J\r\nFORGED \u202e"
    try:
        ours.error("client %s, %r: %s, %d and %5.1f%%", hostile, [hostile], ValueError(hostile), 7, 2.5)
        ours.error(f"client {hostile}")
        try:
            raise ValueError(hostile)
        except ValueError:
            ours.exception("failed")
    finally:
        ours.removeHandler(handler)
    first, second, third, *others = written.getvalue().split("\n")[:-1]
    shown = "\\x1b[2J\\r\\nFORGED \\u202e"
    assert first == f"client {shown}, ['{shown}']: {shown}, 7 and   2.5%"
    assert second == f"client {shown}"
    assert third == "failed"
    assert others[0] == "    Traceback (most recent call last):"
    assert others[-1].startswith("    ")
    assert all(each.startswith("    ") for each in others)
    assert all(printable(line) == line for line in written.getvalue().splitlines())


def test_every_module_has_its_logger_from_here() -> None:
    sources = Path(__file__).resolve().parents[1] / "src" / "magicbyte"
    found = [path.name for path in sources.rglob("*.py") if re.search(r"\bgetLogger\(", path.read_text())]
    assert found == ["printable.py"]
