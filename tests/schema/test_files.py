"""The schemas that come with the package, and what loads the compiler."""

import doctest
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import magicbyte.schema
from magicbyte.schema import UnknownMessageError, bundled, load_bundled
from magicbyte.schema.output import stale, write

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_the_schemas_where_they_are_looked_for() -> None:
    """tools/check_wheel.sh looks into a real wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    include = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert include == {"schemas": "magicbyte/schema/bundled"}


def test_an_installed_package_reads_the_schemas_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "Tick.json").write_text(
        '{"type": "data", "name": "Tick", "validVersions": "0", "flexibleVersions": "0+", "fields": []}'
    )
    monkeypatch.setattr("magicbyte.schema.files.INSTALLED", tmp_path)
    assert list(bundled()) == ["Tick"]
    assert load_bundled("Tick").name == "Tick"


def test_every_schema_of_the_package_is_sound_and_named_as_its_file() -> None:
    assert len(bundled()) > 200
    for name in bundled():
        assert load_bundled(name).name == name


def test_an_unknown_message_is_reported_with_a_suggestion() -> None:
    with pytest.raises(UnknownMessageError, match=r"did you mean \"FetchRequest\"\?"):
        load_bundled("FetchReqest")
    with pytest.raises(UnknownMessageError, match=r"there are [0-9]+ messages, from A"):
        load_bundled("zzz")


def test_only_generated_files_of_the_same_kind_are_taken_for_leftovers(tmp_path: Path) -> None:
    made = {"a.py": '"""Generated from A.json.', "b.py": '"""Generated from B.json.', "c.md": "<!-- Generated from C"}
    mine = {"mine.py": "# mine", "notes.md": "# notes"}
    for name, text in {**made, **mine}.items():
        (tmp_path / name).write_text(text)
    assert stale(tmp_path, {"a.py": made["a.py"]}) == ["b.py"]
    assert write(tmp_path, {"d.md": "d"}) == ["c.md", "d.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py", "d.md", "mine.py", "notes.md"]


def test_the_compiler_is_loaded_by_nothing_but_its_commands() -> None:
    script = (
        "import sys, magicbyte, magicbyte.engine.protocol, magicbyte.cli.main, magicbyte.cli.schema;"
        "print([name for name in sys.modules if name.startswith('magicbyte.schema')])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_the_example_of_the_package_runs_as_printed() -> None:
    assert doctest.testmod(magicbyte.schema) == (0, 3)


def test_the_public_names_are_there_and_documented() -> None:
    for name in magicbyte.schema.__all__:
        assert getattr(magicbyte.schema, name).__doc__ or name == "Default"
