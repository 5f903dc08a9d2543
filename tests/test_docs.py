"""The commands and the Python of the documents run as printed; their links lead somewhere.

A command that a page has anywhere is run here, or by the test that `ELSEWHERE` names, or `NOT_RUN` says why not.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import cast

import click
import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner

import base_wheel
import magicbyte
from cli.command import run
from magicbyte.cli.main import main
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker
from pages import LEAVES, OFFLINE, ROOT, blocks, commands_of, make_orders, run_python

PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
WITH_BROKER = (
    "commands/topics.md", "commands/consume.md", "commands/produce.md", "commands/groups.md", "commands/configs.md",
    "commands/diff.md", "commands/inventory.md",
)  # fmt: skip
"""Pages whose blocks of `console` are typed beside a broker."""
MIRRORS = ("commands/mirror.md", "commands/mirror-modes.md", "commands/mirror-groups.md")
SERVING = (
    "broker/overview.md",
    "commands/serve.md",
    "python/testing.md",
    "commands/mirror-modes.md",
)
ABOUT_BROKERS = ("broker/overview.md", "python/client.md")
ELSEWHERE = {
    "spark/pipeline.md": "tests/spark/test_pages.py",
    "commands/cluster.md": "tests/interop/test_cluster_command.py",
    "commands/topics-replicas.md": "tests/cli/test_topics_reassign.py",
    "reference/metrics.md": "tests/cli/test_serve.py",
    "commands/plan.md": "tests/cli/test_plan.py",
    "commands/migrate.md": "tests/cli/test_migrate.py",
    "guides/operators.md": "tests/test_guides.py",
    "guides/kafka-4.md": "tests/test_guides.py",
    "commands/transactions.md": "tests/cli/test_transactions.py",
    "schema/README.md": "tests/schema/test_tutorial.py",
    "start/install.md": "tests/test_guides.py",
    "start/ten-minutes.md": "tests/test_guides.py",
    "guides/old-logs.md": "tests/test_guides.py",
    "guides/client-authors.md": "tests/test_guides.py",
    "guides/data-engineers.md": "tests/test_guides.py",
    "guides/protocol-designers.md": "tests/test_guides.py",
}
NOT_RUN = {
    "./magicbyte tour": "sets up an environment; tests/cli/test_tour.py runs the tour",
    "magicbyte tour": "waits for a person at a terminal: tests/cli/test_tour.py runs it",
    "magicbyte warm": "compiles for a while: tests/cli/test_main.py runs it",
    "./test": "runs all of these tests",
    "./magicbyte --help": "sets up an environment",
    ".venv/bin/ruff": "a check of the code, which every push passes",
    ".venv/bin/python": "a check of the code, which every push passes",
    ".venv/bin/lint-imports": "a check of the code, which every push passes",
    "pip install": "changes what is installed",
    "magicbyte metadata": "needs a ZooKeeper: tests/interop/test_handover.py does both",
    "magicbyte pipeline run": "needs Spark and its own logs: tests/spark/test_pipeline.py",
    "magicbyte pipeline materialize": "needs a store of objects: tests/spark/test_pipeline_stores.py has one",
    "magicbyte pipeline cluster": "starts the processes of a Spark cluster, which stay",
}
"""How commands begin that no test runs as printed, and why."""
PROGRAM = r"(?:\./|\.venv/bin/)?(?:magicbyte|pytest|pip|curl|docker|java|python|test|ruff|lint-imports|kcat)"
COMMAND = re.compile(rf"^(?:\$ )?(?:.* \| )?({PROGRAM}\b(?!:).*)")
DATA_KINDS = ("python", "json", "toml", "hex", "mermaid", "pycon", "ini", "properties")


def commands(text: str) -> list[str]:
    """Return the commands in all blocks of a page that may hold some."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for kind, block in found if kind.split(" ")[0] not in DATA_KINDS for line in block.splitlines()]
    return [match[1] for line in lines if (match := COMMAND.match(line))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_run_by_a_test_or_it_is_said_why_not(page: Path) -> None:
    name = str(page.relative_to(ROOT)).removeprefix("docs/")
    if name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[name]).read_text()
        return
    if name in ("README.md", *OFFLINE, *WITH_BROKER, *MIRRORS, *SERVING):
        return
    left = [line for line in commands(page.read_text(encoding="utf-8")) if not line.startswith(tuple(NOT_RUN))]
    assert left == []


PYTHON_ELSEWHERE = {
    "protocol/README.md": "tests/schema/test_pages.py",
    "spark/dataframes.md": "tests/spark/test_pages.py",
    "spark/pipeline.md": "tests/spark/test_pages.py",
    "broker/security.md": "tests/access/security/test_settings.py",  # `ClientSecurity.of`, with certificates
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_all_python_of_a_page_is_run_by_a_test(page: Path) -> None:
    name = str(page.relative_to(ROOT)).removeprefix("docs/")
    if not re.search(r"^```python(?! no-run)", page.read_text(encoding="utf-8"), re.MULTILINE):
        return
    if name in PYTHON_ELSEWHERE:
        assert (ROOT / PYTHON_ELSEWHERE[name]).exists()
        return
    assert name in ("README.md", *OFFLINE, *ABOUT_BROKERS, "python/testing.md", *ELSEWHERE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the README are typed: `tour/logs` is there, as its first one makes it."""
    path = tmp_path_factory.mktemp("readme")
    assert run("tour", "--unpack", path / "tour").exit_code == 0
    return path


def test_the_commands_of_the_readme_work_as_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = [line for block in blocks(README, "sh") for line in block.splitlines()]
    assert len(commands) > 5
    for line in commands[1:]:  # the first one made the folder
        program, *arguments = shlex.split(line)
        assert program == "magicbyte"
        result = run(*arguments)
        assert result.exit_code == (1 if set(arguments) >= {"inventory", "--deep"} else 0), (line, result.stderr)
        assert result.stdout or "-o" in arguments, line


def test_the_python_of_the_readme_works_as_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (script,) = blocks(README, "python")
    exec(compile(script, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("34 1480000030000 b'key-003'")


@pytest.mark.parametrize("page", OFFLINE)
def test_the_commands_and_the_python_of_a_page_work_as_printed(
    page: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tour").symlink_to(folder / "tour")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for words, status in commands_of(text):
        result = run(*words)
        assert result.exit_code == status, (words, result.stderr)
    for script in blocks(text, "python"):
        run_python(script, page)


@pytest.mark.slow
def test_an_example_works_with_the_base_wheel_or_names_the_extra_that_it_needs(folder: Path, tmp_path: Path) -> None:
    """In a Python that finds the base wheel's packages alone."""
    base_wheel.link_base_packages(tmp_path)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/tour").symlink_to(folder / "tour")
    paths = map(str, (tmp_path, ROOT / "src", ROOT / "tests"))
    done = subprocess.run(
        [sys.executable, "-S", ROOT / "tests/base_wheel.py", tmp_path / "pages"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed = [json.loads(line) for line in done.stdout.splitlines()]
    says_how = re.compile(r"needs \w+: pip install 'magicbyte\[\w+\]'$")
    assert [each for each in failed if not says_how.search(each["message"])] == []
    assert failed, "Parquet and Arrow need an extra"


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_a_table_goes_to_another_library_as_printed(
    library: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    monkeypatch.chdir(folder)
    (script,) = blocks((ROOT / "docs/python/api.md").read_text(encoding="utf-8"), f"python {library}")
    run_python(script, "python/api.md")
    last = max(each.offset for each in magicbyte.records("tour/logs/kafka-4.3.1", topic="basic-zstd"))
    assert re.search(rf"\b0\b.*\b{last}\b", capsys.readouterr().out)


ADDRESS = re.compile(r"\b(localhost|old|new|broker-\d):9092(,broker-\d:9092)*")
LOGS = "/var/kafka-logs"


@pytest.mark.parametrize("page", WITH_BROKER)
def test_the_commands_of_a_page_that_need_a_broker_work_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our broker is where the page has an address, its directory is the page's, and what would wait for ever ends."""
    monkeypatch.chdir(tmp_path)
    with Broker(directory=tmp_path / "logs") as broker:
        address = broker.bootstrap_servers
        if page != "commands/topics.md":  # which makes the topic itself
            asyncio.run(make_orders(address))
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        lines = [line for block in blocks(text, "console") for line in block.splitlines()]
        assert lines
        for line in lines:
            if not COMMAND.match(line):
                subprocess.run(["sh", "-c", line], check=True)
                continue
            before, _, command = line.partition("#")[0].rpartition(" | ")
            command, _, source = ADDRESS.sub(address, command).replace(LOGS, str(tmp_path / "logs")).partition(" < ")
            given = subprocess.run(["sh", "-c", before], capture_output=True, check=True).stdout if before else b""
            given += Path(source.strip()).read_bytes() if source else b""
            arguments = shlex.split(command)[1:] + (["-c", "1"] if "until Ctrl-C" in line else [])
            result = CliRunner().invoke(main, arguments, input=given)
            assert (result.exit_code, result.stderr) == (0, ""), line
            assert result.stdout_bytes or not DATA.search(line) or "-o orders" in line, line


SOURCES, TARGETS = re.compile(r"\b(old|a):9092\b"), re.compile(r"\b(new|ours|b):9092\b")
PARKED = "127.0.0.1:9099"


@pytest.mark.parametrize("page", MIRRORS)
def test_the_commands_of_a_page_that_need_two_brokers_work_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that would wait for ever ends when it has caught up."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = [line for line in commands(text) if line.startswith("magicbyte mirror")]
    assert lines
    for line in lines:
        with Broker() as source, Broker() as target:
            asyncio.run(make_orders(source.bootstrap_servers, "billing"))
            assert run("topics", "create", "-b", target.bootstrap_servers, "clicks").exit_code == 0
            if "translate" in line:
                topics = ["--topics", "orders", "--sync-groups", "--until-caught-up", "--yes"]
                ends = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
                assert run("mirror", *ends, *topics).exit_code == 0
            command = SOURCES.sub(source.bootstrap_servers, TARGETS.sub(target.bootstrap_servers, line))
            arguments = shlex.split(command.replace(PARKED, source.bootstrap_servers), comments=True)[1:]
            if not {"--until-caught-up", "--explain", "translate"} & set(arguments):
                arguments.append("--until-caught-up")
            if "translate" not in arguments:
                arguments.append("--yes")  # there is no terminal for the question
            result = run(*arguments)
            assert result.exit_code == 0, (line, result.stderr)


@pytest.mark.parametrize("page", SERVING)
def test_a_broker_that_a_page_starts_listens_and_ends(page: str, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\n")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = [line for line in commands(text) if line.startswith("magicbyte serve")]
    assert lines
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    for line in lines:
        given = re.sub(r"(--listen 127\.0\.0\.1):\d+", r"\1:0", line)
        with_port = given if "--listen" in given or "--config" in given else f"{given} --listen 127.0.0.1:0"
        command = [sys.executable, "-m", "magicbyte", *shlex.split(with_port, comments=True)[1:]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        assert process.stdout is not None
        said = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=240)
        assert (said.startswith("listening on 127.0.0.1:"), process.returncode) == (True, 0), (line, complaints)


def test_the_tests_and_the_command_of_the_page_on_testing_work_as_printed(tmp_path: Path) -> None:
    text = (ROOT / "docs/python/testing.md").read_text(encoding="utf-8")
    *tests, managers = blocks(text, "python")
    (tmp_path / "test_page.py").write_text("\n\n".join(["import kafka\nimport pytest", *tests]))
    (command,) = [line for line in commands(text) if line.startswith("pytest")]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugin = ["-p", "magicbyte.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *plugin],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert re.search(r"\b5 passed", done.stdout), done.stdout
    run_python(managers, "python/testing.md")


@pytest.mark.parametrize("page", ABOUT_BROKERS)
def test_the_python_of_a_page_about_brokers_works_as_printed(page: str) -> None:
    with Broker() as broker:
        names: dict[str, object] = {"AIOKafkaConsumer": AIOKafkaConsumer}
        for script in blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "python"):
            run_python(script, page, names)
        if page == "python/client.md":
            asyncio.run(make_orders(broker.bootstrap_servers))
            copy = cast("Callable[[str, str], Coroutine[None, None, list[bytes | None]]]", names["copy"])
            assert asyncio.run(copy(broker.bootstrap_servers, "orders")) == [b"value"] * 120
            for topic in ("input", "output"):
                assert run("topics", "create", "-b", broker.bootstrap_servers, topic).exit_code == 0
            carry_over = cast("Callable[[str, list[Record], int], Coroutine[None, None, None]]", names["carry_over"])
            asyncio.run(carry_over(broker.bootstrap_servers, [Record(0, -1, 0, None, b"carried")], 1))
            assert asyncio.run(copy(broker.bootstrap_servers, "output")) == [b"carried"]
            double = cast("Callable[[str, str, str], Coroutine[None, None, None]]", names["double"])
            asyncio.run(double(broker.bootstrap_servers, "output", "output"))
            assert asyncio.run(copy(broker.bootstrap_servers, "output")) == [b"carried"] * 3


PAGE_OF = {("topics", "elect"): "topics-replicas", ("topics", "reassign"): "topics-replicas"}
"""The page with the options of a command, where that is not the page of its first word."""
SHAPED = {words[0] for words in LEAVES}


@pytest.mark.parametrize("words", [each for each in LEAVES if each[0] in SHAPED], ids=" ".join)
def test_the_page_of_a_command_has_all_of_its_options(words: tuple[str, ...]) -> None:
    text = (ROOT / f"docs/commands/{PAGE_OF.get(words, words[0])}.md").read_text(encoding="utf-8")
    options = [each for each in LEAVES[words].params if isinstance(each, click.Option) and not each.hidden]
    names = [option for each in options for option in (*each.opts, *each.secondary_opts)]
    # The page about the replicas of topics shares the options of the connection with the page of the first word.
    shared = text + (ROOT / f"docs/commands/{words[0]}.md").read_text(encoding="utf-8")
    assert [option for option in names if not re.search(rf"`{re.escape(option)}[`, =]", shared)] == []


@pytest.mark.parametrize("name", sorted(SHAPED))
def test_the_page_of_a_command_has_the_shape_of_all_such_pages(name: str) -> None:
    text = (ROOT / f"docs/commands/{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    assert headings[0] == f"magicbyte {name}"
    assert "Options" in headings
    assert headings[-2:] == ["Exit status", "Limits"]
    assert text.index("```") < text.index("## Options"), "examples come first"
    index = (ROOT / "docs/commands/README.md").read_text(encoding="utf-8")
    assert f"({name}.md)" in index


DATA = re.compile(r"magicbyte (consume|cat|inventory|diff|\w+ (list|describe))")


def test_the_readme_begins_with_the_two_commands() -> None:
    assert [line.split("#")[0].strip() for line in blocks(README, "sh no-run")[0].splitlines()] == [
        "./magicbyte tour",
        "./test",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
