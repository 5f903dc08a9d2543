"""Parse Kafka's `sasl.jaas.config`: one login module, a flag, and quoted options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from magicbyte.engine.errors import InvalidConfigError

_MOST_CHARACTERS: Final = 1 << 16
_OPTION: Final = re.compile(r'\s+([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s=;"]+))', re.DOTALL)
_MODULE: Final = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)((?:{_OPTION.pattern})*)\s*;\s*",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module of a JAAS text. `options` contain secrets, so they are excluded from its `repr`."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(setting: str, text: str) -> LoginModule:
    """Parse the one module of a JAAS text. Raises InvalidConfigError, whose message shows nothing of the text."""
    match = _MODULE.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None:
        raise InvalidConfigError(f"{setting}: expected one login module, such as 'CLASS required username=\"NAME\";'")
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted or not word else word
        for name, quoted, word in _OPTION.findall(match[2])
    }
    return LoginModule(match[1], options)
