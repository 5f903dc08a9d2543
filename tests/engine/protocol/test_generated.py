"""The generated code is what the schemas give, and fit for other people's projects."""

import ast
import runpy
from pathlib import Path

import pytest

from engine.protocol.schemas import ROOT
from magicbyte.engine.errors import ProtocolError
from magicbyte.schema import check
from magicbyte.schema.names import RUNTIME, attributes, snake
from magicbyte.schema.output import stale
from magicbyte.schema.python import modules
from syntax import parsed


def test_generated_code_is_fresh() -> None:
    generated = runpy.run_path(str(ROOT / "tools/generate.py"))["generated"]
    wrong = {folder.name: names for folder, files in generated().items() if (names := stale(folder, files))}
    assert not wrong, "run: python tools/generate.py"


def test_generated_code_needs_the_runtime_msgspec_and_the_standard_library_alone() -> None:
    allowed = {"__future__", "struct", "collections.abc", "msgspec", "uuid"}
    allowed |= {f"magicbyte.engine.protocol.{module}" for module in RUNTIME}
    for folder in ("messages", "stored", "extensions"):
        for path in sorted((ROOT / "src/magicbyte/engine/protocol" / folder).glob("[a-z]*.py")):
            for node in ast.walk(parsed(path.read_text())):
                if isinstance(node, ast.Import):
                    assert {each.name for each in node.names} <= allowed, path
                elif isinstance(node, ast.ImportFrom):
                    assert node.module in allowed, path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TopicId", "topic_id"),
        ("isKRaftController", "is_kraft_controller"),
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("PreVote", "pre_vote"),
        ("X", "x"),
        ("ISRs2", "is_rs2"),
    ],
)
def test_names_become_snake_case(name: str, expected: str) -> None:
    assert snake(name) == expected


SCHEMA = """{
  "type": "data", "name": "Tick", "validVersions": "0-2", "flexibleVersions": "none",
  "fields": [
    {"name": "Class", "type": "int32", "versions": "0+"},
    {"name": "Size", "type": "int64", "versions": "0+", "encoding": {"0-1": "fixed32", "2+": "packed64"}},
    {"name": "List", "type": "[]Message", "versions": "1+", "ignorable": true, "fields": [
      {"name": "At", "type": "int8", "versions": "1+"}]}
  ]
}"""


def test_names_that_python_or_the_runtime_needs_get_another_form() -> None:
    message, _ = check(SCHEMA, "Tick.json")
    assert message is not None
    assert attributes(message.fields) == {"Class": "class_", "Size": "size_", "List": "list_"}
    (text,) = modules({"Tick": message}).values()
    assert "class TickMessage(Struct, gc=False, kw_only=True):\n" in text
    assert "class Tick(Message, gc=False, kw_only=True):\n" in text
    assert text.startswith(
        '"""Generated from Tick.json. Do not edit: the schema compiler makes it.\n\n'
        "Tick: versions 0-2; size_ is fixed32 in 0-1, packed64 in 2+ (KIP-625).\n"
    )


def test_a_generated_module_works_by_itself(tmp_path: Path) -> None:
    message, _ = check(SCHEMA, "Tick.json")
    assert message is not None
    (text,) = modules({"Tick": message}).values()
    (tmp_path / "tick.py").write_text(text)
    tick = runpy.run_path(str(tmp_path / "tick.py"))["Tick"]
    assert tick(class_=1, size_=-1).encode(0).hex() == "00000001ffffffff"
    assert tick(class_=1, size_=-1).encode(2).hex() == "00000001" + "01" + "00000000"
    assert tick.read(b"\0\0\0\x01\xff\xff\xff\xff", 0) == tick(class_=1, size_=-1)
    assert tick.read(tick(size_=2**31).encode(2), 2) == tick(size_=2**31)
    with pytest.raises(ProtocolError, match="Tick version 1, size_: expected a value of 32 bits, found 2147483648"):
        tick(size_=2**31).encode(1)
