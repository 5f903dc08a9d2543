"""Compare two versions of a schema: what changed, and whether peers of both understand each other.

The basic rule: a published version never changes on the wire. A version of both schemas must have the same bytes with
the same meaning; additions belong into a new version. Two changes are free: tagged fields come and go in flexible
versions, because readers skip unknown tags; and the newest version may change as long as the old schema marks it
unstable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from magicbyte.schema.sizes import encoding_of
from magicbyte.schema.tree import (
    ENCODABLE_BITS,
    FIXED_SIZES,
    INTEGER_BITS,
    Encoding,
    FieldSchema,
    MessageSchema,
)
from magicbyte.schema.versions import Versions


class ChangeKind(enum.StrEnum):
    """The kinds of change; docs/schema/README.md lists them with their reasons."""

    MESSAGE_CHANGED = "message-changed"
    VERSIONS_ADDED = "versions-added"
    VERSIONS_REMOVED = "versions-removed"
    FLEXIBLE_CHANGED = "flexible-changed"
    FIELD_ADDED = "field-added"
    FIELD_REMOVED = "field-removed"
    FIELD_RENAMED = "field-renamed"
    FIELD_MOVED = "field-moved"
    TYPE_CHANGED = "type-changed"
    WIDENED = "widened"
    NARROWED = "narrowed"
    ENCODING_CHANGED = "encoding-changed"
    NULLABLE_CHANGED = "nullable-changed"
    TAG_CHANGED = "tag-changed"
    TAG_REUSED = "tag-reused"
    DEFAULT_CHANGED = "default-changed"
    MAP_KEY_CHANGED = "map-key-changed"
    IGNORABLE_CHANGED = "ignorable-changed"
    STRUCT_RENAMED = "struct-renamed"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; `versions` are the affected ones, in ascending order, `reason` says why it is allowed or not."""

    field: str
    kind: ChangeKind
    compatible: bool
    versions: tuple[Versions, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the change as printed by `magicbyte schema diff --format json`."""
        return {
            "field": self.field,
            "change": self.kind.value,
            "compatible": self.compatible,
            "versions": [str(each) for each in self.versions],
            "reason": self.reason,
        }


def compare(old: MessageSchema, new: MessageSchema) -> list[Change]:
    """Return the differences of `new`, in the order of the schema; an empty list if there is none that matters."""
    return _Comparison(old, new).changes


class _Comparison:
    def __init__(self, old: MessageSchema, new: MessageSchema) -> None:
        self.old, self.new = old, new
        self.changes: list[Change] = []
        self.shared = old.valid_versions & new.valid_versions
        if old.latest_version_unstable and old.valid_versions.highest in self.shared:
            self.shared = self.shared & Versions(0, old.valid_versions.highest - 1)
        self.seen: set[tuple[str, str, Versions]] = set()
        self._message()
        self._fields(old.fields, new.fields, self.shared, new.valid_versions, old.name)

    def _note(self, field: str, kind: ChangeKind, versions: Iterable[int], reason: str, *, compatible: bool) -> None:
        self.changes.append(Change(field, kind, compatible, ranges(versions), reason))

    # ---- the message

    def _message(self) -> None:
        old, new = self.old, self.new
        asked = {old.type, new.type} & {"request", "response", "header"}
        for what, before, after in (("apiKey", old.api_key, new.api_key), ("type", old.type, new.type)):
            if before != after:
                why = "old peers take it for another message" if asked else "a stored record does not contain it"
                reason = f"{what} was {before} and is {after}: {why}"
                self._note(old.name, ChangeKind.MESSAGE_CHANGED, self.shared, reason, compatible=not asked)
        if old.name != new.name:
            reason = f"its name was {old.name} and is {new.name}; a name is not on the wire"
            self._note(old.name, ChangeKind.MESSAGE_CHANGED, self.shared, reason, compatible=True)
        gone = [version for version in old.valid_versions if version not in new.valid_versions]
        if gone:
            reason = "old peers that speak no newer version are shut out"
            self._note(old.name, ChangeKind.VERSIONS_REMOVED, gone, reason, compatible=False)
        added = [version for version in new.valid_versions if version not in old.valid_versions]
        if added:
            reason = "peers that do not know them agree on an older version"
            self._note(old.name, ChangeKind.VERSIONS_ADDED, added, reason, compatible=True)
        changed = [v for v in self.shared if (v in old.flexible_versions) != (v in new.flexible_versions)]
        if changed:
            reason = "lengths and tagged sections are written otherwise in a version that exists already"
            self._note(old.name, ChangeKind.FLEXIBLE_CHANGED, changed, reason, compatible=False)

    # ---- the fields of a struct

    def _fields(
        self, old: tuple[FieldSchema, ...], new: tuple[FieldSchema, ...], shared: Versions, valid: Versions, way: str
    ) -> None:
        """Compare two structs in the versions `shared` of both; `valid` are those in which the new one occurs."""
        pairs, gone, added = _paired(old, new, shared)
        for before in gone:
            self._lost(before, list(before.versions & shared), f"{way}.{before.name}")
        for before, after in pairs:
            self._field(before, after, shared, valid, f"{way}.{before.name}")
        for after in added:
            self._gained(after, list(after.versions & shared), shared, valid, f"{way}.{after.name}")
        self._order(pairs, new, shared, way)
        self._tags(old, new, pairs, shared, way)

    def _lost(self, field: FieldSchema, versions: list[int], way: str) -> None:
        plain = [version for version in versions if _plain(field, version)]
        tagged = [version for version in versions if version in field.tagged_versions]
        if plain:
            reason = "old peers write it in a version that exists already: take it out of new versions only"
            self._note(way, ChangeKind.FIELD_REMOVED, plain, reason, compatible=False)
        else:
            reason = "readers skip its tag, which must stay free" if tagged else "no version that both know has it"
            self._note(way, ChangeKind.FIELD_REMOVED, tagged, reason, compatible=True)

    def _gained(self, field: FieldSchema, versions: list[int], shared: Versions, valid: Versions, way: str) -> None:
        plain = [version for version in versions if _plain(field, version)]
        if plain:
            mend = f'let it begin at version {shared.highest + 1}, and "validVersions" end there, or give it a tag'
            reason = f"old peers do not know it in a version that exists already: {mend}"
            self._note(way, ChangeKind.FIELD_ADDED, plain, reason, compatible=False)
        elif versions:
            reason = "peers that do not know its tag skip it"
            self._note(way, ChangeKind.FIELD_ADDED, field.tagged_versions & valid, reason, compatible=True)
        else:
            self._note(way, ChangeKind.FIELD_ADDED, field.versions & valid, "new versions only", compatible=True)

    def _order(
        self, pairs: list[tuple[FieldSchema, FieldSchema]], new: tuple[FieldSchema, ...], shared: Versions, way: str
    ) -> None:
        index = {field.name: at for at, field in enumerate(new)}
        moved: dict[str, list[int]] = {}
        for version in shared:
            last = -1
            for before, after in pairs:
                if _plain(before, version) and _plain(after, version):
                    if index[after.name] < last:
                        moved.setdefault(before.name, []).append(version)
                    last = max(last, index[after.name])
        for name, versions in moved.items():
            reason = "its position among the fields changes in a version that exists already"
            self._note(f"{way}.{name}", ChangeKind.FIELD_MOVED, versions, reason, compatible=False)

    def _tags(
        self,
        old: tuple[FieldSchema, ...],
        new: tuple[FieldSchema, ...],
        pairs: list[tuple[FieldSchema, FieldSchema]],
        shared: Versions,
        way: str,
    ) -> None:
        same = {(before.name, after.name) for before, after in pairs}
        for before in old:
            for after in new:
                both = before.tagged_versions & after.tagged_versions & shared
                if before.tag == after.tag and not both.is_empty and (before.name, after.name) not in same:
                    reason = f"old peers read tag {after.tag} as {before.name}: take the next free one"
                    self._note(f"{way}.{after.name}", ChangeKind.TAG_REUSED, both, reason, compatible=False)

    # ---- one field

    def _field(self, before: FieldSchema, after: FieldSchema, shared: Versions, valid: Versions, way: str) -> None:
        if before.json_name != after.json_name:
            reason = f"it is {after.name} now, a name is not on the wire: be sure that it means the same"
            self._note(
                way, ChangeKind.FIELD_RENAMED, before.versions & after.versions & shared, reason, compatible=True
            )
        lost = [version for version in before.versions & shared if version not in after.versions]
        if lost:
            self._lost(before, lost, way)
        gained = [version for version in after.versions & shared if version not in before.versions]
        if gained:
            self._gained(after, gained, shared, valid, way)
        both = list(before.versions & after.versions & shared)
        self._tag(before, after, both, way)
        self._nullable(before, after, both, way)
        self._override(before, after, both, way)
        self._default(before, after, both, way)
        for kind, was, now, what in (
            (
                ChangeKind.IGNORABLE_CHANGED,
                before.ignorable,
                after.ignorable,
                "writers without the field in their version",
            ),
            (ChangeKind.MAP_KEY_CHANGED, before.map_key, after.map_key, "the key of a map in code"),
        ):
            if was != now:
                reason = (
                    f"it {'is no longer' if was else 'is now'} {kind.removesuffix('-changed')}: only {what} see that"
                )
                self._note(way, kind, both, reason, compatible=True)
        if self._type(before, after, both, way):
            self._encoding(before, after, both, valid, way)
            self._struct(before, after, shared, valid, way)

    def _tag(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> None:
        changed = [version for version in both if _tag(before, version) != _tag(after, version)]
        if changed:
            was, now = _tag(before, changed[0]), _tag(after, changed[0])
            reason = f"it had {_tag_text(was)} and has {_tag_text(now)} in a version that exists already"
            self._note(way, ChangeKind.TAG_CHANGED, changed, reason, compatible=False)

    def _nullable(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> None:
        more = [v for v in both if v in after.nullable_versions and v not in before.nullable_versions]
        fewer = [v for v in both if v in before.nullable_versions and v not in after.nullable_versions]
        if more:
            reason = "old peers refuse null in a version that exists already"
            self._note(way, ChangeKind.NULLABLE_CHANGED, more, reason, compatible=False)
        if fewer:
            reason = "old peers may write null in a version that exists already"
            self._note(way, ChangeKind.NULLABLE_CHANGED, fewer, reason, compatible=False)

    def _override(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> None:
        was, now = before.flexible_versions, after.flexible_versions
        if was == now:
            return
        was = self.old.flexible_versions if was is None else was
        now = self.new.flexible_versions if now is None else now
        changed = [version for version in both if (version in was) != (version in now)]
        if changed:
            reason = "its length is written otherwise in a version that exists already"
            self._note(way, ChangeKind.FLEXIBLE_CHANGED, changed, reason, compatible=False)

    def _default(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> None:
        was, now = _default_text(before), _default_text(after)
        if was == now or not _comparable(before, after):
            return
        tagged = [v for v in both if v in before.tagged_versions and v in after.tagged_versions]
        change = f"{was} is now {now}"
        if tagged:
            reason = f"{change}: a tagged field that has its default is not written, so peers read different values"
            self._note(way, ChangeKind.DEFAULT_CHANGED, tagged, reason, compatible=False)
        else:
            reason = f"{change}: it is written in versions that have the field, and assumed in those that have not"
            self._note(way, ChangeKind.DEFAULT_CHANGED, both, reason, compatible=True)

    def _type(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> bool:
        """Record a change of type; return whether encodings and structs must still be compared."""
        was, now = before.type, after.type
        if was.array == now.array and was.struct and now.struct:
            if was.name != now.name:
                reason = f"the struct {was.name} is {now.name} now; a name is not on the wire"
                self._note(way, ChangeKind.STRUCT_RENAMED, both, reason, compatible=True)
            return True
        if was == now:
            return True
        if was.array == now.array and was.name in ENCODABLE_BITS and now.name in ENCODABLE_BITS:
            self._width(before, after, both, way)
            return False
        change = f"{was} is now {now}"
        if not both:
            self._note(way, ChangeKind.TYPE_CHANGED, (), f"{change}, in new versions only", compatible=True)
        elif not was.array and not now.array and {was.name, now.name} == {"bytes", "records"}:
            self._note(
                way, ChangeKind.TYPE_CHANGED, both, f"{change}, which look the same on the wire", compatible=True
            )
        else:
            same_width = FIXED_SIZES.get(was.name) == FIXED_SIZES.get(now.name) and {was.name, now.name} <= {
                *INTEGER_BITS
            }
            why = "the same bytes stand for other numbers" if same_width else "they look different on the wire"
            reason = f"{change} in a version that exists already: {why}"
            self._note(way, ChangeKind.TYPE_CHANGED, both, reason, compatible=False)
        return False

    def _width(self, before: FieldSchema, after: FieldSchema, both: list[int], way: str) -> None:
        old_bits, new_bits = ENCODABLE_BITS[before.type.name], ENCODABLE_BITS[after.type.name]
        kind = ChangeKind.WIDENED if new_bits > old_bits else ChangeKind.NARROWED
        change = f"{before.type} is now {after.type}"
        changed = [version for version in both if encoding_of(before, version) != encoding_of(after, version)]
        if changed:
            was, now = encoding_of(before, changed[0]), encoding_of(after, changed[0])
            key = "elementEncoding" if after.type.array else "encoding"
            mend = f'keep "{was}" there with "{key}": {{"{ranges(both)[0]}": "{was}", …}}'
            if kind is ChangeKind.NARROWED:
                mend = f"keep {before.type}, since values may be that wide"
            reason = f"{change}, and {was} is now {now} in a version that exists already: {mend}"
            self._note(way, kind, changed, reason, compatible=False)
        else:
            same = f"{change}; on the wire nothing changes in versions that exist already"
            limit = ", where values of more bits are refused" if kind is ChangeKind.WIDENED and both else ""
            self._note(way, kind, both, f"{same}{limit}", compatible=True)

    def _encoding(self, before: FieldSchema, after: FieldSchema, both: list[int], valid: Versions, way: str) -> None:
        if before.encodings == after.encodings:
            return
        changed = [version for version in both if encoding_of(before, version) != encoding_of(after, version)]
        if changed:
            was, now = encoding_of(before, changed[0]), encoding_of(after, changed[0])
            assert was is not None, "the type can have encodings"
            assert now is not None, "the type is the same"
            self._note(way, ChangeKind.ENCODING_CHANGED, changed, _encoding_reason(was, now), compatible=False)
        later = [v for v in after.versions & valid if v not in both and v not in self.old.valid_versions]
        last = encoding_of(before, both[-1]) if both else None
        other = [version for version in later if both and encoding_of(after, version) != last]
        if other:
            reason = f"{last} becomes {encoding_of(after, other[0])} in new versions only"
            self._note(way, ChangeKind.ENCODING_CHANGED, other, reason, compatible=True)

    def _struct(self, before: FieldSchema, after: FieldSchema, shared: Versions, valid: Versions, way: str) -> None:
        if not before.type.struct:
            return
        shared = shared & before.versions & after.versions
        key = (before.type.name, after.type.name, shared)
        if key not in self.seen:
            self.seen.add(key)
            old, new = self.old.structs[before.type.name], self.new.structs[after.type.name]
            self._fields(old.fields, new.fields, shared, valid & after.versions, way)


def ranges(versions: Iterable[int]) -> tuple[Versions, ...]:
    """Return ascending versions as ranges."""
    joined: list[Versions] = []
    for version in versions:
        if joined and joined[-1].highest == version - 1:
            joined[-1] = Versions(joined[-1].lowest, version)
        else:
            joined.append(Versions(version, version))
    return tuple(joined)


def _plain(field: FieldSchema, version: int) -> bool:
    """Return whether the version has the field as an untagged one."""
    return version in field.versions and version not in field.tagged_versions


def _tag(field: FieldSchema, version: int) -> int | None:
    return field.tag if version in field.tagged_versions else None


def _tag_text(tag: int | None) -> str:
    return "no tag" if tag is None else f"tag {tag}"


def _default_text(field: FieldSchema) -> str:
    if field.null_by_default:
        return "null"
    if field.type.array or field.type.struct or field.type.name == "bytes":
        return "the empty one"
    return repr(field.default)


def _comparable(before: FieldSchema, after: FieldSchema) -> bool:
    """Return whether values of both can be equal: the same type, two integer types, or two structs."""
    was, now = before.type, after.type
    alike = was.name == now.name or {was.name, now.name} <= {*INTEGER_BITS} or (was.struct and now.struct)
    return alike and was.array == now.array


def _encoding_reason(was: Encoding, now: Encoding) -> str:
    if was.kind == now.kind:
        what = "values beyond the smaller are misread or refused" if was.kind != "fixed" else "their lengths differ"
    elif "fixed" in (was.kind, now.kind):
        what = "a fixed length and a variable one"
    else:
        what = "the same bytes stand for other numbers"
    return f"{was} becomes {now} in a version that exists already ({what}): do it in a new version"


def _paired(
    old: tuple[FieldSchema, ...], new: tuple[FieldSchema, ...], shared: Versions
) -> tuple[list[tuple[FieldSchema, FieldSchema]], list[FieldSchema], list[FieldSchema]]:
    """Return the pairs of fields that are in both, in the old order, then the removed and the new fields.

    Fields are paired by name. A removed and a new field count as one renamed field if they are the same on the wire in
    the versions of both.
    """
    by_name = {field.json_name.lower(): field for field in new}
    partner = {field.name: by_name.pop(field.json_name.lower(), None) for field in old}
    left = list(by_name.values())
    for field in old:
        if partner[field.name] is None and not (field.versions & shared).is_empty:
            alike = next((each for each in left if _wire(each, shared) == _wire(field, shared)), None)
            if alike is not None:
                partner[field.name] = alike
                left.remove(alike)
    pairs = [(field, after) for field in old if (after := partner[field.name]) is not None]
    return pairs, [field for field in old if partner[field.name] is None], left


def _wire(field: FieldSchema, shared: Versions) -> object:
    """Return all properties of a field, except its name, that affect the wire in the versions `shared`."""
    type_ = ("struct", field.type.array) if field.type.struct else (field.type.name, field.type.array)
    return type_, [
        (version, _tag(field, version), version in field.nullable_versions, encoding_of(field, version))
        for version in field.versions & shared
    ]
