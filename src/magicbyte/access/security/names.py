"""The distinguished name of a certificate as Kafka writes it (RFC 2253), and its mapping to a user (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Self

from msgspec import Struct

from magicbyte.engine.errors import InvalidConfigError, SecurityError

_SHORT: Final = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
_RULE: Final = (
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/(?P<case>[LU]?).*?|.*?"
)
_RULES: Final = re.compile(rf"\s*(?P<rule>{_RULE})\s*(?:,\s*|$)")
_ONE_RULE: Final = re.compile(_RULE)
_NAME_PART: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)|(?P<other>[^\\$]+)", re.DOTALL)
_EMAIL: Final = "emailAddress"
_EMAIL_OID: Final = "1.2.840.113549.1.9.1"


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return the text of a subject given by Python's `ssl`: the last encoded part comes first."""
    return ",".join("+".join(_part(name, value) for name, value in part) for part in reversed(list(subject)))


def _part(name: str, value: str) -> str:
    if name == _EMAIL and value.isascii() and len(value) < 128:
        return f"{_EMAIL_OID}=#16{len(value):02x}{value.encode().hex()}"
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    return f"{_SHORT.get(name, name)}={escaped}"


class _Rule(Struct, frozen=True):
    """A rule: a pattern for the whole name, its replacement, and L, U or nothing."""

    pattern: re.Pattern[str]
    parts: tuple[int | str, ...]
    case: str

    def replaced(self, match: re.Match[str]) -> str:
        """Return the replacement of a match."""
        return "".join((match[each] or "") if isinstance(each, int) else each for each in self.parts)


class MappingRules:
    """Kafka's `ssl.principal.mapping.rules`: DEFAULT, or RULE:PATTERN/NAME/[LU]; the first match counts."""

    def __init__(self, rules: Iterable[_Rule | None]) -> None:
        self._rules = tuple(rules)  # None: DEFAULT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the rules. Raises InvalidConfigError."""
        return cls(_rule(each["rule"]) for each in _RULES.finditer(text.strip()) if each["rule"])

    def user_of(self, name: str) -> str:
        """Return the user of a certificate's owner. Raises SecurityError if no rule matches."""
        for rule in self._rules:
            if rule is None:
                return name
            if rule.pattern.fullmatch(name):
                found = rule.pattern.sub(rule.replaced, name)
                return found.lower() if rule.case == "L" else found.upper() if rule.case == "U" else found
        raise SecurityError(f"no rule of ssl.principal.mapping.rules matches the certificate of {name}")


def _rule(text: str) -> _Rule | None:
    match = _ONE_RULE.match(text)
    if match is None or match.end() != len(text):
        raise InvalidConfigError(
            f"ssl.principal.mapping.rules: expected DEFAULT or RULE:PATTERN/NAME/ with L, U or nothing after it, "
            f"found {text!r}"
        )
    if match["default"]:
        return None
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise InvalidConfigError(f"ssl.principal.mapping.rules: {text!r}: {error}") from None
    parts = list[int | str]()
    end = 0
    for part in _NAME_PART.finditer(match["name"]):
        if part.start() != end:
            break
        end = part.end()
        parts += [part["literal"] or part["other"]] if part["group"] is None else _group(part["group"], pattern.groups)
    if end != len(match["name"]):
        raise InvalidConfigError(f"ssl.principal.mapping.rules: {text!r}: expected a number after each $")
    return _Rule(pattern, tuple(parts), match["case"])


def _group(digits: str, groups: int) -> list[int | str]:
    """Return the group of a reference, parsed as in Java: as many digits as make an existing group."""
    length = 1
    if int(digits[0]) > groups:
        return [f"${digits}"]
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    return [int(digits[:length]), digits[length:]]
