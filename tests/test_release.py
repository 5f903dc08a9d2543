"""What a release is made of: the bill of materials, the metadata, the container's command and health check."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType

import click
import pytest
from kafka import KafkaProducer

import magicbyte
from magicbyte.cli.base import Command, CommandGroup
from magicbyte.cli.main import COMMANDS
from magicbyte.cli.mirror_translate import translate
from pages import LEAVES

ROOT = Path(__file__).parent.parent
RECIPE = (ROOT / "container/Containerfile").read_text()


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    return tool("prepare_release")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is changed before a build."""
    for name in ("pyproject.toml", "README.md", "requirements/light.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "man").mkdir()
    (tmp_path / "man/magicbyte-cat.1").touch()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.delenv("PROJECT_URL", raising=False)
    return tmp_path


def test_the_bill_of_materials_lists_what_the_base_installs(prepare: ModuleType, tree: Path) -> None:
    prepare.main(tree)
    bill = json.loads((tree / "magicbyte.cdx.json").read_text())
    listed = {each["name"]: each["version"] for each in bill["components"] if each.get("scope") != "excluded"}
    pinned = dict(
        re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / "requirements/light.txt").read_text(), re.MULTILINE)
    )
    del pinned["kazoo"]  # of an extra
    assert listed == pinned
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(bill["dependencies"][0]["dependsOn"]) == len(asked)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    wheel = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["sbom-files"] == ["magicbyte.cdx.json"]
    assert wheel["shared-data"] == {"man/magicbyte-cat.1": "share/man/man1/magicbyte-cat.1"}


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The man pages, by what they explain, as roff prints them: without its escapes."""
    folder = tmp_path_factory.mktemp("man")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("SOURCE_DATE_EPOCH", raising=False)  # which a packager's build sets
        tool("man_pages").write(folder)
    signs = {"\\-": "-", "\\(ga": "`", "\\(aq": "'", "\\&": "", "\\[u2026]": "…", "\\e": "\\"}
    found = {each.stem: each.read_text() for each in folder.iterdir()}
    for sign, text in signs.items():
        found = {name: page.replace(sign, text) for name, page in found.items()}
    return found


def test_each_command_has_a_man_page_and_the_programs_page_lists_it(manual: dict[str, str]) -> None:
    assert manual.keys() == {"magicbyte", *(f"magicbyte-{name}" for name in COMMANDS)}
    for name, text in COMMANDS.items():
        assert f".TP\n.B magicbyte-{name}(1)\n{text}\n" in manual["magicbyte"]
        assert manual[f"magicbyte-{name}"].startswith(f'.TH "MAGICBYTE-{name.upper()}" "1" "1970-01-01"')


def test_each_option_and_example_of_each_command_is_on_its_man_page(manual: dict[str, str]) -> None:
    for words, command in {**LEAVES, ("mirror", "translate"): translate}.items():
        page = manual[f"magicbyte-{words[0]}"]
        if len(words) > 1:
            page = page.split(f".SH MAGICBYTE {' '.join(words).upper()}\n")[1].partition("\n.SH ")[0]
        context = click.Context(command, info_name=" ".join(words))
        for each in command.get_params(context):
            record = each.get_help_record(context)
            if isinstance(each, click.Option) and record is not None:
                assert f".TP\n.B {record[0]}\n{' '.join(record[1].split())}\n" in f"{page}\n", (words, record)
        assert isinstance(command, Command | CommandGroup)
        if isinstance(command, Command):
            assert all(f"\n{line}\n" in f"{page}\n" for line in command.examples)


def test_no_line_of_a_man_page_begins_with_a_request_that_roff_does_not_have(manual: dict[str, str]) -> None:
    lines = [line for page in manual.values() for line in page.splitlines() if line.startswith((".", "'"))]
    assert {line.split()[0] for line in lines} <= {".TH", ".SH", ".SS", ".TP", ".B", ".PP", ".nf", ".fi"}


def test_without_an_address_no_link_changes(prepare: ModuleType, tree: Path) -> None:
    prepare.main(tree)
    assert (tree / "README.md").read_text() == (ROOT / "README.md").read_text()
    assert "urls" not in tomllib.loads((tree / "pyproject.toml").read_text())["project"]


def test_with_an_address_every_link_leads_there(
    prepare: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECT_URL", "https://example.org/magicbyte/")
    prepare.main(tree)
    links = re.findall(r"\]\(([^)]+)\)", (tree / "README.md").read_text())
    assert links
    assert all(re.match(r"[a-z]+:|#", link) for link in links), links
    assert "https://example.org/magicbyte/raw/main/docs/images/inventory.svg" in links
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Issues"] == "https://example.org/magicbyte/issues"
    assert project["scripts"]  # the table after it is still read


def test_the_container_is_not_root_and_compiles_nothing() -> None:
    last = RECIPE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (.+)$", last, re.MULTILINE)
    assert user.isdecimal()  # a name cannot be checked by an orchestrator that wants no root
    assert int(user) > 0
    assert not re.search(r"^(RUN|COPY|ADD) ", last.partition(f"USER {user}")[2], re.MULTILINE)
    assert f"--uid {user} --gid {user} " in last  # whatever groups the base has
    assert "--only-binary=:all:" in RECIPE
    assert "--require-hashes" in RECIPE


def test_the_container_gets_signals_itself_and_keeps_its_logs_in_a_volume() -> None:
    """A command in the form of a shell would be the shell's child, which SIGTERM does not reach."""
    last = RECIPE.rpartition("\nFROM ")[2]
    for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        (given,) = re.findall(rf"^{word} ((?:.*\\\n)*.*)$", last, re.MULTILINE)
        assert json.loads(given[given.index("[") :]), word
    assert "STOPSIGNAL SIGTERM" in last.splitlines()
    (volume,) = re.findall(r"^VOLUME (.+)$", last, re.MULTILINE)
    arguments = json.loads(re.findall(r"^CMD (\[.*\])$", last, re.MULTILINE)[0])
    assert Path(arguments[arguments.index("--dir") + 1]).is_relative_to(volume)
    assert f"-o magicbyte -g magicbyte {volume}" in last


def test_the_pages_of_the_container_are_not_open_to_others_without_a_token() -> None:
    arguments = json.loads(re.findall(r"^CMD (\[.*\])$", RECIPE, re.MULTILINE)[0])
    pages = arguments[arguments.index("--http") + 1]
    assert pages.startswith("127.0.0.1:")
    assert pages.rpartition(":")[2] not in re.findall(r"^EXPOSE (.*)$", RECIPE, re.MULTILINE)[0].split()


def test_the_container_is_of_releases_that_are_supported_and_the_same_in_both_stages() -> None:
    stages = re.findall(r"^FROM (\S+)", RECIPE, re.MULTILINE)
    assert len(stages) == 2
    assert len(set(stages)) == 1
    python = stages[0].removeprefix("docker.io/library/python:").removesuffix("-slim")
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {python}" in classifiers
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    assert "linux/amd64,linux/arm64" in workflow


def test_the_containers_command_serves_is_healthy_and_ends_with_its_signal(tmp_path: Path) -> None:
    entry, arguments = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", RECIPE, re.MULTILINE)[0]) for word in ("ENTRYPOINT", "CMD")
    )
    check = json.loads(re.findall(r"^ +CMD (\[.*\])$", RECIPE, re.MULTILINE)[0])
    assert (entry, check[0]) == (["magicbyte"], "python")

    def here(text: str) -> str:  # the system chooses the ports
        return re.sub(r":(9092|9644)$", ":0", text.replace("/data", str(tmp_path)).replace("0.0.0.0", "127.0.0.1"))

    served = [*map(here, arguments)]
    process = subprocess.Popen([sys.executable, "-m", "magicbyte", *served], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        listening = re.match(r"listening on localhost:(\d+) ", process.stdout.readline())
        metrics = re.match(r"metrics at http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        assert listening
        assert metrics
        probe = [sys.executable, *(each.replace(":9644", f":{metrics[1]}") for each in check[1:])]
        deadline = time.monotonic() + 120
        while subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode:
            assert process.poll() is None
            assert time.monotonic() < deadline
        with KafkaProducer(bootstrap_servers=f"127.0.0.1:{listening[1]}", api_version=(3, 0)) as producer:
            assert producer.send("orders", b"value").get(60).offset == 0
        assert [each.value for each in magicbyte.records(f"kafka://127.0.0.1:{listening[1]}/orders")] == [b"value"]
        process.send_signal(getattr(signal, re.findall(r"^STOPSIGNAL (\w+)$", RECIPE, re.MULTILINE)[0]))
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["checks.yml", "release.yml"])
def test_what_a_workflow_runs_is_there(name: str) -> None:
    text = (ROOT / ".github/workflows" / name).read_text()
    called = {each.removeprefix("./") for each in re.findall(r"(?:\./test|tools/[a-z_]+\.(?:sh|py))", text)}
    assert called
    assert all((ROOT / each).is_file() for each in called)


def test_a_users_program_is_tried_with_every_extra() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) - {"dev"}
    tried = re.search(r"^for extra in (.*); do$", (ROOT / "tools/check_wheel.sh").read_text(), re.MULTILINE)
    assert tried is not None
    assert set(tried[1].split()) == extras
