"""Generate reference pages from checked schemas: each API with its purpose, versions, fields and their meaning.

`pages` returns them by file name, `index` the page with links to them. Both are Markdown, and deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.schema.python import groups
from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema
from magicbyte.schema.versions import Versions

API_VERSIONS: Final = 18  # its response header is always version 0
CONTROLLED_SHUTDOWN: Final = 7  # the request header of its version 0 is version 0, too
RECEIVERS: Final = {
    "zkBroker": "brokers with ZooKeeper", "broker": "brokers with KRaft", "controller": "KRaft controllers",
}  # fmt: skip
STORES: Final = {
    "Transaction": "__transaction_state", "ShareSnapshot": "__share_group_state", "ShareUpdate": "__share_group_state",
    "": "__consumer_offsets",
}  # fmt: skip
"""The topic of a stored record, by the first matching prefix of its name."""
GENERATED: Final = "<!-- Generated from {}. Do not edit: the schema compiler makes it. -->"

History = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Facts about APIs beyond their schemas, by name: `releases` and `notes`, each a text by the version's digits."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The location of pages and of what they document.

    `schemas` and `code` are the folders of the definition files and of the Python code, `root` the relative path from
    the pages to the repository's root; all with slashes.
    """

    schemas: str
    code: str
    root: str


@dataclass(frozen=True, slots=True)
class _FieldRow:
    """A field with its position in a message: `path` has the names of the enclosing fields, and its own."""

    path: tuple[str, ...]
    field: FieldSchema
    versions: Versions


def pages(schemas: Mapping[str, MessageSchema], folder: Folder, history: History | None = None) -> dict[str, str]:
    """Return a page for each API, header, other message, or key and value of a record, by file name."""
    return {
        _page_name(module): "\n".join(_page(module, messages, folder, history or {}))
        for module, messages in groups(schemas).items()
    }


def index(
    messages: Mapping[str, MessageSchema],
    records: Mapping[str, MessageSchema],
    extensions: Mapping[str, MessageSchema],
    history: History,
) -> str:
    """Return the page that lists all pages: those of `messages` beside it, the others in `stored` and `extensions`."""
    apis, others = [], []
    for module, group in groups(messages).items():
        request = next((message for message in group if message.type == "request"), None)
        if request is None:
            others.append((module, group))
        else:
            apis.append((request, module))
    lines = [
        GENERATED.format("the files in schemas/"),
        "# All messages",
        "",
        "How to read the pages: [the guide](README.md).",
        "",
        "## APIs",
        "",
        "| Key | API | Versions | Flexible | Since Kafka | What for |",
        "|---|---|---|---|---|---|",
    ]
    for request, module in sorted(apis, key=lambda api: api[0].api_key or 0):
        name = request.name.removesuffix("Request")
        lines.append(
            f"| {request.api_key} | [{name}]({_page_name(module)}) | {request.valid_versions} | "
            f"{request.flexible_versions} | {_since(history, name)} | {_first_sentence(request.about)} |"
        )
    for title, folder, listed in (
        ("Headers and other messages", "", others),
        ("Records of Kafka's own topics", "stored/", list(groups(records).items())),
        ("Examples of encodings", "extensions/", list(groups(extensions).items())),
    ):
        lines += ["", f"## {title}", "", "| Message | Versions | What for |", "|---|---|---|"]
        for module, group in listed:
            message = group[-1]  # the value of a record, the response of an API
            names = ", ".join(each.name for each in group)
            about = " ".join(_first_sentence(each.about) for each in (group if not folder else [message]))
            lines.append(f"| [{names}]({folder}{_page_name(module)}) | {message.valid_versions} | {about} |")
    return "\n".join([*lines, ""])


def _page_name(module: str) -> str:
    return module.replace("_", "-") + ".md"


def _page(module: str, messages: Sequence[MessageSchema], folder: Folder, history: History) -> Iterator[str]:
    files = [f"{message.name}.json" for message in messages]
    name = _common_name(messages)
    yield GENERATED.format(" and ".join(files))
    yield f"# {name}"
    yield ""
    yield from _introduction(messages)
    links = ", ".join(f"[{file}]({folder.root}/{folder.schemas}/{file})" for file in files)
    package = folder.code.removeprefix("src/").replace("/", ".")
    yield f"* Definitions: {links}"
    yield f"* Python: [`{package}.{module}`]({folder.root}/{folder.code}/{module}.py)"
    yield ""
    if len(_all_versions(messages)) > 1 or messages[0].type == "request":
        yield from _version_table(messages, history.get(name, {}) if messages[0].type == "request" else {})
    for message in messages:
        yield f"## {message.name}"
        yield ""
        if len(messages) > 1:
            yield _marked(message.about)
            yield ""
        yield from _field_table(message)


def _common_name(messages: Sequence[MessageSchema]) -> str:
    """Return a page's title: the API, or the record of key and value."""
    first = messages[0].name
    ends = ("Request", "Response", "Key", "Value")
    return next((first.removesuffix(end) for end in ends if first.endswith(end)), first) if len(messages) > 1 else first


def _introduction(messages: Sequence[MessageSchema]) -> Iterator[str]:
    first = messages[0]
    if len(messages) == 1:
        yield _marked(first.about)
        yield ""
    if first.type == "request":
        receivers = [RECEIVERS[each] for each in RECEIVERS if each in first.listeners]
        yield f"* API key {first.api_key}"
        yield f"* Answered by {_listed(receivers)}"
    elif first.name.endswith("Key"):
        topic = next(topic for start, topic in STORES.items() if first.name.startswith(start))
        numbers = _listed(map(str, first.valid_versions), "or")
        yield f"* A record of `{topic}`; the int16 before its key is {numbers}"


def _version_table(messages: Sequence[MessageSchema], history: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    request = messages[0].type == "request"
    yield "## Versions"
    yield ""
    yield "| Version | Kafka | Headers | New in it |" if request else "| Version | New in it |"
    yield "|---|---|---|---|" if request else "|---|---|"
    for version in _all_versions(messages):
        news = _news(messages, version)
        if version == messages[-1].flexible_versions.lowest > messages[-1].valid_versions.lowest:
            news.insert(0, "Flexible from here on.")
        if str(version) in history.get("notes", {}):
            news.append(history["notes"][str(version)])
        if not request and not news and version != messages[-1].valid_versions.lowest:
            continue  # for APIs every version is listed, with its releases
        remarks = [word for word, versions in _marks(messages[0]) if version in versions]
        text = f"**{version}** {', '.join(remarks)}".strip()
        if request:
            release = history.get("releases", {}).get(str(version), "")
            first, _, last = release.partition("-")
            release = f"{first} to {last}" if last else first and f"{first} and later"
            yield f"| {text} | {release} | {_headers(messages[0], version)} | {' '.join(news)} |"
        else:
            yield f"| {text} | {' '.join(news)} |"
    yield ""


def _marks(message: MessageSchema) -> list[tuple[str, Versions]]:
    highest = message.valid_versions.highest
    unstable = Versions(highest, highest) if message.latest_version_unstable else Versions.NONE
    return [
        ("flexible", message.flexible_versions),
        ("deprecated", message.deprecated_versions),
        ("unstable", unstable),
    ]


def _all_versions(messages: Sequence[MessageSchema]) -> list[int]:
    values = [message for message in messages if not message.name.endswith("Key")]
    return sorted({version for message in values for version in message.valid_versions})


def _headers(request: MessageSchema, version: int) -> str:
    """Return the versions of the request's and the response's header."""
    flexible = version in request.flexible_versions
    if request.api_key == CONTROLLED_SHUTDOWN and version == 0:
        return "0, 0"
    return f"{2 if flexible else 1}, {1 if flexible and request.api_key != API_VERSIONS else 0}"


def _news(messages: Sequence[MessageSchema], version: int) -> list[str]:
    """Return sentences about the changes of a version against the previous one."""
    news = []
    for message in messages:
        valid = message.valid_versions
        if version not in valid or version == valid.lowest:
            continue
        changes: dict[str, list[str]] = {}
        hidden: set[tuple[str, ...]] = set()
        for row in _rows(message):
            now, before = version in row.versions, version - 1 in row.versions
            if row.path[:-1] in hidden:
                hidden.add(row.path)  # fields that come or go with a struct are not listed again
            elif now != before:
                hidden.add(row.path)
                changes.setdefault("new" if now else "gone", []).append(_path(row))
            elif now:
                nullable = row.field.nullable_versions
                if version in nullable and version - 1 not in nullable:
                    changes.setdefault("may be null", []).append(_path(row))
                if version not in nullable and version - 1 in nullable:
                    changes.setdefault("no longer null", []).append(_path(row))
                encoding = row.field.encoding_at(version)
                if encoding != row.field.encoding_at(version - 1):
                    changes.setdefault(f"written as {encoding}", []).append(_path(row))
        kind = message.type.capitalize() if len(messages) > 1 and message.type in ("request", "response") else ""
        texts = [f"{what}: {', '.join(paths)}" for what, paths in changes.items()]
        if texts:
            text = "; ".join(texts)
            news.append(f"{kind}, {text}." if kind else f"{text[0].upper()}{text[1:]}.")
    return news


def _field_table(message: MessageSchema) -> Iterator[str]:
    rows = list(_rows(message))
    if not rows:
        yield "No fields."
        yield ""
        return
    yield "| Field | Type | Versions | Default | Meaning |"
    yield "|---|---|---|---|---|"
    for row in rows:
        name = "· " * (len(row.path) - 1) + row.field.name
        versions = _versions(row.versions, message.valid_versions)
        if row.field.ignorable and row.versions != message.valid_versions:
            versions += ", ignorable"
        yield f"| {name} | {_type(row, message)} | {versions} | {_default(row.field)} | {_marked(row.field.about)} |"
    yield ""


def _rows(message: MessageSchema) -> Iterator[_FieldRow]:
    """Yield all fields in the order of the wire (tagged ones where the file has them), with those of their structs."""

    def inside(fields: Iterable[FieldSchema], path: tuple[str, ...], around: Versions) -> Iterator[_FieldRow]:
        for field in fields:
            versions = field.versions & around
            if versions.is_empty:
                continue
            yield _FieldRow((*path, field.name), field, versions)
            if field.type.struct:
                struct: StructSchema = message.structs[field.type.name]
                yield from inside(struct.fields, (*path, field.name), versions & struct.versions)

    return inside(message.fields, (), message.valid_versions)


def _path(row: _FieldRow) -> str:
    return ".".join(row.path)


def _versions(versions: Versions, valid: Versions) -> str:
    if versions == valid:
        return "all"
    return f"{versions.lowest}+" if versions.highest == valid.highest else str(versions)


def _type(row: _FieldRow, message: MessageSchema) -> str:
    field = row.field
    parts = [f"`{field.type}`"]
    nullable = field.nullable_versions & row.versions
    if not nullable.is_empty:
        parts.append(
            "or null" if nullable == row.versions else f"null in {_versions(nullable, message.valid_versions)}"
        )
    if field.tag is not None:
        tagged = field.tagged_versions & row.versions
        where = "" if tagged == row.versions else f" in {_versions(tagged, message.valid_versions)}"
        parts.append(f"tag {field.tag}{where}")
    for versions, encoding in field.encodings:
        if len(field.encodings) == 1:
            parts.append(str(encoding))
        elif not (versions & row.versions).is_empty:
            parts.append(f"{encoding} in {_versions(versions & row.versions, message.valid_versions)}")
    return ", ".join(parts)


def _default(field: FieldSchema) -> str:
    """Return the default unless it is the obvious one: 0, false, empty or, for a UUID, zeros."""
    default: Any = field.default
    if field.null_by_default or default is None:
        return "null" if field.null_by_default else ""
    if field.type.array or field.type.struct or not default or field.type.name == "uuid":
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _marked(text: str) -> str:
    """Return a text with words that contain Markdown marks, such as `__consumer_offsets`, as code."""
    return re.sub(r"[\w.:-]*[_*][\w.:*-]*(?<![.:])", r"`\g<0>`", text)


def _first_sentence(text: str) -> str:
    return _marked(re.split(r"(?<=\.) (?=[A-Z])", text)[0])


def _since(history: History, name: str) -> str:
    releases = history.get(name, {}).get("releases", {})
    return releases.get("0", "").partition("-")[0]


def _listed(words: Iterable[str], last_word: str = "and") -> str:
    *first, last = words
    return f"{', '.join(first)} {last_word} {last}" if first else last
