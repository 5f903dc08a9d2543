"""Where commands may write: never over an input, and under the final name only what is whole.

The sweep is made from the tree of commands: a parameter that takes a text or a path and is in none of the tables below
fails a test, so that no new output is forgotten.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import golden_data
from cli.builders import commands
from cli.command import run
from magicbyte.cli.options import OutputPath
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files import outputs
from magicbyte.spark.pipeline import config
from magicbyte.spark.writing import parse_write_options
from magicbyte.tools.mirror.log_target import LogTarget

CASE = golden_data.log_case("3.9.1/basic-none")
SEGMENT = f"{0:020}.log"

Place = tuple[str, str]
"""A command and a parameter of it."""

OUTPUTS: dict[Place, list[str]] = {
    ("cat", "output"): ["cat", "INPUT", "-o", "OUTPUT"],
    ("compact", "out"): ["compact", "INPUT", "--topic", "orders", "--out", "OUTPUT"],
    ("retain", "out"): ["retain", "INPUT", "--bytes", "0", "--out", "OUTPUT"],
    ("serve", "overlay"): ["serve", "--dir", "INPUT", "--overlay", "OUTPUT"],
    ("rescue", "work"): ["rescue", "INPUT", "--to", "./rescued", "--work", "OUTPUT"],
    ("rescue", "kraft"): ["rescue", "INPUT", "--to-kraft", "OUTPUT"],
    ("space", "page"): ["space", "INPUT", "--html", "OUTPUT"],
    ("salvage", "out"): ["salvage", "INPUT", "--out", "OUTPUT"],
    ("convert", "out"): ["convert", "INPUT", "--to", "v1", "--out", "OUTPUT"],
    ("rebuild-index", "out"): ["rebuild-index", "INPUT", "--out", "OUTPUT"],
    ("schema generate", "out"): ["schema", "generate", "INPUT", "--out", "OUTPUT"],
    ("tour", "keep"): ["tour", "inventory", "INPUT", "--keep", "OUTPUT"],
    ("tour", "unpack"): ["tour", "INPUT", "--unpack", "OUTPUT"],
    ("migrate check", "html"): ["migrate", "check", "--request-log", "INPUT", "--html", "OUTPUT"],
    ("metadata check", "out"): ["metadata", "check", "INPUT", "--repair", "--out", "OUTPUT"],
    ("metadata export", "out"): ["metadata", "export", "INPUT", "--to-kraft", "OUTPUT"],
    ("pipeline materialize", "to"): ["pipeline", "materialize", "URL", "--to", "OUTPUT"],
}
"""Outputs of commands that read something on this machine, with a command line."""
WITHOUT_INPUTS = {
    ("mirror", "target"), ("mirror", "park"), ("serve", "directory"), ("metadata import", "directory"),
    ("cluster up", "directory"), ("cluster down", "directory"), ("metadata format", "directory"),
}  # fmt: skip
"""Log directories that are written because they are named; the input is a cluster."""
INPUTS = {
    *((name, "paths") for name in ("tour", "inventory", "cat", "verify", "salvage", "convert", "rebuild-index")),
    *((name, "paths") for name in ("compact", "retain", "space", "doctor", "schema check")),
    ("metadata format", "password_file"), ("metadata export", "source"), ("metadata export", "logs"),
    ("dump", "segments"), ("dump", "files"), ("diff", "a"), ("diff", "b"), ("plan", "directories"),
    ("schema generate", "directory"), ("schema advise", "message"), ("schema advise", "samples_path"),
    ("schema diff", "old"), ("schema diff", "new"), ("schema size", "message"), ("schema size", "values_path"),
    ("schema show", "message"),
    ("schema size", "proposed_path"), ("serve", "path"), ("metadata export", "directory"), ("metadata show", "path"),
    ("metadata history", "path"), ("metadata diff", "old"), ("metadata diff", "new"), ("metadata check", "paths"),
    ("rescue", "metadata"),
    ("rescue", "backup"), ("pipeline materialize", "url"), ("pipeline run", "file"), ("topics reassign", "path"),
    ("cluster status", "directory"), ("migrate status", "directories"), ("migrate next", "directories"),
    *(
        (f"migrate {name}", each)
        for name in ("check", "status", "next", "apply")
        for each in ("request_logs", "captures", "metrics_ca", "metrics_cert", "metrics_token")
    ),
    *(("migrate canary", each) for each in ("metrics_ca", "metrics_cert", "metrics_token")),
}  # fmt: skip
NO_PLACES = {
    "addresses", "all_groups", "as_", "as_version", "before_offset", "bootstrap", "brokers", "decoder", "dedupe_buffer",
    "delimiters", "min_bytes",
    "delete_retention", "delimiter", "depth", "dialect", "end", "group", "groups", "headers", "http", "ignore",
    "index_interval", "jars", "kafka", "key", "key_decoder_class", "listen", "master", "max_batch_bytes",
    "max_message_bytes", "max_unpacked", "memory", "min_lag", "name", "names", "offsets", "pages", "places", "prefix",
    "cluster_id", "features", "level", "release", "roles", "standalone", "static", "users",
    "retention_bytes", "retention_ms", "segment_bytes", "settings", "since", "source", "states", "target", "template",
    "text", "throttle", "to_datetime", "topic", "topics", "until", "value_decoder_class", "version", "x_settings",
    "zookeeper", "transactional_id", "broker_settings",
}  # fmt: skip
"""Names of parameters that are texts, and neither a file nor a folder."""


READ_EVERYWHERE = {"config"}
"""Names of parameters that are files which every command with them reads."""


def may_be_a_place(parameter: click.Parameter) -> bool:
    if getattr(parameter, "is_flag", False) or parameter.name.startswith("kcat_"):
        return False
    return isinstance(parameter.type, click.types.StringParamType | click.Path | click.File | OutputPath)


def test_every_parameter_that_may_be_a_path_is_known_as_input_output_or_neither() -> None:
    known = OUTPUTS.keys() | WITHOUT_INPUTS | INPUTS
    found = {(name, each.name) for name, command in commands() for each in command.params if may_be_a_place(each)}
    assert not {place for place in found - known if place[1] not in NO_PLACES | READ_EVERYWHERE}, (
        "input, output, or neither?"
    )
    assert not known - found, "these are no parameters"


def test_every_output_has_the_type_that_refuses_urls_of_stores() -> None:
    found = {
        (name, each.name)
        for name, command in commands()
        for each in command.params
        if isinstance(each.type, OutputPath)
    }
    assert found == OUTPUTS.keys() | {("mirror", "park")}


def test_the_outputs_of_a_pipeline_are_known() -> None:
    assert set(config._SINK) == {"path", "bootstrap", "transactional-id", "group", "scratch"}
    assert set(config._TOP) == {"on-damage", "report", "max-batch-bytes", "now", "source", "stage", "sink", "spark"}
    paths = {name for options in config.STAGES.values() for name in options if "path" in options[name].expected}
    assert paths == {"with"}


# ---- the sweep


def state(folder: Path) -> dict[str, Any]:
    """All names below a folder with their bytes and times of change, the folder itself included."""
    return {
        str(each.relative_to(folder)): (each.lstat().st_mtime_ns, each.read_bytes() if each.is_file() else None)
        for each in (folder, *folder.rglob("*"))
    }


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """tmp_path/archive/logs/orders-0, and beside it links to all of them."""
    folder = tmp_path / "archive/logs/orders-0"
    shutil.copytree(CASE.partition_dir(), folder)
    (folder.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 100\n")
    (folder.parent / "Made.json").write_text(
        '{"type": "data", "name": "Made", "validVersions": "0", "flexibleVersions": "none", "fields": []}'
    )
    (tmp_path / "link").symlink_to(folder.parent)
    (tmp_path / "link-to-log").symlink_to(folder / SEGMENT)
    (tmp_path / "hard.log").hardlink_to(folder / SEGMENT)
    (tmp_path / "aside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/orders-0").symlink_to(folder)
    return tmp_path / "archive"


WHERE = {
    "equal": "archive/logs",
    "equal to a partition": "archive/logs/orders-0",
    "inside": "archive/logs/new",
    "inside a partition": "archive/logs/orders-0/new",
    "far inside": "archive/logs/orders-0/a/b/c",
    "above": "archive",
    "far above": ".",
    "through a link": "link",
    "inside, through a link": "link/orders-0/new",
    "by ..": "aside/../archive/logs/orders-0/../new",
    "by a URL": "file://{tmp}/archive/logs/new",
    "by a URL with a host": "file://localhost{tmp}/archive/logs",
    "by a URL with one slash": "file:{tmp}/archive/logs/orders-0",
}
FILES = {
    "the segment": f"archive/logs/orders-0/{SEGMENT}",
    "a link to the segment": "link-to-log",
    "a hard link to the segment": "hard.log",
    "the segment through a link": f"link/orders-0/{SEGMENT}",
    "the segment by ..": f"link/orders-0/../orders-0/{SEGMENT}",
    "the segment by a URL": f"file://{{tmp}}/archive/logs/orders-0/{SEGMENT}",
    "the index": f"archive/logs/orders-0/{0:020}.index",
}
LEVELS = ("archive/logs", "archive/logs/orders-0", f"archive/logs/orders-0/{SEGMENT}")


def placed(tmp_path: Path, place: str) -> str:
    return place.format(tmp=tmp_path) if place.startswith("file:") else str(tmp_path / place)


def refused(arguments: list[str], archive: Path) -> None:
    """Assert that a command line is refused in one line that names an input, and that nothing was changed."""
    before = state(archive.parent)
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), (arguments, result.stderr)
    assert result.stderr.count("\n") == 1, result.stderr
    assert "which is an input" in result.stderr, (arguments, result.stderr)
    assert str(archive) in result.stderr.partition(": expected ")[2]
    assert state(archive.parent) == before


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("place", OUTPUTS, ids=" ".join)
def test_no_command_writes_into_its_input(place: Place, where: str, archive: Path, tmp_path: Path) -> None:
    source = tmp_path / "archive/logs"
    filled = {"INPUT": str(source), "URL": f"file://{source}", "OUTPUT": placed(tmp_path, WHERE[where])}
    refused([filled.get(each, each) for each in OUTPUTS[place]], archive)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("where", FILES)
def test_cat_does_not_write_over_a_file_that_it_reads(where: str, level: str, archive: Path, tmp_path: Path) -> None:
    output = placed(tmp_path, FILES[where])
    for given in (str(tmp_path / level), f"file://{tmp_path / level}"):
        refused(["cat", given, "-o", output], archive)


@pytest.mark.parametrize("command", ["salvage", "convert", "rebuild-index"])
def test_a_link_in_the_output_that_leads_to_an_input_is_refused(command: str, archive: Path, tmp_path: Path) -> None:
    arguments = [command, str(archive / "logs"), "--out", str(tmp_path / "out")]
    refused([*arguments, "--to", "v1"] if command == "convert" else arguments, archive)


def test_an_input_at_a_url_of_this_machine_is_compared_with_the_output(archive: Path, tmp_path: Path) -> None:
    refused(["cat", f"local://{archive}/logs", "-o", str(archive / "logs/new")], archive)


def test_a_file_system_that_ignores_case_is_asked_for_the_identity(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: real(str(path).replace("ARCHIVE", "archive"), **how))
    with pytest.raises(LogDirectoryError, match="which is an input"):
        outputs.refuse_overlap(tmp_path / "ARCHIVE/logs/new", [str(archive / "logs")])


def test_stores_are_compared_by_their_names() -> None:
    inside = "memory://bucket/logs/out", "memory://bucket/./logs", "memory:///bucket/logs", "memory://bucket"
    for output in inside:
        with pytest.raises(LogDirectoryError, match="which is an input"):
            outputs.refuse_overlap(output, ["memory://bucket/logs"])
    outputs.refuse_overlap("memory://bucket/logs2", ["memory://bucket/logs", "/bucket/logs2"])
    outputs.refuse_overlap("memory://bucket", ["memory://bucket/logs"], fills=False)


def test_a_segment_alone_may_have_its_records_beside_it(archive: Path, tmp_path: Path) -> None:
    alone = tmp_path / "downloads"
    alone.mkdir()
    shutil.copy(archive / "logs/orders-0" / SEGMENT, alone)
    assert run("cat", alone / SEGMENT, "-o", alone / "records.txt").exit_code == 0
    assert (alone / "records.txt").read_text() == run("cat", alone / SEGMENT).stdout
    refused_name = run("cat", alone / SEGMENT, "-o", alone / SEGMENT)
    assert refused_name.exit_code == 2


def test_an_output_is_no_url_of_a_store(archive: Path) -> None:
    result = run("cat", archive / "logs", "-o", "memory://x")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "expected a local path" in result.stderr


def test_a_log_directory_of_many_partitions_is_compared_in_a_few_calls_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    stat = os.stat

    def counted(*given: Any, **named: Any) -> os.stat_result:
        nonlocal calls
        calls += 1
        return stat(*given, **named)

    inputs = [str(tmp_path / "logs")]
    for number in range(100):
        folder = tmp_path / f"logs/t-{number}"
        folder.mkdir(parents=True)
        (folder / SEGMENT).touch()
        inputs += [str(folder), str(folder / SEGMENT)]
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "stat", counted)
    outputs.refuse_overlap(tmp_path / "out", inputs)
    assert calls < 3 * len(inputs)


def test_stdout_that_the_shell_sent_into_an_input_is_refused(archive: Path) -> None:
    segment = archive / "logs/orders-0" / SEGMENT
    before = segment.read_bytes()
    with segment.open("ab") as file:
        done = subprocess.run(
            [sys.executable, "-m", "magicbyte", "cat", str(archive / "logs")],
            stdout=file, stderr=subprocess.PIPE, text=True, timeout=240,
        )  # fmt: skip
    assert (done.returncode, segment.read_bytes()) == (2, before)
    assert done.stderr == f"magicbyte: stdout: expected a path outside of {segment}, which is an input\n"


def test_an_output_that_is_a_folder_is_refused_before_anything_is_read(archive: Path, tmp_path: Path) -> None:
    result = run("cat", archive / "logs", "-o", tmp_path / "aside")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"magicbyte: {tmp_path / 'aside'}: expected the name of a file, found a folder\n"
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_hyphen_is_stdout(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "aside")
    assert run("cat", archive / "logs", "-o", "-").stdout_bytes == run("cat", archive / "logs").stdout_bytes
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_partition_folder_is_no_log_directory_to_append_to(archive: Path) -> None:
    before = state(archive)
    with pytest.raises(LogDirectoryError, match="expected a log directory, found a partition folder"):
        LogTarget(archive / "logs/orders-0")
    assert state(archive) == before


def test_a_spark_writer_takes_every_spelling_of_a_file_url(tmp_path: Path) -> None:
    for prefix in ("", "file:", "file://", "file://localhost"):
        assert parse_write_options({"path": f"{prefix}{tmp_path}/logs"}).path == f"{tmp_path}/logs"
