"""Parse Java properties files, which Kafka uses for `meta.properties` and its configuration."""

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: bytes) -> dict[str, str]:
    """Return keys and values; of a repeated key the last value counts. As in Java, any bytes are valid."""
    properties: dict[str, str] = {}
    pending = ""
    for line in re.split(r"\r\n|\r|\n", content.decode("latin-1")):
        stripped = line.lstrip(" \t\f")
        if not pending and stripped[:1] in ("", "#", "!"):
            continue
        logical = pending + stripped
        if (len(logical) - len(logical.rstrip("\\"))) % 2:  # an odd number of backslashes: the line continues
            pending = logical[:-1]
            continue
        pending = ""
        _add(properties, logical)
    _add(properties, pending)
    return properties


def _add(properties: dict[str, str], line: str) -> None:
    found = _KEY.match(line)
    if line and found:
        properties[_unescape(found[1])] = _unescape(found[2])


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _NAMED.get(code, code)

    return _ESCAPE.sub(replace, text)
