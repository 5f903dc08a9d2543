"""The commands and the Python of the documents run as printed; their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from cli.command import run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


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


@pytest.mark.parametrize(
    "page", ["convert.md", "diff.md", "rebuild-index.md", "verify.md", "salvage.md", "retain.md", "compact.md"]
)
def test_the_commands_and_the_python_of_a_page_work_as_printed(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for line in (line for block in blocks(text, "sh") for line in block.splitlines()):
        command, _, remark = line.partition("#")
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == ("status 1" in remark), (line, result.stderr)
    (script,) = blocks(text, "python")
    exec(compile(script, page, "exec"), {})


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
