"""docs/reference/errors.md: every exception and every error code, as the code has them."""

import re
from inspect import getmembers, isclass
from pathlib import Path

import magicbyte
from magicbyte.access.client.client import RETRIABLE
from magicbyte.engine import errors
from magicbyte.engine.errors import ErrorCode, MagicbyteError

ROOT = Path(magicbyte.__file__).parent
PAGE = (Path(__file__).parent.parent / "docs/reference/errors.md").read_text(encoding="utf-8")


def test_the_page_has_every_exception_with_its_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^`\s]+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    classes = [found for _, found in getmembers(errors, isclass) if issubclass(found, MagicbyteError)]
    assert sorted(row[0] for row in rows) == sorted(each.__name__ for each in classes)
    codes = {name: code for name, code, _, _ in rows if code != "varies"}
    assert codes == {each.__name__: str(int(each.code)) for each in classes if each.__name__ in codes}


def test_the_page_has_every_exception_of_other_modules() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(magicbyte\.[\w.]+)` \| .+? \| .+? \|$", PAGE, re.MULTILINE)
    known = {name for name, found in getmembers(errors, isclass) if issubclass(found, MagicbyteError)}
    found = set[tuple[str, str]]()
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        classes = re.findall(r"^class (\w+)\((\w+)[,)]", path.read_text(encoding="utf-8"), re.MULTILINE)
        found |= {(name, module) for name, base in classes if base in known and module != errors.__name__}
    assert found == set(rows)


def test_the_page_has_every_error_code_and_whether_it_is_retried() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)` \| (yes)? ?\| (.+?) \|$", PAGE, re.MULTILINE)
    assert [(int(number), name) for number, name, _, _ in rows] == [(int(code), code.name) for code in ErrorCode]
    assert {ErrorCode[name] for _, name, retried, _ in rows if retried} == RETRIABLE
