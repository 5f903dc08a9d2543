import pytest

from magicbyte.schema import Versions


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [("0", 0, 0), ("3-7", 3, 7), ("4+", 4, 32767), (" 0-1 ", 0, 1), ("32767", 32767, 32767)],
)
def test_a_range_is_read_as_it_is_written(text: str, lowest: int, highest: int) -> None:
    assert Versions.parse(text) == Versions(lowest, highest)


@pytest.mark.parametrize("text", ["", "+", "-1", "1-", "5-3", "a", "1.0", "32768", "0-32768", "1 +", "1+2", "N+", "١"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"version"):
        Versions.parse(text)


def test_none_has_no_version() -> None:
    none = Versions.parse("none")
    assert none is Versions.NONE
    assert none.is_empty
    assert not none.open_ended
    assert 0 not in none
    assert list(none) == []


@pytest.mark.parametrize("text", ["none", "0", "3-7", "4+"])
def test_a_range_is_written_as_it_is_read(text: str) -> None:
    assert str(Versions.parse(text)) == text


@pytest.mark.parametrize(
    ("one", "other", "both"), [("0-5", "3+", "3-5"), ("0-2", "3+", "none"), ("none", "0+", "none"), ("2", "0+", "2")]
)
def test_the_versions_of_two_ranges(one: str, other: str, both: str) -> None:
    assert Versions.parse(one) & Versions.parse(other) == Versions.parse(both)
    assert Versions.parse(other) & Versions.parse(one) == Versions.parse(both)


@pytest.mark.parametrize(
    ("inner", "outer", "is_subset"),
    [("none", "3", True), ("none", "none", True), ("1-2", "0+", True), ("0+", "1+", False), ("3", "none", False)],
)
def test_a_range_inside_another(inner: str, outer: str, is_subset: bool) -> None:
    assert Versions.parse(inner).issubset(Versions.parse(outer)) is is_subset


@pytest.mark.parametrize(
    ("whole", "parts", "left"),
    [
        ("0+", ["0-3", "5+"], ["4"]),
        ("0+", ["0-9", "10-11"], ["12+"]),
        ("0+", ["10+", "0-9"], []),
        ("1-4", ["0+"], []),
        ("1-4", ["none", "9"], ["1-4"]),
        ("0-9", ["2-7", "3-4"], ["0-1", "8-9"]),
    ],
)
def test_parts_can_be_subtracted(whole: str, parts: list[str], left: list[str]) -> None:
    assert [str(each) for each in Versions.parse(whole).without(map(Versions.parse, parts))] == left
