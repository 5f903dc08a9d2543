"""Names in schemas that generated code needs for itself: every one of them gives code that works."""

import ast
import builtins
import importlib.util
import keyword
import sys
from itertools import cycle
from pathlib import Path

import pytest

from engine.protocol.generated import compiled
from engine.protocol.interpreter import write
from engine.protocol.schemas import all_schemas
from engine.protocol.values import examples
from magicbyte.engine.protocol.message import Message
from magicbyte.schema import MessageSchema
from magicbyte.schema.code import names_read
from magicbyte.schema.names import TAKEN
from magicbyte.schema.python import groups, modules
from schema.builders import Json, checked, field

FRAME: Json = {"type": "data", "name": "Odd", "validVersions": "0-2", "flexibleVersions": "1+"}
KINDS = ("int32", "string", "[]string", "bytes", "uuid", "[]int16", "bool", "records")
LOCALS = {
    "out", "data", "at", "version", "buffer", "lengths", "tags", "part", "found", "count", "row", "rows", "most",
    "flexible", "structs", "each", "classmethod", "property", "key", "eq", "hash", "init", "slots",
}  # fmt: skip
WORDS = sorted({camel for word in TAKEN | LOCALS | {*dir(builtins)} if (camel := word.replace("_", "")).isalnum()})
TEXTS = (
    '"""', "a\\", "line\nbreak", "tab\t\"'''", "\\N{DASH}", 'ends with "', "{curly} %s", "é\u2028ü", "\x00nul", "#",
    "\u202e", "\\u0041\\",
)  # fmt: skip
CAPITALS = sorted(word for word in TAKEN if word[0].isupper() and word.isalnum())


def unique(words: list[str]) -> list[str]:
    """Return words that differ by more than capital letters, as the language requires of fields."""
    return list({word.lower(): word for word in words}.values())


def assert_works(schema: MessageSchema) -> None:
    codec = compiled(schema)
    for version in schema.valid_versions:
        for values in examples(schema, version, ("default", "highest", "random")):
            data = codec.write(version, values)
            assert data == write(schema, version, values)
            assert codec.read(version, data) == values


@pytest.mark.parametrize("words", [unique(WORDS)[start::5] for start in range(5)])
def test_a_field_may_have_any_name(words: list[str]) -> None:
    inner = [field(word, type="string") for word in words]
    plain = [
        field(word.capitalize(), type=kind, versions="1+", ignorable=True)
        for word, kind in zip(words, cycle(KINDS), strict=False)
    ]
    tagged = [
        field(word, type=kind, versions="1+", taggedVersions="1+", tag=tag, ignorable=True)
        for tag, (word, kind) in enumerate(zip(words, cycle(("int32", "string", "[]int32", "bytes")), strict=False))
    ]
    assert_works(checked(FRAME, *plain, field("Xyz", type="[]Inner", fields=inner)))
    assert_works(checked(FRAME, *tagged, field("Xyz", type="Inner", fields=inner)))


def test_a_struct_may_have_any_name() -> None:
    inner = [field("A"), field("U", type="uuid"), field("B", type="string", versions="1+", ignorable=True)]
    names = [*CAPITALS, "OddMessage", "T", "H", "ROWSI"]
    arrays = [field(f"F{name}", type=f"[]{name}", fields=inner) for name in names]
    assert_works(checked(FRAME, *arrays))
    assert_works(checked(FRAME, *({**each, "type": each["type"][2:]} for each in arrays)))


@pytest.mark.parametrize("name", [*CAPITALS, "Struct", "Uuid", "Typing", "Import", "Class", "Init"])
def test_a_message_may_have_any_name_and_is_found_by_it(name: str, tmp_path: Path) -> None:
    schema = checked(
        {**FRAME, "name": name},
        field("A", type="[]S", fields=[field("N", type="uuid"), field("L", type="[]int32")]),
        field("R", type="records", nullableVersions="0+"),
        field("G", type="string", versions="1+", taggedVersions="1+", tag=0, ignorable=True),
    )
    assert_works(schema)
    ((file, text),) = modules({name: schema}).items()
    assert not keyword.iskeyword(file.removesuffix(".py"))
    assert file.removesuffix(".py") not in sys.stdlib_module_names & TAKEN
    (tmp_path / file).write_text(text)
    spec = importlib.util.spec_from_file_location(f"generated_{file}", tmp_path / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert issubclass(getattr(module, name), Message)


def test_modules_of_two_messages_with_taken_names_work() -> None:
    pair = {
        name: checked({**FRAME, "name": name}, field("T", type="Tags", fields=[field()]))
        for name in ("TagsKey", "TagsValue")
    }
    assert list(groups(pair)) == ["tags"]
    for text in modules(pair).values():
        compile(text, "tags", "exec")


@pytest.mark.parametrize("text", TEXTS)
def test_a_description_or_default_may_have_any_text(text: str) -> None:
    inner = [field(type="string", about=text, default=text)]
    schema = checked({**FRAME, "about": text}, field("S", type="[]Inner", about=text, fields=inner))
    assert_works(schema)
    (code,) = modules({"Odd": schema}).values()
    assert "\x00" not in code
    assert "\u202e" not in code


def test_the_list_has_every_name_that_generated_code_reads() -> None:
    for text in modules(all_schemas()).values():
        tree = ast.parse(text)
        made = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        made |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        made |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        assert names_read(text) - made <= TAKEN
    assert {name for name in dir(Message) if not name.startswith("_") and name.islower()} <= TAKEN
