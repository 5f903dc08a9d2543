"""Writes the generated code of magicbyte.engine.protocol and the pages of docs/protocol from the files in schemas/.

Run: python tools/generate.py [--check]. With --check nothing is written, and the exit status is 1 if anything is stale.
"""

import json
import sys
from pathlib import Path

from magicbyte.schema import load_directory
from magicbyte.schema.output import stale, write
from magicbyte.schema.pages import Folder, index, pages
from magicbyte.schema.python import api_keys, api_table, modules

ROOT = Path(__file__).resolve().parent.parent


def generated(root: Path = ROOT) -> dict[Path, dict[str, str]]:
    """Return the generated files of each folder: their texts by their names."""
    protocol, docs = root / "src/magicbyte/engine/protocol", root / "docs/protocol"
    schemas = {folder: load_directory(root / "schemas" / folder) for folder in ("messages", "records", "extensions")}
    history = json.loads((root / "docs/protocol/history.json").read_text(encoding="utf-8"))
    found = {
        protocol: {"api_key.py": api_keys(schemas["messages"]), "apis.py": api_table(schemas["messages"])},
        docs: {"messages.md": index(**schemas, history=history)},
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
