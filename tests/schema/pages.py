"""The examples of docs/schema/grammar.md, as files."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "schema" / "grammar.md"


def framed(fields: str) -> str:
    """Return the file that the page's frame makes of lines with fields."""
    match = re.search(r"^```json frame\n(.*?)\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return f"{match[1]}\n{fields}{match[2]}"


def examples() -> list[tuple[str, str]]:
    """Return each faulty example as a whole file, with what is said about it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^```json (field|file)\n(.*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(body if kind == "file" else framed(body), said) for kind, body, said in found]
