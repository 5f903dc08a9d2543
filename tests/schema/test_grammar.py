"""docs/schema/grammar.md is read back: each example says what the page says that it says."""

import re
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.schema import Rule, check
from schema.pages import PAGE, examples, framed

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "said"), examples(), ids=lambda each: str(each).partition("\n")[0][-30:])
def test_an_example_says_what_the_page_says(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tick.json").write_text(text, encoding="utf-8")
    result = run("schema", "check", "tick.json")
    assert result.stdout.splitlines()[:-1] == said.splitlines()
    assert result.exit_code == int(any(": warning: " not in head for head in re.findall("^tick.*", said, re.MULTILINE)))


def test_every_rule_has_an_example() -> None:
    heads = [head for _, said in examples() for head in re.findall(r"^tick.*: ([a-z-]+)", said, re.MULTILINE)]
    assert set(heads) == {rule.value for rule in Rule} - {"size"}


def test_every_rule_is_explained() -> None:
    for rule in Rule:
        assert re.search(rf"^(`[a-z-]+`, )*`{rule}`", TEXT, re.MULTILINE), rule


def test_the_sound_example_is_sound() -> None:
    match = re.search(r"^```json ok\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert match is not None
    message, errors = check(framed(match[1]))
    assert errors == []
    assert message is not None
    assert [str(field.encoding_at(5)) for field in message.fields] == [
        "unpacked32",
        "fixed64",
        "packed32",
        "unpacked32",
    ]
    assert [str(field.encoding_at(1)) for field in message.fields] == ["fixed32", "fixed32", "packed32", "unpacked32"]
