"""Requests that name much: of each API, in each family of versions, with each of its arrays and tags at any length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Struct

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages.produce import ProduceRequest
from magicbyte.server.settings.offer import OWN
from magicbyte.server.settings.served import SERVED

TAGS = "unknown_tags"
OF_ACLS = {"operation": 2, "permission_type": 3, "resource_type": 2, "resource_type_filter": 2}
"""Fields of ACLs and their filters in which 0 ends the connection, with valid numbers."""

OF_BYTES = {"resource_types", "acknowledge_types"}
"""Arrays of numbers of one byte."""


class Case(NamedTuple):
    """An array of a request, by the names of the fields that lead to it, and how to fill it."""

    key: int
    version: int
    path: tuple[str, ...]
    make: Callable[[int, int], Message]

    def __str__(self) -> str:
        return f"{APIS[self.key].name}-{self.version}-{'.'.join(self.path)}"


def families(key: int) -> list[int]:
    """Return the first and the last version that is served, and those at the edge of flexible encodings."""
    versions, flexible = OWN.answered[key], APIS[key].flexible_versions
    edges = {flexible[0] - 1, flexible[0]} if flexible else set()
    return sorted({versions[0], versions[-1], *(each for each in edges if each in versions)})


def cases() -> Iterator[Case]:
    """Yield every array and every place for tagged fields of every request that is served."""
    for key in SERVED:
        kind = APIS[key].request
        for version in families(key):
            for path in _arrays(kind):
                case = Case(key, version, path, _maker(kind, path))
                try:
                    sizes = [len(case.make(count, 1).encode(version)) for count in (2, 3)]
                except MagicbyteError:
                    continue  # this version has no such field
                if sizes[0] < sizes[1]:  # else it is left out
                    yield case


def _arrays(kind: type[Struct]) -> Iterator[tuple[str, ...]]:
    for name, inner, is_array in _members(kind):
        if name == TAGS or is_array:
            yield (name,)
        if inner is not None:
            for path in _arrays(inner):
                yield (name, *path)


def _members(kind: type[Struct]) -> Iterator[tuple[str, type[Struct] | None, bool]]:
    """Yield name and struct, if there is one, of each field, and whether it is an array."""
    hints = get_type_hints(kind)
    for name in kind.__struct_fields__:
        given = [one for one in (get_args(hints[name]) or (hints[name],)) if one is not type(None)]
        whole = given[0] if get_origin(hints[name]) not in (list, tuple) else hints[name]
        is_array = get_origin(whole) in (list, tuple)
        element = get_args(whole)[0] if is_array else whole
        is_struct = isinstance(element, type) and issubclass(element, Struct)
        yield name, element if is_struct else None, is_array


def _maker(kind: type[Message], path: tuple[str, ...]) -> Callable[[int, int], Message]:
    def make(count: int, longest: int) -> Message:
        made = _filled(kind, path, count, longest)
        if isinstance(made, ProduceRequest):
            made.acks = 1  # else there is no answer
        return made  # type: ignore[no-any-return]

    return make


def _filled(kind: type, path: tuple[str, ...], count: int, longest: int) -> Any:
    name, *rest = path
    made = kind()
    member = {each: (inner, is_array) for each, inner, is_array in _members(kind)}[name]
    inner, is_array = member
    if name == TAGS:
        made.unknown_tags = tuple((10_000 + at, b"") for at in range(count))
    elif rest:
        assert inner is not None
        below = _filled(inner, tuple(rest), count, longest)
        setattr(made, name, [below] if is_array else below)
    elif inner is not None:
        setattr(made, name, [_named(inner, at, longest) for at in range(count)])
    elif "str" in str(get_type_hints(kind)[name]):
        setattr(made, name, [f"{at}".rjust(longest, "n") for at in range(count)])
    else:
        setattr(made, name, tuple(at % 128 if name in OF_BYTES else at for at in range(count)))
    return made


def _named(kind: type[Struct], at: int, longest: int) -> Any:
    """Return a struct whose first string, or else number, no other one has."""
    made = kind()
    for name, value in OF_ACLS.items() if hasattr(made, "permission_type") else ():
        if hasattr(made, name):
            setattr(made, name, value)
    for name in kind.__struct_fields__:
        if kind.__annotations__[name] in ("str", "str | None"):
            setattr(made, name, f"{at}".rjust(longest, "n"))
            break
        if kind.__annotations__[name] == "int" and name.endswith(("index", "partition")):
            setattr(made, name, at)
            break
    return made
