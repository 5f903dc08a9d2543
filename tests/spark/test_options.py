"""Options of the Spark source: what each text means, and what is said of a wrong one. Needs no Spark."""

from pathlib import Path

import pytest

from magicbyte.engine.log.files.reader import Isolation
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect
from magicbyte.spark.options import EARLIEST, LATEST, Bound, OptionError, SourceOptions, parse_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def parse(**options: str) -> SourceOptions:
    return parse_options({"path": "/logs", **options})


def test_without_options_everything_is_read() -> None:
    assert parse() == SourceOptions(paths=("/logs",))


def test_a_path_is_what_it_is_here_also_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk/kept/logs").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/link").symlink_to(tmp_path / "disk/kept/logs")
    monkeypatch.chdir(tmp_path / "here")
    (whole,) = parse(path="link/..").paths
    assert Path(whole).is_absolute()
    assert Path(whole).samefile(tmp_path / "disk/kept")


def test_names_do_not_depend_on_case_nor_do_words() -> None:
    assert parse_options({"PATH": "/logs", "includeheaders": "TRUE", "MODE": "Shallow"}) == SourceOptions(
        paths=("/logs",), include_headers=True, mode="shallow"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"path": "/a, /b"},
        {"path": '["/a", "/b"]'},
        {"paths": '["/a", "/b"]'},
    ],
)
def test_several_paths_are_separated_by_commas_or_a_json_list(options: dict[str, str]) -> None:
    assert parse_options(options).paths == ("/a", "/b")


@pytest.mark.parametrize("name", ["a,b", ",a", "a, b", " a", "a ", "[a", "[1, 2]", '["x", "y"]', "a,b,c"])
def test_a_folder_that_exists_is_one_path_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `load(path)` reads the rows of `save(path)`."""
    monkeypatch.chdir(tmp_path)
    for path in (name, str(tmp_path / name), f"file://{tmp_path / name}"):
        (tmp_path / name).mkdir(exist_ok=True)
        (found,) = parse_options({"path": path}).paths
        assert found.removeprefix("file://") == str(tmp_path / name)


@pytest.mark.parametrize("path", ["a,b", "a , b", '["a", "b"]', "a," + "b" * 300, "[" + '"a", ' * 100 + '"b"]'])
def test_a_list_of_folders_is_a_list_also_if_its_text_is_no_valid_path(path: str, tmp_path: Path) -> None:
    assert len(parse_options({"path": path}).paths) in (2, 101)


def test_a_path_with_a_comma_goes_into_a_json_list() -> None:
    assert parse(path='["/a,b"]').paths == ("/a,b",)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"columns": "value, offset"}, "columns", ("value", "offset")),
        ({"assign": '{"a": [0, 1], "b": [0]}'}, "assign", frozenset({A0, A1, B0})),
        ({"subscribe": "a, b"}, "subscribe", frozenset({"a", "b"})),
        ({"subscribePattern": "a.*"}, "pattern", "a.*"),
        ({"minPartitions": "7"}, "min_partitions", 7),
        ({"failOnDataLoss": "false"}, "fail_on_data_loss", False),
        ({"isolation": "read_committed"}, "isolation", Isolation.READ_COMMITTED),
        ({"kafka.isolation.level": "read_committed"}, "isolation", Isolation.READ_COMMITTED),
        ({"dialect": "enriched"}, "dialect", Dialect.ENRICHED),
        ({"maxBatchBytes": "1000"}, "max_batch_bytes", 1000),
        ({"onDamage": "skip"}, "skip_damage", True),
        ({"as": "orders-3"}, "as_", "orders-3"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "start_strategy", "latest"),
        ({"startingOffsets": "earliest"}, "start", Bound(offset=EARLIEST)),
        ({"endingOffsets": "latest"}, "end", Bound(offset=LATEST)),
        ({"startingTimestamp": "1700000000000"}, "start", Bound(timestamp=1_700_000_000_000)),
        ({"endingTimestamp": "5"}, "end", Bound(timestamp=5)),
        (
            {"startingOffsets": '{"a": {"0": 23, "1": -2}}'},
            "starts",
            {A0: Bound(offset=23), A1: Bound(offset=EARLIEST)},
        ),
        ({"endingOffsets": '{"a": {"0": 23, "1": -1}}'}, "ends", {A0: Bound(offset=23), A1: Bound(offset=LATEST)}),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 7}}'}, "starts", {A0: Bound(timestamp=7)}),
        ({"endingOffsetsByTimestamp": '{"b": {"0": 7}}'}, "ends", {B0: Bound(timestamp=7)}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",  # a set has no order of its own
)
def test_an_option_is_understood(given: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse(**given), field) == value


def test_a_timestamp_for_all_wins_over_those_by_partition_and_these_over_offsets() -> None:
    by_timestamp, offsets = '{"a": {"0": 7}}', '{"a": {"0": 3}}'
    all_three = parse(startingTimestamp="9", startingOffsetsByTimestamp=by_timestamp, startingOffsets=offsets)
    assert (all_three.start, all_three.starts) == (Bound(timestamp=9), {})
    assert parse(endingOffsetsByTimestamp=by_timestamp, endingOffsets=offsets).ends == {A0: Bound(timestamp=7)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribes": "a"}, "unknown option 'subscribes': expected one of as, assign, "),
        ({"path": ""}, "no path: give the option path"),
        ({"path": "[]"}, "no path: give the option path"),
        ({"subscribe": " , "}, "option subscribe: expected some names, separated by commas"),
        ({"columns": ""}, "option columns: expected some names, separated by commas"),
        ({"assign": "{}"}, 'option assign: expected {"topic": [0, 1]}'),
        ({"assign": '{"a": []}'}, 'option assign: expected {"topic": [0, 1]}'),
        ({"maxBatchBytes": "0"}, "option maxBatchBytes: expected a number, 1 or more, found '0'"),
        ({"path": "[1"}, "option path: expected a JSON list, found '[1'"),
        ({"assign": '{"a": [0]}', "subscribe": "a"}, "only one of assign, subscribe and subscribePattern"),
        ({"assign": "a"}, "option assign: expected a JSON object, found 'a'"),
        ({"assign": '{"a": 0}'}, 'option assign: expected {"topic": [0, 1]}'),
        ({"subscribePattern": "("}, "option subscribePattern: expected a regular expression"),
        ({"mode": "deepest"}, "option mode: expected deep or shallow, found 'deepest'"),
        ({"includeHeaders": "yes"}, "option includeHeaders: expected true or false, found 'yes'"),
        ({"minPartitions": "-1"}, "option minPartitions: expected a number, 0 or more, found '-1'"),
        ({"isolation": "serializable"}, "option isolation: expected read_uncommitted or read_committed"),
        ({"dialect": "magic"}, "option dialect: expected kafka or enriched, found 'magic'"),
        ({"onDamage": "ignore"}, "option onDamage: expected stop or skip, found 'ignore'"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest for a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest for a batch query"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "option startingOffsets: expected an offset or -2 for a-0, found -1"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "option endingOffsets: expected an offset or -1 for a-0, found -2"),
        ({"startingOffsets": '{"a": 3}'}, 'option startingOffsets: expected {"topic": {"0": 23}}'),
        ({"startingOffsets": '{"a": {"x": 3}}'}, 'option startingOffsets: expected {"topic": {"0": 23}}'),
        ({"startingTimestamp": "today"}, "option startingTimestamp: expected a number, 0 or more, found 'today'"),
        ({"mode": "shallow", "isolation": "read_committed"}, "isolation=read_committed is for records"),
    ],
    ids=str,
)
def test_a_wrong_option_is_one_line_that_says_what_was_expected(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(**given)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
