"""Writes the generated code of magicbyte.protocol and the pages of docs/protocol from the files in schemas/.

Run: python tools/generate.py [--check]. With --check nothing is written, and the exit status is 1 if anything is stale.
"""

import sys
from pathlib import Path

from magicbyte.schema import load_directory
from magicbyte.schema.output import stale, write
from magicbyte.schema.python import api_table, modules

ROOT = Path(__file__).resolve().parent.parent


def generated(root: Path = ROOT) -> dict[Path, dict[str, str]]:
    """Return the generated files of each folder: their texts by their names."""
    protocol = root / "src/magicbyte/protocol"
    messages = load_directory(root / "schemas/messages")
    return {
        protocol: {"apis.py": api_table(messages)},
        protocol / "messages": modules(messages),
        protocol / "stored": modules(load_directory(root / "schemas/records")),
        protocol / "extensions": modules(load_directory(root / "schemas/extensions")),
    }


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
