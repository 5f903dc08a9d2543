"""docs/schema/README.md: its files, commands and Python, in their order and with the outputs printed."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.schema import ChangeKind

PAGE = Path(__file__).parents[2] / "docs" / "schema" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tutorial_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    blocks = re.findall(r"^```(json|console|pycon) ?(\S*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _, _ in blocks} == {"json", "console", "pycon"}
    names: dict[str, object] = {}
    try:
        for kind, name, text in blocks:
            if kind == "json":
                Path(name).parent.mkdir(exist_ok=True)
                Path(name).write_text(text, encoding="utf-8")
            elif kind == "console":
                assert printed(text) == text
            else:
                example = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
                runner = doctest.DocTestRunner(verbose=False)
                assert runner.run(example, clear_globs=False).failed == 0
                names = example.globs
    finally:
        for module in ("meters", "meters.reading"):
            sys.modules.pop(module, None)


def printed(commands: str) -> str:
    """Return what a terminal shows when the commands of a block are typed."""
    shown = []
    for line in commands.splitlines():
        if line.startswith("$ "):
            result = run(*shlex.split(line)[2:])
            failed = "error" in result.stdout.split("no errors")[0] or "incompatible:" in result.stdout
            assert result.exit_code == int(failed), line
            shown += [line, *result.stdout.splitlines(), *result.stderr.splitlines()]
    return "\n".join([*shown, ""])


def test_every_change_is_in_the_table() -> None:
    for kind in ChangeKind:
        assert re.search(rf"^\| .*`{kind}`.* \|", TEXT, re.MULTILINE), kind
