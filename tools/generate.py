"""Writes the generated code of magicbyte.engine.protocol and the pages of docs/protocol from the files in schemas/, and
the table of served APIs from the routes in magicbyte.server.apis.

Run: python tools/generate.py [--check]. With --check nothing is written, and the exit status is 1 if anything is stale.
"""

import json
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

from magicbyte.engine.protocol import APIS
from magicbyte.schema import load_directory
from magicbyte.schema.output import stale, write
from magicbyte.schema.pages import Folder, index, pages
from magicbyte.schema.python import api_keys, api_table, modules
from magicbyte.server import apis
from magicbyte.server.serving.authorization import RowRights, WholeRight
from magicbyte.server.serving.routes import Route

ROOT = Path(__file__).resolve().parent.parent


def routes() -> dict[str, tuple[Route, ...]]:
    """Return the routes of a broker by the names of their modules."""
    names = [each.name for each in pkgutil.iter_modules(apis.__path__)]
    found = {name: getattr(import_module(f"{apis.__name__}.{name}"), "ROUTES", ()) for name in names}
    return {name: declared for name, declared in found.items() if declared}


def served() -> str:
    """Return the module with the table of served APIs."""
    rows = {route.key: (name, route) for name, declared in routes().items() for route in declared}
    return "\n".join(
        [
            '"""The APIs that a broker serves. Generated from the routes in server/apis. Do not edit."""',
            "",
            "from collections.abc import Mapping",
            "from typing import Final",
            "",
            "from magicbyte.server.settings.versions import Served",
            "",
            "SERVED: Final[Mapping[int, Served]] = {",
            *(
                f'    {key}: Served("{name}", range({route.versions.stop}), {route.most_bytes}, {route.most_elements}),'
                for key, (name, route) in sorted(rows.items())
            ),
            "}",
            "",
        ]
    )


def page_of_apis() -> str:
    """Return the page with the table of served APIs."""
    rows = sorted((route for declared in routes().values() for route in declared), key=lambda route: route.key)
    return "\n".join(
        [
            "<!-- Generated from the routes in src/magicbyte/server/apis by tools/generate.py. Do not edit. -->",
            "",
            "# Supported requests",
            "",
            "What a broker answers, the largest request, and the rights that its sender needs if there is an",
            "[authorizer](acls.md). For operators and authors of clients. A number in parentheses is the error code",
            "without the right. Each API is declared beside its handler in [`apis/`](../../src/magicbyte/server/apis).",
            "",
            "Produce 12, EndTxn 5 and TxnOffsetCommit 5 belong to protocol 2 of transactions: they are answered with",
            "`as.version` 4.0 or later. Bytes and elements are bounds of one request, counted before it is read.",
            "",
            "| Key | API | Versions | Bytes | Elements | Rights |",
            "|---|---|---|---|---|---|",
            *(
                f"| {route.key} | {APIS[route.key].name} | {_span(route.versions)} | {_size(route.most_bytes)} "
                f"| {route.most_elements:,} | {_rights(route)} |"
                for route in rows
            ),
            "",
        ]
    )


def _span(versions: range) -> str:
    return "0" if len(versions) == 1 else f"0 to {versions[-1]}"


def _size(most_bytes: int | None) -> str:
    if most_bytes is None:
        return "`socket.request.max.bytes`"
    return f"{most_bytes >> 10} KiB" if most_bytes < 1 << 20 else f"{most_bytes >> 20} MiB"


def _rights(route: Route) -> str:
    if isinstance(route.rights, WholeRight | RowRights):
        return str(route.rights)
    return "none" if route.rights is None else (route.rights.__doc__ or "").splitlines()[0].rstrip(".")


def generated(root: Path = ROOT) -> dict[Path, dict[str, str]]:
    """Return the generated files of each folder: their texts by their names."""
    protocol, docs = root / "src/magicbyte/engine/protocol", root / "docs/protocol"
    schemas = {folder: load_directory(root / "schemas" / folder) for folder in ("messages", "records", "extensions")}
    history = json.loads((root / "docs/protocol/history.json").read_text(encoding="utf-8"))
    found = {
        protocol: {"api_key.py": api_keys(schemas["messages"]), "apis.py": api_table(schemas["messages"])},
        docs: {"messages.md": index(**schemas, history=history)},
        root / "src/magicbyte/server/settings": {"served.py": served()},
        root / "docs/broker": {"apis.md": page_of_apis()},
    }
    for folder, code, place in (("messages", "messages", ""), ("records", "stored", "stored"), ("extensions",) * 3):
        way = "../.." if not place else "../../.."
        home = Folder(f"schemas/{folder}", f"src/magicbyte/engine/protocol/{code}", way)
        found[protocol / code] = modules(schemas[folder])
        found.setdefault(docs / place, {}).update(pages(schemas[folder], home, history))
    return found


def main(arguments: list[str]) -> int:
    """Write what is stale, or, with --check, tell it."""
    check = "--check" in arguments
    changed = []
    for folder, files in generated().items():
        names = stale(folder, files) if check else write(folder, files)
        changed += [folder.relative_to(ROOT) / name for name in names]
    for path in changed:
        sys.stdout.write(f"{'stale' if check else 'written or removed'}: {path}\n")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
