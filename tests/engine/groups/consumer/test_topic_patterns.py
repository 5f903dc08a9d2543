"""Patterns of topic names: Python's own matcher agrees where both have the syntax, and hostile ones stay cheap."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import InvalidRegularExpressionError
from magicbyte.engine.groups.consumer.topic_patterns import TopicPattern

NAMES = ["", "t", "topic", "topic-1", "topic_2", "TOPIC", "a.b", "aab", "abab", "7", "x" * 249]


@pytest.mark.parametrize(
    "pattern",
    [
        "topic",
        "top.*",
        ".*",
        "t|topic",
        "(?:to)pic(-|_)[0-9]",
        "topic[^a-z]\\d",
        "(a|b)+",
        "a{2}b",
        "(ab){1,2}",
        "x{249}",
        "x{0,3}",
        "^topic$",
        "\\Atopic\\z",
        "[[:alpha:]]+",
        "[^[:digit:]]",
        "a\\.b",
        "\\x61\\x{61}b",
        "\\Qa.b\\E",
        "(?i)topic",
        "(?i:TO)pic",
        "\\btopic\\b.*",
        "top\\Bic",
        "[\\w.]+",
        "\\D",
        "(?P<name>t)opic",
        "(?<name>t)opic",
        "t.*?c",
        "",
        "()*",
        "(a*)*b",
        "[a-c]+b",
        "[]a]ab",
        "[-a]ab",
        "a{,2}b",
        "\\141ab",
        "\\W",
        "(?s-i:t)opic",
        "t(?i)OPIC",
        "[^-]",
    ],
)
def test_patterns_match_as_those_of_python_do(pattern: str) -> None:
    same = pattern.replace("\\z", "\\Z").replace("(?<", "(?P<").replace("\\x{61}", "a").replace("(?s-i:t)", "(?s:t)")
    same = same.replace("[[:alpha:]]", "[A-Za-z]").replace("[^[:digit:]]", "[^0-9]").replace("\\Qa.b\\E", "a\\.b")
    same = same.replace("t(?i)OPIC", "t(?i:OPIC)").replace("a{,2}b", "a\\{,2\\}b")
    found = TopicPattern(pattern)
    for name in NAMES:
        assert found.matches(name) == (re.fullmatch(same, name) is not None), (pattern, name)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[",
        "a)",
        "*",
        "a**",
        "a{2}{3}",
        "(?=a)",
        "(?<=a)",
        "(?!a)",
        "(a)\\1",
        "\\pL",
        "\\Z",
        "[z-a]",
        "[[:x:]]",
        "a{1001}",
        "a{3,2}",
        "(?q)",
        "\\",
        "(?P<>a)",
        "\\x{110000}",
        "\\xg",
        "(a{100}){100}",
        "(((){1000}){1000}){1000}",
        "(" * 200 + ")" * 200,
        "a" * 1025,
        "(?i-m-s)a",
        "+",
    ],
)
def test_wrong_patterns_and_those_that_need_too_much_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        TopicPattern(pattern)


@given(st.text("ab.|*()[]^-\\d{}0123,?+i:", max_size=30), st.text("ab0-_", max_size=12))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, name: str) -> None:
    try:
        found = TopicPattern(pattern)
    except InvalidRegularExpressionError:
        return
    assert found.matches(name) == found.matches(name)


def test_a_pattern_with_many_states_remembers_a_bounded_number_of_moves() -> None:
    found = TopicPattern("(.*a.{12})*b?")
    for number in range(3000):
        found.matches(f"{number:b}".replace("1", "a").replace("0", "b") * 5)
    assert len(found._moves) <= 10_000 + 249
