"""A pipeline's file: what it may say, and what is refused, with the line."""

import re
from pathlib import Path

import pytest

from magicbyte.engine.records.layout import Dialect
from magicbyte.spark.pipeline.config import STAGES, PipelineError, line_of, load

WHOLE = """\
now = 2023-11-14T22:13:20Z
on-damage = "salvage"
report = "told"
max-batch-bytes = "1MiB"

[source]
path = ["logs", "s3://bucket/logs"]
topics = ["orders", "clicks-*"]
partitions = [0, 3]
dialect = "enriched"

[[stage]]
do = "verify"
depth = "deep"

[[stage]]
do = "convert"
format = "v2"
codec = "zstd"

[[stage]]
do = "compact"
topics = ["clicks-*"]
delete-retention = "7d"

[sink]
path = "out"

[spark]
"spark.executor.memory" = "2g"
"spark.task.cpus" = 1
"spark.speculation" = true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "nightly.toml"
    path.write_text(text)
    return path


def test_a_file_says_sources_stages_sink_and_settings(tmp_path: Path) -> None:
    found = load(written(tmp_path, WHOLE))
    (source,) = found.sources
    assert source.paths == (str(tmp_path / "logs"), "s3://bucket/logs")
    assert (source.topics, source.partitions, source.dialect) == (("orders", "clicks-*"), (0, 3), Dialect.ENRICHED)
    assert [stage.do for stage in found.stages] == ["verify", "convert", "compact"]
    assert found.stages[2].options["delete-retention"] == 7 * 86_400_000
    assert found.stages[2].options["dedupe-buffer"] == 128 << 20, "a default"
    assert found.stages[2].applies_to("clicks-eu")
    assert not found.stages[2].applies_to("orders")
    assert (found.sink, found.report, found.name) == (tmp_path / "out", tmp_path / "told", "nightly")
    assert (found.on_damage, found.max_batch_bytes) == ("salvage", 1 << 20)
    assert found.now_ms == 1_700_000_000_000
    assert found.spark == {"spark.executor.memory": "2g", "spark.task.cpus": "1", "spark.speculation": "true"}


def test_paths_are_whole_ones_since_workers_have_other_current_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, WHOLE + '[[stage]]\ndo = "compare"\nwith = "else"\n')
    monkeypatch.chdir(tmp_path)
    found = load(Path("nightly.toml"))
    assert found.sources[0].paths[0] == str(tmp_path / "logs")
    assert (found.sink, found.report) == (tmp_path / "out", tmp_path / "told")
    assert found.stages[-1].options["with"] == str(tmp_path / "else")


SOURCE = '[source]\npath = "logs"\n'
SINK = '[sink]\npath = "out"\n'
REFUSED = {
    "an unknown table": (SOURCE + "[stages]\n", 3, "stages: expected one of on-damage"),
    "an unknown key of a source": (SOURCE + 'topic = "a"\n', 3, "topic: expected one of path, topics"),
    "an unknown stage": (SOURCE + '[[stage]]\n\ndo = "sort"\n', 5, "do: expected one of inventory"),
    "a stage without a name": (SOURCE + '[[stage]]\ndepth = "deep"\n', 3, "do: expected one of inventory"),
    "an unknown option": (
        SOURCE + '[[stage]]\ndo = "verify"\n[[stage]]\ndo = "digest"\ndeep = true\n', 7, "deep: expected one of do"
    ),
    "a value that cannot be": (
        SOURCE + SINK + '[[stage]]\ndo = "convert"\nformat = "v3"\n', 7, "format: expected 'v0' or 'v1'"
    ),
    "a value of several lines": (SOURCE + "topics = [\n  'a',\n\n  7,\n]\npartitions = [1]\n", 7, "topics: expected"),
    "an option that is missing": (SOURCE + SINK + '[[stage]]\ndo = "convert"\n', 5, "format: expected 'v0' or 'v1'"),
    "a day is no time": ("now = 2023-11-14\n" + SOURCE, 1, "now: expected a date and time"),
    "no source": (SINK, None, r"source: expected a table \[source\]"),
    "a source without a path": ("[source]\ntopics = ['a']\n", 1, "source: expected a path or a bootstrap"),
    "nothing to do": (SOURCE, None, "stage: expected a"),
    "two sinks": (SOURCE + "[[sink]]\npath = 'a'\n[[sink]]\npath = 'b'\n", 3, "sink: expected one table"),
    "a stage that writes, without a sink": (SOURCE + '[[stage]]\ndo = "compact"\n', 4, r"do: expected a \[sink\]"),
    "tables without a sink": (SOURCE + '[[stage]]\ndo = "records"\n', 4, r"do: expected a \[sink\]"),
    "a comparison behind what removes records": (
        SOURCE + SINK + '[[stage]]\ndo = "retain"\nbytes = 10\n[[stage]]\ndo = "compare"\n', 9, "compare `with`"
    ),
    "a stage behind records": (
        SOURCE + SINK + '[[stage]]\ndo = "records"\n[[stage]]\ndo = "digest"\n', 8, "no stage after `records`"
    ),
    "retention without a limit": (SOURCE + SINK + '[[stage]]\ndo = "retain"\n', 6, "a limit: older-than"),
    "a filter without a limit": (SOURCE + SINK + '[[stage]]\ndo = "filter"\n', 6, "a limit: since"),
    "a codec that the format does not know": (
        SOURCE + SINK + '[[stage]]\ndo = "convert"\nformat = "v0"\ncodec = "zstd"\n', 6, "a codec that the format"
    ),
    "a Kafka that does not know the format": (
        SOURCE + SINK + '[[stage]]\ndo = "convert"\nformat = "v2"\nkafka = "0.10.2.2"\n', 6, "expected 0.11 or later"
    ),
    "no Kafka version": (SOURCE + SINK + '[[stage]]\ndo = "salvage"\nkafka = "new"\n', 7, "a Kafka version"),
    "scratch for a folder": (SOURCE + '[sink]\npath = "a"\nscratch = "b"\n', 5, "scratch: expected the URL of a store"),
    "an unquoted setting": (SOURCE + SINK + "[spark]\nspark.speculation = true\n", 6, "a setting of Spark, quoted"),
    "a segment that no index reaches through": (
        SOURCE + SINK + '[[stage]]\ndo = "merge"\nsegment-bytes = "2GiB"\n', 7, "at most 2147483647 bytes"
    ),
    "retention that only says how": (
        SOURCE + SINK + '[[stage]]\ndo = "retain"\nhead-truncation = true\nkafka = "3.9"\n', 6, "a limit: older-than"
    ),
    "offsets that no record has": (
        SOURCE + SINK + '[[stage]]\ndo = "filter"\nfrom-offset = 5\nto-offset = 5\n', 8, "more than `from-offset`"
    ),
    "times that no record has": (
        SOURCE + SINK + '[[stage]]\ndo = "filter"\nuntil = 2023-01-01T00:00:00Z\nsince = 2024-01-01T00:00:00Z\n', 7,
        "until: expected more than `since`"
    ),
    "salvage without a place for it": (
        'on-damage = "salvage"\n' + SOURCE + '[[stage]]\ndo = "verify"\n', 1, r"on-damage: expected a \[sink\]"
    ),
    "a master in the file": (SOURCE + SINK + '[spark]\n"spark.master" = "local"\n', 6, "the option --master"),
    "a setting of something else": (SOURCE + SINK + '[spark]\n"hadoop.a" = 1\n', 6, "hadoop.a: expected a setting"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_the_line(tmp_path: Path, name: str) -> None:
    text, line, words = REFUSED[name]
    path = written(tmp_path, text)
    with pytest.raises(PipelineError, match=words) as raised:
        load(path)
    where = f"{path}:{line}: " if line is not None else f"{path}: "
    assert str(raised.value).startswith(where)


def test_a_limit_may_be_zero(tmp_path: Path) -> None:
    stages = '[[stage]]\ndo = "retain"\nolder-than = "0s"\n[[stage]]\ndo = "filter"\nfrom-offset = 0\n'
    found = load(written(tmp_path, SOURCE + SINK + stages))
    assert [each.options.get("older-than", each.options.get("from-offset")) for each in found.stages] == [0, 0]


def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="line 2"):
        load(written(tmp_path, "[source]\npath = \n"))


def test_a_line_is_found_whatever_stands_around_the_key() -> None:
    text = 'a = """\nb = 1\n"""\n[[t]]\nx = 1 # y = 2\n[[t]]\n"y" = {z = 1}\n[t.u]\nv = [\n1,\n2]\n'
    assert line_of(text, ("a",)) == 3
    assert line_of(text, ("b",)) is None
    assert line_of(text, ("t", 0, "x")) == 5
    assert line_of(text, ("t", 1)) == 6
    assert line_of(text, ("t", 1, "y", "z")) == 7
    assert line_of(text, ("t", 1, "u", "v")) == 11


def test_every_default_is_a_value_that_may_be_given() -> None:
    for do, options in STAGES.items():
        for name, option in options.items():
            if isinstance(option.default, (bool, str)):
                assert option.read(option.default) == option.default, (do, name)


def test_the_file_in_the_document_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/spark/pipeline.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml nightly.toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = load(written(tmp_path, example))
    assert [stage.do for stage in found.stages] == ["verify", "convert", "compare", "compact"]
    for do, options in STAGES.items():
        assert f"`{do}`" in page
        assert all(f"`{name}`" in page for name in options), do


def test_a_sink_may_be_in_a_store_and_its_files_are_made_in_a_scratch_folder(tmp_path: Path) -> None:
    given = load(written(tmp_path, SOURCE + '[sink]\npath = "s3://a/b/"\nscratch = "shared"\n'))
    assert (given.sink, given.scratch) == ("s3://a/b", tmp_path / "shared")
