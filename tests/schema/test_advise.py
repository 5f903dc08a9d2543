"""Advice from sample values."""

import json
from typing import Any

import pytest

from magicbyte.schema import Advice, SchemaValueError, advise, check, load_bundled

Json = dict[str, Any]


def advice_on(type_: str, *values: int, **keys: object) -> Advice:
    """Return the advice on one field of that type that had these values."""
    field = {"name": "A", "type": type_, "versions": "0+", **keys}
    schema = {"type": "data", "name": "Tick", "validVersions": "0-1", "flexibleVersions": "0+", "fields": [field]}
    message, errors = check(json.dumps(schema))
    assert message is not None, errors
    (found,) = advise(message, 1, [{"a": [value] if type_.startswith("[]") else value} for value in values])
    return found


@pytest.mark.parametrize(
    ("type_", "values", "best", "saved"),
    [
        ("int32", (0, 1, 127), "unpacked32", 9),
        ("int32", (-1, 1, 63), "packed32", 9),
        ("int32", (2**31 - 1, -(2**31)), "fixed32", 0),
        ("int64", (2**40,), "unpacked64", 2),
        ("int64", (-(2**40),), "packed64", 2),
        ("int16", (5,), "unpacked16", 1),
        ("int16", (200,), "fixed16", 0),
        ("[]int32", (5, 6), "unpacked32", 6),
    ],
)
def test_the_encoding_of_the_fewest_bytes_is_advised(
    type_: str, values: tuple[int, ...], best: str, saved: int
) -> None:
    advice = advice_on(type_, *values)
    assert (str(advice.best), advice.saved) == (best, saved)
    assert (advice.values, advice.lowest, advice.highest) == (len(values), min(values), max(values))


@pytest.mark.parametrize(("type_", "growth"), [("int16", 1), ("int32", 1), ("int64", 2), ("[]int64", 2)])
def test_the_largest_cost_of_one_value_is_reported(type_: str, growth: int) -> None:
    assert advice_on(type_, 1).worst_growth == growth


def test_an_encoding_that_is_as_good_stays() -> None:
    assert str(advice_on("int32", 1, encoding={"0": "fixed32", "1+": "packed32"}).best) == "packed32"
    assert advice_on("int32", 1, encoding="packed32").saved == 0
    assert advice_on("int64", 1, encoding="packed16").saved == 0
    assert advice_on("int32", 100, encoding="packed32").saved == 1


def test_what_a_sample_leaves_out_counts_with_its_default() -> None:
    message = load_bundled("MetadataResponse")
    advice = {each.way: each for each in advise(message, 9, [{}, {"controllerId": 3}])}
    assert (advice["ControllerId"].lowest, advice["ControllerId"].highest) == (-1, 3)
    assert "Topics.Partitions.LeaderId" not in advice  # no sample has one


def test_samples_that_do_not_fit_are_refused() -> None:
    message = load_bundled("MetadataResponse")
    with pytest.raises(SchemaValueError, match="controllerId: expected int32"):
        advise(message, 9, [{"controllerId": "3"}])
    with pytest.raises(SchemaValueError, match="version: expected"):
        advise(message, 99, [])
