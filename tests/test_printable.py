"""What is safe to show stays, and everything else is an escape."""

import unicodedata

from magicbyte.printable import printable, printable_label, printable_text

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
